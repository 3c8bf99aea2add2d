#include "ptx/parser.h"

#include "ptx/parsing.h"

#include <algorithm>

namespace soft::ptx {

namespace {

constexpr int first_with_doubles = 13; // sm_13

// Converts a version such as "8.3" to 83. Returns 0 if the text is not a version.
int version_of(std::string_view text) {
    size_t dot = text.find('.');
    bool good = dot != std::string_view::npos && dot > 0 && dot < 4 && dot + 2 == text.size();
    int version = 0;
    for (char c : text) {
        good = good && (c == '.' || (c >= '0' && c <= '9'));
        if (good && c != '.')
            version = version * 10 + (c - '0');
    }
    return good ? version : 0;
}

void read_version(Parsing &parsing, std::vector<Problem> &problems, int newest) {
    Reader &reader = parsing.reader;
    if (!reader.accept_dot("version"))
        reader.fail("a PTX text begins with .version");
    const Token token = reader.now();
    parsing.tree.version = token.kind == Token::Kind::Float ? version_of(token.text) : 0;
    if (!parsing.tree.version)
        reader.syntax_error();
    reader.take();
    if (parsing.tree.version > newest) {
        Problem problem;
        problem.line = token.line;
        problem.version = true;
        problem.text = "unsupported .version " + std::string(token.text) +
                       ": the newest known is " + std::to_string(newest / 10) + "." +
                       std::to_string(newest % 10);
        problems.push_back(std::move(problem));
        throw Reader::Stop{};
    }
}

// Converts a target such as sm_75 to its compute capability 75, and sm_90a to 90. Returns 0 if the
// name is not a target.
int capability_of(std::string_view name) {
    size_t i = 3;
    int capability = 0;
    while (i < name.size() && i < 6 && name[i] >= '0' && name[i] <= '9')
        capability = capability * 10 + (name[i++] - '0');
    bool particular = i + 1 == name.size() && (name[i] == 'a' || name[i] == 'f');
    return name.substr(0, 3) == "sm_" && (i == name.size() || particular) ? capability : 0;
}

void read_target(Parsing &parsing) {
    Reader &reader = parsing.reader;
    if (!reader.accept_dot("target"))
        reader.fail("after .version stands .target");
    const Token target = reader.now();
    parsing.tree.target = target.text;
    parsing.tree.capability = capability_of(reader.word());
    if (!parsing.tree.capability)
        reader.report(target.line, "unknown target " + quoted(target.text));
    while (reader.accept(",")) {
        std::string_view option = reader.word();
        // Drivers ignore map_f64_to_f32 for devices that have double precision.
        if (option == "map_f64_to_f32" && parsing.tree.capability >= first_with_doubles)
            reader.report(target.line, "map_f64_to_f32 is for targets before sm_13");
        else if (option != "debug" && option != "texmode_unified" &&
                 option != "texmode_independent" && option != "map_f64_to_f32")
            reader.report(target.line, "unsupported option " + quoted(option) + " of .target");
    }
}

void read_address_size(Reader &reader) {
    if (!reader.accept_dot("address_size"))
        return;
    if (reader.now().kind == Token::Kind::Integer && reader.now().bits != 64)
        reader.report(reader.now().line, "addresses of other than 64 bits are not supported");
    reader.expect_kind(Token::Kind::Integer);
}

Linkage read_linkage(Reader &reader) {
    Linkage linkage;
    for (;;) {
        if (reader.accept_dot("visible"))
            linkage.visible = true;
        else if (reader.accept_dot("extern"))
            linkage.external = true;
        else if (reader.accept_dot("weak"))
            linkage.weak = true;
        else if (reader.accept_dot("common"))
            linkage.common = true;
        else
            return linkage;
    }
}

void read_module_registers(Parsing &parsing, const Linkage &linkage) {
    leave_abi(parsing, linkage);
    read_registers(parsing, nullptr);
}

void read_directive(Parsing &parsing) {
    Reader &reader = parsing.reader;
    if (read_remark(parsing))
        return;
    Linkage linkage = read_linkage(reader);
    if (reader.at_dot("entry") || reader.at_dot("func"))
        read_function(parsing, linkage);
    else if (at_variable(reader))
        read_variables(parsing, linkage, nullptr);
    else if (reader.accept_dot("reg"))
        read_module_registers(parsing, linkage);
    else if (reader.accept_dot("alias"))
        read_alias(parsing);
    else
        reader.syntax_error();
}

// Replaces all references to aliases by references to the real functions.
void replace_aliases(Tree &tree) {
    auto real = [&tree](int &index) {
        const Function &function = tree.functions[size_t(index)];
        index = function.alias >= 0 ? function.alias : index;
    };
    for (Variable &variable : tree.variables)
        for (Variable::Address &address : variable.addresses)
            if (address.function)
                real(address.target);
    for (Function &function : tree.functions) {
        for (int &callee : function.calls)
            real(callee);
        std::sort(function.calls.begin(), function.calls.end());
        auto end = std::unique(function.calls.begin(), function.calls.end());
        function.calls.erase(end, function.calls.end());
        for (Instruction &instruction : function.body)
            for (Operand &operand : instruction.operands) {
                if (operand.kind == Operand::Kind::Function)
                    real(operand.index);
                for (Operand &part : operand.parts)
                    if (part.kind == Operand::Kind::Function)
                        real(part.index);
            }
    }
}

void read_module(Parsing &parsing, std::vector<Problem> &problems, int newest) {
    Reader &reader = parsing.reader;
    read_version(parsing, problems, newest);
    read_target(parsing);
    read_address_size(reader);
    while (reader.now().kind != Token::Kind::End)
        read_directive(parsing);
}

} // namespace

void Parsing::spend(size_t bytes) {
    if (bytes > spare)
        reader.fail("the module needs too much memory for so short a text");
    spare -= bytes;
}

std::optional<Tree> parse(std::string_view text, std::vector<Problem> &problems, int newest) {
    size_t before = problems.size();
    Parsing parsing(text, problems);
    try {
        read_module(parsing, problems, newest);
    } catch (const Reader::Stop &) {
    }
    if (problems.size() > before)
        return std::nullopt;
    name_files(parsing);
    bool aliases = false;
    for (const Function &function : parsing.tree.functions)
        aliases |= function.alias >= 0;
    if (aliases)
        replace_aliases(parsing.tree);
    return std::move(parsing.tree);
}

} // namespace soft::ptx
