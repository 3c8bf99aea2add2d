// ptx_dump FILE [CAPABILITY]
//
// Prints the syntax tree of a PTX text, one item a line, or the problems in it. With a capability
// the file must be a fatbin, and its PTX for such a device is printed.

#include "ptx/fatbin.h"
#include "ptx/parser.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>

using namespace soft::ptx;

namespace {

constexpr const char *type_names[] = {"none", "pred", "b8",    "b16",  "b32",    "b64", "b128",
                                      "u8",   "u16",  "u32",   "u64",  "s8",     "s16", "s32",
                                      "s64",  "f16",  "f16x2", "bf16", "bf16x2", "f32", "f64"};
constexpr const char *space_names[] = {"generic", "reg",   "const", "global",
                                       "local",   "param", "shared"};

std::ostream &out = std::cout;

void print(const Tree &tree, const Function &function, const Operand &operand);

void print_all(const Tree &tree, const Function &function, const Operand &operand, char close) {
    for (size_t i = 0; i < operand.parts.size(); i++) {
        out << (i ? ", " : "");
        print(tree, function, operand.parts[i]);
    }
    if (operand.addend)
        out << " + " << operand.addend;
    out << close;
}

void print(const Tree &tree, const Function &function, const Operand &operand) {
    using Kind = Operand::Kind;
    out << (operand.negated ? "!" : "");
    switch (operand.kind) {
    case Kind::Register:
        out << function.registers[size_t(operand.index)].name;
        out << (operand.name.empty() ? "" : ".") << operand.name;
        break;
    case Kind::Special:
        out << "special " << operand.name;
        break;
    case Kind::Integer:
        out << int64_t(operand.bits);
        break;
    case Kind::Float:
        out << (operand.single ? "single " : "double ") << std::hex << operand.bits << std::dec;
        break;
    case Kind::Variable: {
        bool local = operand.scope == Operand::Scope::Function;
        out << (local ? function.variables : tree.variables)[size_t(operand.index)].name;
        out << (local ? " of function" : " of module");
        break;
    }
    case Kind::Function:
        out << "function " << tree.functions[size_t(operand.index)].name;
        break;
    case Kind::Label:
        out << "label " << operand.index;
        break;
    case Kind::Memory:
        out << "[";
        print_all(tree, function, operand, ']');
        return;
    case Kind::Element:
        print(tree, function, operand.parts[0]);
        out << "[";
        if (operand.parts.size() > 1)
            print(tree, function, operand.parts[1]);
        out << " * " << operand.bits << " + " << operand.addend << "]";
        return;
    case Kind::Vector:
        out << "{";
        print_all(tree, function, operand, '}');
        return;
    case Kind::Pair:
        print(tree, function, operand.parts[0]);
        out << "|";
        print(tree, function, operand.parts[1]);
        break;
    case Kind::Sink:
        out << "_";
        break;
    }
    if (operand.addend)
        out << " + " << operand.addend;
}

void print(const Tree &tree, const Variable &variable) {
    out << space_names[int(variable.space)] << " " << type_names[int(variable.type)] << " "
        << variable.name << " x" << variable.count << " align " << variable.alignment << " at "
        << variable.offset;
    out << (variable.visible ? " visible" : "") << (variable.external ? " extern" : "")
        << (variable.weak ? " weak" : "") << (variable.common ? " common" : "")
        << (variable.managed ? " managed" : "");
    if (!variable.initial.empty()) {
        out << " =";
        for (uint8_t byte : variable.initial)
            out << " " << int(byte);
    }
    for (const Variable::Address &address : variable.addresses) {
        const auto target = size_t(address.target);
        out << " &"
            << (address.function ? tree.functions[target].name : tree.variables[target].name) << "+"
            << address.addend << ">>" << address.shift << " at " << address.offset << " width "
            << address.width << (address.generic ? " generic" : "");
    }
    out << "\n";
}

void print(const Tree &tree, const Function &function) {
    out << (function.entry ? "entry " : "func ") << function.name << " line " << function.line
        << (function.defined ? "" : " declared") << (function.visible ? " visible" : "")
        << (function.external ? " extern" : "") << (function.weak ? " weak" : "")
        << (function.noreturn ? " noreturn" : "") << " results " << function.results
        << " parameters " << function.parameters << " alias " << function.alias << "\n";
    for (int callee : function.calls)
        out << "  calls " << tree.functions[size_t(callee)].name << "\n";
    for (const Variable &variable : function.variables) {
        out << "  ";
        print(tree, variable);
    }
    for (const Function &prototype : function.prototypes)
        out << "  prototype " << prototype.results << " " << prototype.parameters << "\n";
    for (const Register &each : function.registers)
        out << "  reg " << type_names[int(each.type)] << " " << each.name << "\n";
    for (size_t i = 0; i < function.body.size(); i++) {
        const Instruction &instruction = function.body[i];
        out << "  " << i << " (" << instruction.line << ") ";
        if (instruction.guard >= 0)
            out << (instruction.guard_negated ? "@!" : "@")
                << function.registers[size_t(instruction.guard)].name << " ";
        out << instruction.opcode;
        for (const std::string &modifier : instruction.modifiers)
            out << "." << modifier;
        for (size_t j = 0; j < instruction.operands.size(); j++) {
            out << (j ? ", " : " ");
            print(tree, function, instruction.operands[j]);
        }
        out << "\n";
    }
    const auto &threads = function.max_threads, &required = function.required_threads,
               &cluster = function.required_cluster;
    out << "  maxntid " << threads[0] << " " << threads[1] << " " << threads[2] << " reqntid "
        << required[0] << " " << required[1] << " " << required[2] << " cluster " << cluster[0]
        << " " << cluster[1] << " " << cluster[2] << " rank " << function.max_cluster << " maxnreg "
        << function.max_registers << " minnctapersm " << function.min_blocks << "\n";
}

} // namespace

int main(int count, char **arguments) {
    std::ifstream file(arguments[1], std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (count > 2) {
        FatbinText found = text_of_fatbin(text, std::atoi(arguments[2]));
        out << found.text << found.why;
        return found.outcome != FatbinText::Outcome::Found;
    }
    std::vector<Problem> problems;
    auto tree = parse(text, problems);
    for (const Problem &problem : problems)
        out << problem.line << ": " << problem.text << (problem.version ? " (version)" : "")
            << "\n";
    if (!tree)
        return 1;
    out << "version " << tree->version << " target " << tree->target << " capability "
        << tree->capability << " source " << tree->source_name << "\n";
    for (const Variable &variable : tree->variables)
        print(*tree, variable);
    for (const Function &function : tree->functions)
        print(*tree, function);
    return 0;
}
