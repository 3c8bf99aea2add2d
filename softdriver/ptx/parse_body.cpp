#include "ptx/parsing.h"

namespace soft::ptx {

namespace {

constexpr size_t deepest_block = 64; // limit of nested blocks

void define_here(Parsing &parsing, const Token &name, Symbol::Kind kind, size_t index) {
    Symbol symbol;
    symbol.kind = kind;
    symbol.index = int(index);
    if (!parsing.names.define(name.text, symbol))
        parsing.reader.report(name.line, "duplicate definition of label " + quoted(name.text));
}

NameList read_list(Parsing &parsing, bool functions) {
    Reader &reader = parsing.reader;
    NameList list;
    list.line = reader.now().line;
    do {
        Operand member;
        member.name = reader.word();
        member.kind = functions ? Operand::Kind::Function : Operand::Kind::Label;
        if (functions) {
            const Symbol *symbol = parsing.names.find(member.name, parsing.no_registers);
            if (!symbol || symbol->kind != Symbol::Kind::Function)
                reader.fail("unknown function " + quoted(member.name));
            member.index = symbol->index;
        }
        list.members.push_back(std::move(member));
    } while (reader.accept(","));
    return list;
}

// Reads `name:` and, if one follows, the directive .branchtargets, .calltargets or .callprototype.
void read_label(Parsing &parsing, Function &function) {
    Reader &reader = parsing.reader;
    Token name = reader.take();
    reader.expect(":");
    bool branches = reader.accept_dot("branchtargets");
    if (branches || reader.accept_dot("calltargets")) {
        parsing.lists.push_back(read_list(parsing, !branches));
        define_here(parsing, name, Symbol::Kind::List, parsing.lists.size() - 1);
        reader.expect(";");
    } else if (reader.accept_dot("callprototype")) {
        function.prototypes.push_back(read_prototype(parsing));
        define_here(parsing, name, Symbol::Kind::Prototype, function.prototypes.size() - 1);
        reader.expect(";");
    } else {
        define_here(parsing, name, Symbol::Kind::Label, function.body.size());
    }
}

void read_statement(Parsing &parsing, Function &function) {
    Reader &reader = parsing.reader;
    if (reader.now().kind == Token::Kind::Word && reader.after().text == ":") {
        read_label(parsing, function);
    } else if (reader.now().kind != Token::Kind::Dot) {
        read_instruction(parsing, function);
    } else if (reader.accept_dot("reg")) {
        read_registers(parsing, &function);
    } else if (!read_remark(parsing)) {
        if (!at_space(reader))
            reader.syntax_error();
        read_variables(parsing, Linkage(), &function);
    }
}

void open_block(Parsing &parsing) {
    if (parsing.names.depth() > deepest_block)
        parsing.reader.fail("blocks are nested too deeply");
    parsing.names.open();
}

} // namespace

void read_body(Parsing &parsing, Function &function) {
    Reader &reader = parsing.reader;
    size_t outside = parsing.names.depth() - 1; // the caller has opened a block for the parameters
    parsing.source = parsing.inner_source = {};
    reader.expect("{");
    while (parsing.names.depth() > outside) {
        if (reader.accept("{")) {
            open_block(parsing);
        } else if (reader.at("}")) {
            if (parsing.names.depth() == outside + 1)
                store_results(function, reader.now().line);
            reader.take();
            close_block(parsing, function);
        } else if (reader.now().kind == Token::Kind::End) {
            reader.fail("syntax error at the end of the text: a function is not closed");
        } else {
            read_statement(parsing, function);
        }
    }
}

} // namespace soft::ptx
