#include "ptx/decoder.h"

#include <algorithm>

// Says for each instruction how its results depend on its sources.

namespace soft::ptx {

namespace {

using Rule = Flow::Rule;

bool has(const Instruction &instruction, std::string_view modifier) {
    return std::find(instruction.modifiers.begin(), instruction.modifiers.end(), modifier) !=
           instruction.modifiers.end();
}

// Returns the types among the modifiers.
std::vector<Type> types_of(const Instruction &instruction) {
    std::vector<Type> types;
    for (const std::string &modifier : instruction.modifiers)
        if (Type type = type_named(modifier); type != Type::None)
            types.push_back(type);
    return types;
}

bool is_integer(Type type) { return type != Type::Pred && !is_float(type); }

// The rule of opcodes whose rule does not depend on the operands. The values of opcodes that are
// not here depend on all bits of the sources.
const std::unordered_map<std::string_view, Rule> &rules() {
    static const std::unordered_map<std::string_view, Rule> rules = {
        {"and", Rule::And},         {"or", Rule::Or},
        {"xor", Rule::Bits},        {"not", Rule::Bits},
        {"lop3", Rule::Lookup},     {"shl", Rule::Left},
        {"shr", Rule::Right},       {"bfe", Rule::Extract},
        {"bfi", Rule::Insert},      {"prmt", Rule::Permute},
        {"selp", Rule::Select},     {"setp", Rule::Compare},
        {"cvta", Rule::Low},        {"shfl", Rule::Shuffle},
        {"vote", Rule::Warp},       {"match", Rule::Warp},
        {"redux", Rule::Warp},      {"elect", Rule::Hidden},
        {"mma", Rule::Product},     {"wmma", Rule::Product},
        {"wgmma", Rule::Hidden},    {"movmatrix", Rule::Transpose},
        {"call", Rule::Hidden},     {"mbarrier", Rule::Hidden},
        {"ldmatrix", Rule::Hidden}, {"bar", Rule::Hidden},
        {"barrier", Rule::Hidden},  {"activemask", Rule::Hidden},
        {"alloca", Rule::Hidden},   {"stacksave", Rule::Hidden},
    };
    return rules;
}

// Additions and multiplications of integers. The upper halves of products depend on all bits.
bool is_sum(const Instruction &instruction, const std::vector<Type> &types) {
    static const std::vector<std::string_view> opcodes = {"add", "addc", "sub",   "subc", "mul",
                                                          "mad", "madc", "mul24", "mad24"};
    return std::find(opcodes.begin(), opcodes.end(), instruction.opcode) != opcodes.end() &&
           !types.empty() && is_integer(types[0]) && !has(instruction, "hi") &&
           !has(instruction, "sat");
}

Flow::Memory memory_of(const Instruction &instruction) {
    const std::string &opcode = instruction.opcode;
    if (opcode == "ld" || opcode == "ldu")
        return Flow::Memory::Load;
    if (opcode == "st")
        return Flow::Memory::Store;
    if (opcode == "atom" || opcode == "red")
        return has(instruction, "exch") ? Flow::Memory::Exchange : Flow::Memory::Update;
    if (opcode == "ldmatrix")
        return Flow::Memory::LoadRows;
    if (opcode == "stmatrix")
        return Flow::Memory::StoreRows;
    if (opcode == "wmma" && has(instruction, "load"))
        return Flow::Memory::LoadFragment;
    if (opcode == "wmma" && has(instruction, "store"))
        return Flow::Memory::StoreFragment;
    if (opcode == "wgmma" && has(instruction, "mma_async"))
        return Flow::Memory::Product;
    if (opcode == "cp")
        return has(instruction, "bulk") ? Flow::Memory::Bulk : Flow::Memory::Copy;
    return Flow::Memory::None;
}

bool decides(const std::string &opcode) {
    static const std::vector<std::string_view> opcodes = {
        "st",   "atom",     "red",  "bra",     "brx",    "call",          "ret",
        "exit", "trap",     "bar",  "barrier", "membar", "fence",         "mbarrier",
        "cp",   "stmatrix", "sust", "sured",   "wgmma",  "griddepcontrol"};
    return std::find(opcodes.begin(), opcodes.end(), opcode) != opcodes.end();
}

Rule rule_of_move(const Instruction &instruction) {
    auto is_vector = [&](size_t n) {
        return n < instruction.operands.size() &&
               instruction.operands[n].kind == Operand::Kind::Vector;
    };
    if (has(instruction, "v2") || has(instruction, "v4"))
        return Rule::Each;
    return is_vector(1) ? Rule::Pack : is_vector(0) ? Rule::Unpack : Rule::Bits;
}

} // namespace

Flow flow_of(const Instruction &instruction) {
    Flow flow;
    std::vector<Type> types = types_of(instruction);
    if (auto found = rules().find(instruction.opcode); found != rules().end())
        flow.rule = found->second;
    else if (is_sum(instruction, types))
        flow.rule = Rule::Low;
    else if (instruction.opcode == "mov")
        flow.rule = rule_of_move(instruction);
    else if (instruction.opcode == "cvt" && types.size() == 2 && is_integer(types[0]) &&
             is_integer(types[1]) && !has(instruction, "sat")) {
        flow.rule = Rule::Extend;
        flow.detail = uint8_t(size_of(types[1]));
    }
    if (flow.rule == Rule::Permute && instruction.modifiers.size() > 1)
        flow.rule = Rule::Whole; // the modes of prmt
    if (flow.rule == Rule::Warp && has(instruction, "ballot"))
        flow.rule = Rule::Ballot;
    if (flow.rule == Rule::Compare)
        flow.detail = (has(instruction, "eq") || has(instruction, "ne")) && !types.empty() &&
                      is_integer(types[0]) && instruction.operands.size() == 3;
    flow.memory = memory_of(instruction);
    flow.decides = decides(instruction.opcode);
    flow.needs_all = instruction.opcode == "bar" || instruction.opcode == "barrier" ||
                     instruction.opcode == "brx" || flow.memory >= Flow::Memory::Copy;
    flow.is_signed = !types.empty() && is_signed(types.back());
    return flow;
}

} // namespace soft::ptx
