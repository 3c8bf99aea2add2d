#include "ptx/families.h"
#include "ptx/wgmma.h"

#include <algorithm>

// This file decodes wgmma. Multiplications are complete when their instruction ends, so fences,
// groups and waits have nothing to do.

namespace soft::ptx {

namespace {

bool is_factor(Item item) {
    switch (item) {
    case Item::F16:
    case Item::BF16:
    case Item::TF32:
    case Item::E4M3:
    case Item::E5M2:
    case Item::S8:
    case Item::U8:
    case Item::B1:
        return true;
    default:
        return false;
    }
}

struct GroupShape {
    unsigned columns, inner;
};

GroupShape take_group_shape(Decoder &decoder) {
    for (unsigned inner : {8u, 16u, 32u, 256u})
        for (unsigned columns = 8; columns <= most_columns; columns += 8)
            if (decoder.take("m64n" + std::to_string(columns) + "k" + std::to_string(inner)))
                return {columns, inner};
    decoder.refuse("this shape is not supported by the software driver");
}

bool is_group_shape(const GroupShape &shape, Item item) {
    unsigned columns = shape.columns;
    return shape.inner == inner_items(item) &&
           (!is_integer(item) || columns % 16 == 0 || columns == 8 || columns == 24);
}

// Reads an operand that must be one of two constants, and returns whether it is the second.
bool is_second(Decoder &decoder, size_t operand, int64_t first, int64_t second) {
    int64_t value = int64_t(decoder.integer(decoder.operand(operand)));
    if (value != first && value != second)
        decoder.refuse("operand " + std::to_string(operand + 1) + " is " + std::to_string(value) +
                       ", and must be " + std::to_string(first) + " or " + std::to_string(second));
    return value == second;
}

// Reads the operands after the fourth: scales of A and B, and whether A and B are transposed. A
// cannot be transposed in registers.
uint16_t take_scales(Decoder &decoder, Item item, bool a_in_registers) {
    if (is_integer(item)) {
        decoder.expect_operands(4);
        return 0;
    }
    bool can_transpose = bits_of(item) == 16;
    decoder.expect_operands(can_transpose ? a_in_registers ? 7 : 8 : 6);
    bool negates = is_second(decoder, 4, 1, -1) != is_second(decoder, 5, 1, -1);
    bool transposes_a = can_transpose && !a_in_registers && is_second(decoder, 6, 0, 1);
    bool transposes_b = can_transpose && is_second(decoder, a_in_registers ? 6 : 7, 0, 1);
    return uint16_t((negates ? negates_bit : 0) | (transposes_a ? transposes_a_bit : 0) |
                    (transposes_b ? transposes_b_bit : 0));
}

void take_result(Decoder &decoder, Fragment &d) {
    for (const Operand &part : decoder.operand(0).parts)
        if (!decoder.is_register(part))
            decoder.refuse("the registers of D are also read, so each must be a register");
    size_t bits = d.rows * d.columns * bits_of(d.item);
    take_registers(decoder, decoder.operand(0), d, bits / (warp_size * 32), true);
}

void decode_group_product(Decoder &decoder) {
    if (decoder.take("sp"))
        decoder.refuse("sparse matrices are not supported by the software driver");
    take_sync_aligned(decoder);
    GroupShape shape = take_group_shape(decoder);
    Item d = take_item(decoder), a = take_item(decoder), b = take_item(decoder);
    if (!is_factor(a) || !types_fit(d, a, b, d) || !is_group_shape(shape, a))
        decoder.refuse("these types are not supported with this shape");
    if (a == Item::B1 && (!decoder.take("and") || !decoder.take("popc")))
        decoder.refuse(".and.popc is missing");
    bool saturates = (a == Item::S8 || a == Item::U8) && decoder.take("satfinite");

    bool a_in_registers =
        decoder.operands() > 1 && decoder.operand(1).kind == Operand::Kind::Vector;
    uint16_t scales = take_scales(decoder, a, a_in_registers);
    using Layout = Fragment::Layout;
    Fragment result{Layout::C, d, rows_of_warp, shape.columns, false, {}};
    Fragment left{Layout::A, a, rows_of_warp, shape.inner, false, {}};
    Fragment right{Layout::B, b, shape.inner, shape.columns, false, {}};
    take_result(decoder, result);
    Step &step = decoder.step;
    if (!a_in_registers)
        step.rows[descriptor_of_a] = decoder.source(decoder.operand(1), Type::B64);
    step.rows[descriptor_of_b] = decoder.source(decoder.operand(2), Type::B64);
    step.rows[adds_to_d] = decoder.predicate(decoder.operand(3));
    if (a_in_registers)
        take_registers(decoder, decoder.operand(1), left, 4, false);
    step.detail = uint16_t(scales | (saturates ? saturates_bit : 0));
    auto &all = decoder.code().fragments;
    step.place = uint32_t(all.size());
    for (const Fragment &fragment : {result, left, right})
        all.push_back(std::make_shared<Fragment>(fragment));
    decoder.effect.kind = Effect::Kind::Other;
    decoder.effect.actor = Effect::Actor::Group;
    decoder.emit(multiply_together);
}

void meet_only(Warp &warp, const Step &step) { whole_warp(warp, step); }

void decode_wgmma(Decoder &decoder) {
    const std::string &target = decoder.tree().target;
    if (target != "sm_90a")
        decoder.refuse("needs .target sm_90a, and the target is " + target);
    if (decoder.take("mma_async"))
        return decode_group_product(decoder);
    int which = decoder.take_any({"fence", "commit_group", "wait_group"});
    if (which < 0)
        decoder.refuse(".mma_async, .fence, .commit_group or .wait_group is missing");
    take_sync_aligned(decoder);
    bool waits = which == 2;
    decoder.expect_operands(waits ? 1 : 0);
    int64_t left = waits ? int64_t(decoder.integer(decoder.operand(0))) : 0;
    if (left < 0)
        decoder.refuse("the number of groups is negative");
    if (which > 0)
        decoder.effect.kind = waits ? Effect::Kind::Await : Effect::Kind::Commit;
    decoder.effect.actor = Effect::Actor::Group;
    decoder.effect.count = uint8_t(std::min<int64_t>(left, 255));
    decoder.emit(meet_only);
}

} // namespace

void add_wgmma(Opcodes &opcodes) { opcodes["wgmma"] = decode_wgmma; }

} // namespace soft::ptx
