#include "ptx/parsing.h"

namespace soft::ptx {

namespace {

using Kind = Operand::Kind;

// Reads the guard @p or @!p, if there is one.
void read_guard(Parsing &parsing, Function &function, Instruction &instruction) {
    Reader &reader = parsing.reader;
    if (!reader.accept("@"))
        return;
    instruction.guard_negated = reader.accept("!");
    int line = reader.now().line;
    std::string_view name = reader.word();
    const Symbol *symbol = parsing.names.find(name, function.registers);
    if (!symbol)
        reader.report(line, "unknown symbol " + quoted(name));
    else if (symbol->kind != Symbol::Kind::Register || symbol->width > 1 ||
             function.registers[size_t(symbol->index)].type != Type::Pred)
        reader.report(line, quoted(name) + " is no predicate: '@' needs one");
    else
        instruction.guard = symbol->index;
}

// Reads the list of arguments or results of a call, such as (a, b). The list may be empty.
Operand read_list(Parsing &parsing, Function &function) {
    Reader &reader = parsing.reader;
    Operand list;
    list.kind = Kind::Vector;
    reader.expect("(");
    while (!reader.at(")")) {
        list.parts.push_back(read_operand(parsing, function));
        if (list.parts.back().kind == Kind::Label)
            reader.report(reader.now().line, "unknown symbol " + quoted(list.parts.back().name));
        if (!reader.accept(","))
            break;
    }
    reader.expect(")");
    return list;
}

Operand read_callee(Parsing &parsing, Function &function) {
    Reader &reader = parsing.reader;
    int line = reader.now().line;
    Operand callee = read_operand(parsing, function);
    if (callee.kind == Kind::Function)
        note_call(parsing, function, callee.index);
    else if (callee.kind == Kind::Label)
        reader.report(line, "unknown function " + quoted(callee.name));
    else if (callee.kind != Kind::Register)
        reader.report(line, "what is called is no function");
    return callee;
}

void check_count(Parsing &parsing, const Function &callee, const std::vector<Operand> &operands) {
    bool open = callee.parameters &&
                !callee.variables[size_t(callee.results + callee.parameters) - 1].count;
    if (operands[0].parts.size() != size_t(callee.results) ||
        (operands[2].parts.size() != size_t(callee.parameters) && !open))
        parsing.reader.report(parsing.reader.now().line,
                              "a call of " + quoted(callee.name) +
                                  " has another number of "
                                  "results or arguments than the function");
}

// Reads the operands of a call, which are `(results), callee, (arguments), prototype`. All operands
// except the callee may be missing.
std::vector<Operand> read_call(Parsing &parsing, Function &function) {
    Reader &reader = parsing.reader;
    std::vector<Operand> operands(3);
    operands[0].kind = operands[2].kind = Kind::Vector;
    if (reader.at("(")) {
        operands[0] = read_list(parsing, function);
        reader.expect(",");
    }
    operands[1] = read_callee(parsing, function);
    bool more = reader.accept(",");
    if (more && reader.at("(")) {
        operands[2] = read_list(parsing, function);
        more = reader.accept(",");
    }
    if (operands[1].kind == Kind::Function)
        check_count(parsing, parsing.tree.functions[size_t(operands[1].index)], operands);
    if (more) {
        Operand target;
        // The name of a prototype or of a list. It is resolved at the end of the block.
        target.kind = Kind::Label;
        target.name = reader.word();
        operands.push_back(std::move(target));
    }
    return operands;
}

std::vector<Operand> read_operands(Parsing &parsing, Function &function) {
    Reader &reader = parsing.reader;
    std::vector<Operand> operands;
    if (!reader.at(";"))
        do
            operands.push_back(read_operand(parsing, function));
        while (reader.accept(","));
    return operands;
}

} // namespace

void read_instruction(Parsing &parsing, Function &function) {
    Reader &reader = parsing.reader;
    Instruction instruction;
    read_guard(parsing, function, instruction);
    instruction.line = reader.now().line;
    instruction.source.line = int(std::get<1>(parsing.source));
    instruction.source_number = std::get<0>(parsing.source);
    instruction.source.inner_line = int(std::get<1>(parsing.inner_source));
    instruction.inner_number = std::get<0>(parsing.inner_source);
    instruction.opcode = reader.word();
    while (reader.now().kind == Token::Kind::Dot)
        instruction.modifiers.emplace_back(reader.take().text);
    bool call = instruction.opcode == "call";
    instruction.operands = call ? read_call(parsing, function) : read_operands(parsing, function);
    reader.expect(";");
    bool may_branch = call || instruction.opcode == "bra" || instruction.opcode == "brx";
    if (may_branch && !call && !instruction.operands.empty() &&
        instruction.operands.back().kind != Kind::Label)
        reader.report(instruction.line, "a branch needs a label");
    for (size_t i = 0; i < instruction.operands.size(); i++) {
        const Operand &operand = instruction.operands[i];
        bool unknown = operand.kind == Kind::Label && (!call || i > 2);
        if (unknown && may_branch)
            parsing.names.innermost().references.push_back(
                {function.body.size(), i, -1, instruction.line});
        else if (unknown)
            reader.report(instruction.line, "unknown symbol " + quoted(operand.name));
    }
    // Store the results before `ret`. If a guard keeps `ret` from returning, later stores replace
    // these results.
    if (instruction.opcode == "ret")
        store_results(function, instruction.line);
    function.body.push_back(std::move(instruction));
}

} // namespace soft::ptx
