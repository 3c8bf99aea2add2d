#pragma once

#include "ptx/families.h"
#include "ptx/lanes.h"

// The decoders of arithmetic instructions share these functions.

namespace soft::ptx {

// Flags in Step::detail: the instruction reads or writes the carry, or begins with a carry of 1.
constexpr unsigned reads_carry = 1, writes_carry = 2, begins_with_one = 4;

// Calls `choose` with a 0 whose type is the C++ type for a PTX integer type, and returns the
// result. Bit types count as unsigned. For other types, returns null.
template <class Choose> Handler by_integer(Type type, Choose choose) {
    switch (type) {
    case Type::B16:
    case Type::U16:
        return choose(uint16_t());
    case Type::S16:
        return choose(int16_t());
    case Type::B32:
    case Type::U32:
        return choose(uint32_t());
    case Type::S32:
        return choose(int32_t());
    case Type::B64:
    case Type::U64:
        return choose(uint64_t());
    case Type::S64:
        return choose(int64_t());
    default:
        return nullptr;
    }
}

// Decodes an instruction that has a destination and `sources` sources, all of one type.
inline void decode_same(Decoder &decoder, Type type, size_t sources, Handler handler) {
    decoder.expect_operands(sources + 1);
    if (!handler)
        decoder.refuse_types();
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
    for (size_t i = 1; i <= sources; i++)
        decoder.step.rows[i] = decoder.source(decoder.operand(i), type);
    decoder.emit(handler);
}

// Decode the floating-point variants of opcodes that also have integer variants.
void decode_float_add(Decoder &decoder, Type type);
void decode_float_sub(Decoder &decoder, Type type);
void decode_float_mul(Decoder &decoder, Type type);
void decode_float_fma(Decoder &decoder, Type type);
// Decode the instructions with .f32x2, which has been taken.
void decode_add_of_pairs(Decoder &decoder);
void decode_sub_of_pairs(Decoder &decoder);
void decode_mul_of_pairs(Decoder &decoder);
void decode_float_div(Decoder &decoder, Type type, int mode); // `mode`: 0 for .full, 1 for .approx
void decode_float_min(Decoder &decoder, Type type);
void decode_float_max(Decoder &decoder, Type type);
void decode_float_abs(Decoder &decoder, Type type);
void decode_float_neg(Decoder &decoder, Type type);
// Decodes the conversions that have an 8-bit type.
void decode_f8(Decoder &decoder);
void decode_rounded_div(Decoder &decoder, Type type);
void decode_rounded_rcp(Decoder &decoder, Type type);
void decode_rounded_sqrt(Decoder &decoder, Type type);

} // namespace soft::ptx
