#include "ptx/parsing.h"

namespace soft::ptx {

namespace {

void skip_braces(Reader &reader) {
    reader.expect("{");
    for (size_t depth = 1; depth > 0; reader.take()) {
        if (reader.now().kind == Token::Kind::End)
            reader.syntax_error();
        depth += reader.at("{");
        depth -= reader.at("}");
    }
}

// Reads a directive such as `.file 1 "name.cu", 1234, 5678`.
void read_file(Parsing &parsing) {
    Reader &reader = parsing.reader;
    uint64_t number = reader.expect_kind(Token::Kind::Integer).bits;
    std::string_view name = reader.expect_kind(Token::Kind::Text).text;
    if (number == 1)
        parsing.tree.source_name = name;
    parsing.spend(name.size());
    parsing.files[number] = std::make_shared<const std::string>(name);
    while (reader.accept(","))
        reader.expect_kind(Token::Kind::Integer);
}

Parsing::Location read_place(Reader &reader) {
    uint64_t parts[3];
    for (uint64_t &part : parts)
        part = reader.expect_kind(Token::Kind::Integer).bits;
    return {parts[0], parts[1], parts[2]};
}

// Notes that the function of `parsing.source` was called at `call`. Returns the outermost call.
Parsing::Location outermost(Parsing &parsing, Parsing::Location call) {
    constexpr int deepest = 100; // a wrong PTX text may have a circle
    parsing.inlined_into[parsing.source] = call;
    for (int depth = 0; depth < deepest; depth++) {
        auto caller = parsing.inlined_into.find(call);
        if (caller == parsing.inlined_into.end())
            break;
        call = caller->second;
    }
    return call;
}

// Reads a directive such as `.loc 1 20 5, function_name $L__info_string0+3, inlined_at 1 30 2`.
void read_location(Parsing &parsing) {
    Reader &reader = parsing.reader;
    parsing.source = read_place(reader);
    parsing.inner_source = {};
    parsing.inlined_into.erase(parsing.source);
    while (reader.accept(",")) {
        std::string_view what = reader.word();
        if (what == "function_name") {
            reader.word();
            if (reader.accept("+"))
                reader.expect_kind(Token::Kind::Integer);
        } else if (what == "inlined_at") {
            parsing.inner_source = parsing.source;
            parsing.source = outermost(parsing, read_place(reader));
        } else {
            reader.fail("unknown attribute " + quoted(what) + " of .loc");
        }
    }
}

} // namespace

bool read_remark(Parsing &parsing) {
    Reader &reader = parsing.reader;
    if (reader.accept_dot("loc")) {
        read_location(parsing);
    } else if (reader.accept_dot("file")) {
        read_file(parsing);
        reader.accept(";");
    } else if (reader.accept_dot("pragma")) {
        do
            reader.expect_kind(Token::Kind::Text);
        while (reader.accept(","));
        reader.expect(";");
    } else if (reader.accept_dot("section")) {
        // The name may have a dot, as in .section .debug_info.
        if (reader.now().kind == Token::Kind::Dot)
            reader.take();
        else
            reader.word();
        skip_braces(reader);
    } else {
        return false;
    }
    return true;
}

void name_files(Parsing &parsing) {
    for (Function &function : parsing.tree.functions)
        for (Instruction &instruction : function.body) {
            auto file = parsing.files.find(instruction.source_number);
            if (file != parsing.files.end())
                instruction.source.file = file->second;
            file = parsing.files.find(instruction.inner_number);
            if (file != parsing.files.end())
                instruction.source.inner_file = file->second;
        }
}

} // namespace soft::ptx
