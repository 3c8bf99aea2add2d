#include "ptx/parsing.h"

#include <algorithm>

namespace soft::ptx {

namespace {

constexpr uint64_t most_parameter_bytes = uint64_t{1} << 30;

unsigned read_count(Reader &reader) {
    uint64_t count = read_integer(reader);
    if (count > ~0u)
        reader.fail("number " + std::to_string(count) + " is too large here");
    return unsigned(count);
}

// Reads one, two or three numbers, of threads or blocks. A missing number is 1.
void read_extent(Reader &reader, unsigned (&extent)[3]) {
    std::fill(extent, extent + 3, 1);
    for (unsigned &each : extent) {
        each = read_count(reader);
        if (!each)
            reader.fail("a number of threads or blocks cannot be zero");
        if (!reader.accept(","))
            return;
    }
    reader.syntax_error();
}

struct Signature {
    std::string_view name;
    Function function;
    std::vector<std::string_view> variables; // names of results and parameters
    std::vector<bool> in_registers;          // for each name, whether it is declared as .reg
};

// Reads a list of parameters such as (.param .b32 a, .reg .u32 b). Returns their number.
int read_parameters(Parsing &parsing, Signature &signature) {
    Reader &reader = parsing.reader;
    reader.expect("(");
    uint64_t bytes = 0;
    int count = 0;
    while (!reader.at(")")) {
        std::string_view name;
        bool in_register;
        Variable parameter = read_parameter(reader, name, in_register);
        signature.variables.push_back(name);
        signature.in_registers.push_back(in_register);
        bytes = (bytes + parameter.alignment - 1) & ~uint64_t(parameter.alignment - 1);
        parameter.offset = bytes;
        bytes += parameter.bytes();
        if (!parameter.count && signature.function.entry)
            reader.fail("parameter " + quoted(parameter.name) + " of a kernel has no size");
        if (bytes > most_parameter_bytes)
            reader.fail("the parameters are too large");
        signature.function.variables.push_back(std::move(parameter));
        count++;
        if (!reader.accept(","))
            break;
    }
    reader.expect(")");
    return count;
}

bool read_performance(Reader &reader, Function &function) {
    if (reader.accept_dot("maxntid"))
        read_extent(reader, function.max_threads);
    else if (reader.accept_dot("reqntid"))
        read_extent(reader, function.required_threads);
    else if (reader.accept_dot("reqnctapercluster"))
        read_extent(reader, function.required_cluster);
    else if (reader.accept_dot("maxclusterrank"))
        function.max_cluster = read_count(reader);
    else if (reader.accept_dot("maxnreg"))
        function.max_registers = read_count(reader);
    else if (reader.accept_dot("minnctapersm"))
        function.min_blocks = read_count(reader);
    else if (reader.accept_dot("maxnctapersm") || reader.accept_dot("abi_preserve") ||
             reader.accept_dot("abi_preserve_control"))
        read_count(reader);
    else if (reader.accept_dot("noreturn"))
        function.noreturn = true;
    else if (reader.accept_dot("explicitcluster"))
        function.explicit_cluster = true;
    else
        return reader.accept_dot("blocksareclusters");
    return true;
}

// Reads `(results) name (parameters)`. In a prototype the name is `_`.
Signature read_signature(Parsing &parsing, bool entry) {
    Reader &reader = parsing.reader;
    Signature signature;
    Function &function = signature.function;
    function.entry = entry;
    if (!entry && reader.at("("))
        function.results = read_parameters(parsing, signature);
    function.line = reader.now().line;
    signature.name = reader.word();
    function.name = signature.name;
    if (reader.at("("))
        function.parameters = read_parameters(parsing, signature);
    return signature;
}

bool same_parameters(const Function &a, const Function &b) {
    auto same = [](const Variable &x, const Variable &y) {
        return x.space == y.space && x.bytes() == y.bytes() && x.alignment == y.alignment &&
               x.is_predicate == y.is_predicate;
    };
    return a.entry == b.entry && a.results == b.results && a.parameters == b.parameters &&
           std::equal(a.variables.begin(), a.variables.begin() + a.results + a.parameters,
                      b.variables.begin(), same);
}

void define_parameters(Parsing &parsing, const Signature &signature, Function &function) {
    for (size_t i = 0; i < signature.variables.size(); i++) {
        Variable &variable = function.variables[i];
        Symbol symbol;
        if (signature.in_registers[i]) {
            Type type = variable.is_predicate ? Type::Pred : variable.type;
            symbol.width = int(variable.count);
            symbol.index = add_registers(function.registers, variable.name, type, symbol.width);
            for (int item = 0; item < symbol.width; item++)
                function.in_registers.push_back(
                    {int(i), symbol.index + item, size_t(item) * size_of(variable.type)});
        } else {
            symbol.kind = Symbol::Kind::Variable;
            symbol.scope = Operand::Scope::Function;
            symbol.index = int(i);
        }
        if (!parsing.names.define(signature.variables[i], symbol))
            parsing.reader.report(variable.line,
                                  "duplicate definition of " + quoted(variable.name));
    }
}

// Merges a declaration of a function with another declaration or with the definition. Returns false
// if they contradict each other.
bool merge(Parsing &parsing, Function &known, Function &function) {
    bool both = known.defined && function.defined;
    if (both || !same_parameters(known, function)) {
        const char *what = both ? "duplicate definition of " : "other parameters of ";
        parsing.reader.report(function.line, what + quoted(function.name) + ", which is in line " +
                                                 std::to_string(known.line) + ", too");
        return false;
    }
    function.visible |= known.visible;
    function.noreturn |= known.noreturn;
    if (!known.defined)
        known = std::move(function);
    return true;
}

// Moves a function into the tree and returns its index. If the tree has another item with this name
// that contradicts the function, reports a problem and returns -1.
int place_of(Parsing &parsing, Signature &signature) {
    auto &functions = parsing.tree.functions;
    Symbol symbol;
    symbol.kind = Symbol::Kind::Function;
    symbol.index = int(functions.size());
    if (parsing.names.define(signature.name, symbol)) {
        functions.push_back(std::move(signature.function));
        parsing.callers.push_back(-1);
        return symbol.index;
    }
    symbol = parsing.names.module().symbols.find(signature.name)->second;
    if (symbol.kind == Symbol::Kind::Function)
        return merge(parsing, functions[size_t(symbol.index)], signature.function) ? symbol.index
                                                                                   : -1;
    parsing.reader.report(signature.function.line,
                          "duplicate definition of " + quoted(signature.name));
    return -1;
}

} // namespace

void read_function(Parsing &parsing, const Linkage &linkage) {
    Reader &reader = parsing.reader;
    bool entry = reader.at_dot("entry");
    reader.take();
    // The attributes of unified memory have no effect in this driver.
    while (reader.accept_dot("attribute"))
        read_attributes(reader);
    Signature signature = read_signature(parsing, entry);
    Function &function = signature.function;
    function.visible = linkage.visible;
    function.external = linkage.external;
    function.weak = linkage.weak;
    while (read_performance(reader, function) || read_remark(parsing))
        continue;
    if (function.max_threads[0] && function.required_threads[0])
        reader.report(function.line, "a kernel has .maxntid or .reqntid, not both");
    parsing.tree.without_abi |= function.results > 1;
    function.defined = reader.at("{");
    bool may_end =
        !entry && (reader.now().kind == Token::Kind::Dot || reader.now().kind == Token::Kind::End);
    // The declaration of a .func may also end without a semicolon.
    if (!function.defined && !may_end)
        reader.expect(";");
    bool defined = function.defined;
    int place = place_of(parsing, signature);
    if (!defined)
        return;
    // Even if the signature has an error, read the body, to report its problems too.
    Function &target = place < 0 ? function : parsing.tree.functions[size_t(place)];
    parsing.current = place;
    parsing.names.open();
    define_parameters(parsing, signature, target);
    load_parameters(target);
    read_body(parsing, target);
    share_registers(parsing, target);
}

Function read_prototype(Parsing &parsing) {
    Signature signature = read_signature(parsing, false);
    if (signature.name != "_")
        parsing.reader.report(signature.function.line, "a prototype must have the name '_'");
    while (read_performance(parsing.reader, signature.function))
        continue;
    return std::move(signature.function);
}

// Reads the directive `.alias other, function;`.
void read_alias(Parsing &parsing) {
    Reader &reader = parsing.reader;
    int line = reader.now().line;
    int places[2];
    for (int &place : places) {
        std::string_view name = reader.word();
        const Symbol *symbol = parsing.names.find(name, parsing.no_registers);
        if (!symbol || symbol->kind != Symbol::Kind::Function)
            reader.fail("unknown function " + quoted(name));
        place = symbol->index;
        if (&place == places)
            reader.expect(",");
    }
    reader.expect(";");
    auto &functions = parsing.tree.functions;
    Function &alias = functions[size_t(places[0])];
    const Function &real = functions[size_t(places[1])];
    if (alias.defined || alias.alias >= 0 || !real.defined || !same_parameters(alias, real))
        reader.report(line, "function " + quoted(alias.name) + " cannot be an alias of " +
                                quoted(real.name));
    else
        alias.alias = places[1];
}

} // namespace soft::ptx
