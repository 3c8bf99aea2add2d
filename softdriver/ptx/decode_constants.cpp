#include "ptx/decoder.h"
#include "ptx/special.h"

#include <algorithm>

// Finds the registers that always hold the same value. They share a row that is filled when the
// frame is created or entered, and their moves need no step.

namespace soft::ptx {

namespace {

void count(const Operand &operand, std::vector<unsigned> &definitions) {
    if (operand.kind == Operand::Kind::Register)
        definitions.at(size_t(operand.index))++;
    if (operand.kind == Operand::Kind::Vector || operand.kind == Operand::Kind::Pair)
        for (const Operand &part : operand.parts)
            count(part, definitions);
}

// Returns whether the instruction is `opcode`, and has these modifiers, of which the last is a
// type.
bool is(const Instruction &instruction, std::string_view opcode,
        std::initializer_list<std::string_view> modifiers) {
    const std::vector<std::string> &own = instruction.modifiers;
    return instruction.opcode == opcode && own.size() == modifiers.size() + 1 &&
           std::equal(modifiers.begin(), modifiers.end(), own.begin());
}

} // namespace

// Returns the row of the value that the instruction loads or moves, if it is a constant.
std::optional<Row> Decoder::constant_of(const Instruction &instruction, Type type) {
    const Operand &from = instruction.operands[1];
    if (is(instruction, "ld", {"param"}))
        return argument(from, type);
    if (!is(instruction, "mov", {}) && !is(instruction, "cvta", {"to", "global"}))
        return std::nullopt;
    switch (from.kind) {
    case Operand::Kind::Register:
        return !from.addend && constant_.at(size_t(from.index)) ? std::optional(source(from, type))
                                                                : std::nullopt;
    case Operand::Kind::Special: {
        const Special *special = find_special(from.name);
        return special && special->value ? std::optional(source(from, type)) : std::nullopt;
    }
    case Operand::Kind::Integer:
    case Operand::Kind::Float:
        return source(from, type);
    default:
        return std::nullopt;
    }
}

std::optional<Row> Decoder::argument(const Operand &from, Type type) {
    if (from.kind != Operand::Kind::Memory || from.parts.size() != 1)
        return std::nullopt;
    const Operand &base = from.parts[0];
    const Variable *variable = named(base);
    size_t bytes = size_of(type);
    if (!variable || !is_kernel_parameter(base) || from.addend < 0 ||
        uint64_t(from.addend) + bytes > variable->bytes())
        return std::nullopt;
    Filling wanted;
    wanted.kind = Filling::Kind::Argument;
    wanted.width = uint8_t(bytes);
    wanted.value = local_offset(base.index) + uint64_t(from.addend);
    return wanted.value % bytes ? std::nullopt : std::optional(filling(wanted, false));
}

void Decoder::count_definitions() {
    definitions_.assign(function_.registers.size(), 0);
    constant_.assign(function_.registers.size(), false);
    for (const Instruction &each : function_.body)
        if (!each.operands.empty())
            count(each.operands[0], definitions_);
}

// If the instruction gives a register a constant value, the register gets the row of this value.
// The instruction must have no guard, and be the only definition of the register.
void Decoder::note_constant(const Instruction &instruction) {
    instruction_ = &instruction;
    if (instruction.operands.size() != 2 || instruction.modifiers.empty() || instruction.guard >= 0)
        return;
    const Operand &to = instruction.operands[0];
    Type type = type_named(instruction.modifiers.back());
    if (!is_register(to) || !to.name.empty() || definitions_.at(size_t(to.index)) != 1 ||
        type == Type::None || size_of(type) == 1 || size_of(type) != size_of(type_of(to)))
        return;
    if (std::optional<Row> row = constant_of(instruction, type)) {
        rows_.at(size_t(to.index)) = *row;
        constant_.at(size_t(to.index)) = true;
    }
}

} // namespace soft::ptx
