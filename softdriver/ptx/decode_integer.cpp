#include "ptx/arithmetic_bits.h"
#include "ptx/decode_arithmetic.h"

// This file decodes the instructions of integer arithmetic.

namespace soft::ptx {

namespace {

using namespace integer;

// Returns the carries that an instruction adds. An instruction that does not read the flag begins a
// chain: an addition then adds 0, and a subtraction adds 1 to the complement of its second operand.
uint32_t carries_before(const Warp &warp, const Step &step) {
    return step.detail & reads_carry       ? warp.predicate(step.rows[9])
           : step.detail & begins_with_one ? ~uint32_t{0}
                                           : 0;
}

template <class T, T (*operation)(T, T, bool &)> void with_carry(Warp &warp, const Step &step) {
    T *result = warp.row<T>(step.rows[0]);
    const T *a = warp.row<T>(step.rows[1]), *b = warp.row<T>(step.rows[2]);
    uint32_t carries = carries_before(warp, step), after = 0;
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        bool carry = carries >> lane & 1;
        result[lane] = operation(a[lane], b[lane], carry);
        after |= uint32_t(carry) << lane;
    }
    if (step.detail & writes_carry)
        warp.set_predicate(step.rows[9], after);
}
template <class T, T (*operation)(T, T, T, bool &)>
void with_carry_3(Warp &warp, const Step &step) {
    T *result = warp.row<T>(step.rows[0]);
    const T *a = warp.row<T>(step.rows[1]), *b = warp.row<T>(step.rows[2]);
    const T *c = warp.row<T>(step.rows[3]);
    uint32_t carries = carries_before(warp, step), after = 0;
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        bool carry = carries >> lane & 1;
        result[lane] = operation(a[lane], b[lane], c[lane], carry);
        after |= uint32_t(carry) << lane;
    }
    if (step.detail & writes_carry)
        warp.set_predicate(step.rows[9], after);
}

// Selects the handler for a type of 32 or 64 bits.
template <class Choose> Handler by_long(Type type, Choose choose) {
    return size_of(type) == 4   ? choose(uint32_t())
           : size_of(type) == 8 ? choose(uint64_t())
                                : nullptr;
}

void prepare_carry(Decoder &decoder, bool reads, bool writes, bool subtracts = false) {
    decoder.step.rows[9] = decoder.carry(reads, writes);
    decoder.step.detail = uint16_t((reads       ? reads_carry
                                    : subtracts ? begins_with_one
                                                : 0) |
                                   (writes ? writes_carry : 0));
}

template <bool subtracts>
void decode_carry_sum(Decoder &decoder, Type type, bool reads, bool writes) {
    prepare_carry(decoder, reads, writes, subtracts);
    decode_same(decoder, type, 2, by_long(type, [](auto zero) -> Handler {
                    using T = decltype(zero);
                    return subtracts ? with_carry<T, sub_carry<T>> : with_carry<T, add_carry<T>>;
                }));
}

// Decodes `add`, `min` and `max` of u16x2 and s16x2. Returns false if the instruction has another
// type.
template <uint16_t of_unsigned(uint16_t, uint16_t), int16_t of_signed(int16_t, int16_t)>
bool decode_halves(Decoder &decoder) {
    int sign = decoder.take_any({"u16x2", "s16x2"});
    if (sign >= 0)
        decode_same(decoder, Type::B32, 2,
                    sign == 0 ? lanes<halves<uint16_t, of_unsigned>>
                              : lanes<halves<int16_t, of_signed>>);
    return sign >= 0;
}

template <bool subtracts> void decode_sum(Decoder &decoder) {
    if (!subtracts && decode_halves<add, add>(decoder))
        return;
    if (decoder.take("f32x2"))
        return subtracts ? decode_sub_of_pairs(decoder) : decode_add_of_pairs(decoder);
    bool writes = decoder.take("cc"), saturates = decoder.any_left("sat");
    Type type = decoder.take_type();
    if (is_float(type))
        return subtracts ? decode_float_sub(decoder, type) : decode_float_add(decoder, type);
    if (writes)
        return decode_carry_sum<subtracts>(decoder, type, false, true);
    if (saturates && decoder.take("sat")) {
        Handler handler = subtracts ? lanes<sub_sat> : lanes<add_sat>;
        return decode_same(decoder, type, 2, type == Type::S32 ? handler : nullptr);
    }
    decode_same(decoder, type, 2, by_integer(type, [](auto zero) -> Handler {
                    using T = decltype(zero);
                    return subtracts ? lanes<sub<T>> : lanes<add<T>>;
                }));
}
template <bool subtracts> void decode_sum_with_carry(Decoder &decoder) {
    bool writes = decoder.take("cc");
    decode_carry_sum<subtracts>(decoder, decoder.take_type(), true, writes);
}

Type wider(Decoder &decoder, Type type) {
    switch (type) {
    case Type::U16:
        return Type::U32;
    case Type::S16:
        return Type::S32;
    case Type::U32:
        return Type::U64;
    case Type::S32:
        return Type::S64;
    default:
        decoder.refuse_types();
    }
}

template <class Choose> Handler by_narrow(Type type, Choose choose) {
    switch (type) {
    case Type::U16:
        return choose(uint16_t());
    case Type::S16:
        return choose(int16_t());
    case Type::U32:
        return choose(uint32_t());
    case Type::S32:
        return choose(int32_t());
    default:
        return nullptr;
    }
}

void decode_mul(Decoder &decoder) {
    if (decoder.take("f32x2"))
        return decode_mul_of_pairs(decoder);
    int part = decoder.take_any({"lo", "hi", "wide"});
    Type type = decoder.take_type();
    if (is_float(type))
        return decode_float_mul(decoder, type);
    if (part < 0)
        decoder.refuse(".lo, .hi or .wide is missing");
    if (part == 2) {
        decoder.expect_operands(3);
        decoder.step.rows[0] = decoder.destination(decoder.operand(0), wider(decoder, type));
        decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
        decoder.step.rows[2] = decoder.source(decoder.operand(2), type);
        return decoder.emit(
            by_narrow(type, [](auto zero) -> Handler { return lanes<mul_wide<decltype(zero)>>; }));
    }
    decode_same(decoder, type, 2, by_integer(type, [part](auto zero) -> Handler {
                    using T = decltype(zero);
                    return part == 0 ? lanes<mul_lo<T>> : lanes<mul_hi<T>>;
                }));
}

void decode_carry_mad(Decoder &decoder, Type type, int part, bool reads, bool writes) {
    prepare_carry(decoder, reads, writes);
    if (part != 0 && part != 1)
        decoder.refuse(".lo or .hi is missing");
    if (size_of(type) < 4)
        decoder.refuse_types();
    decode_same(decoder, type, 3, by_integer(type, [part](auto zero) -> Handler {
                    using T = decltype(zero);
                    return part == 0 ? with_carry_3<T, mad_lo_carry<T>>
                                     : with_carry_3<T, mad_hi_carry<T>>;
                }));
}

void decode_mad(Decoder &decoder) {
    int part = decoder.take_any({"lo", "hi", "wide"});
    bool writes = decoder.take("cc"), saturates = decoder.any_left("sat");
    Type type = decoder.take_type();
    if (is_float(type))
        return decode_float_fma(decoder, type);
    if (writes)
        return decode_carry_mad(decoder, type, part, false, true);
    if (part == 2) {
        decoder.expect_operands(4);
        Type wide = wider(decoder, type);
        decoder.step.rows[0] = decoder.destination(decoder.operand(0), wide);
        decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
        decoder.step.rows[2] = decoder.source(decoder.operand(2), type);
        decoder.step.rows[3] = decoder.source(decoder.operand(3), wide);
        return decoder.emit(
            by_narrow(type, [](auto zero) -> Handler { return lanes<mad_wide<decltype(zero)>>; }));
    }
    if (part < 0)
        decoder.refuse(".lo, .hi or .wide is missing");
    if (saturates && part == 1 && decoder.take("sat"))
        return decode_same(decoder, type, 3, type == Type::S32 ? lanes<mad_hi_sat> : nullptr);
    decode_same(decoder, type, 3, by_integer(type, [part](auto zero) -> Handler {
                    using T = decltype(zero);
                    return part == 0 ? lanes<mad_lo<T>> : lanes<mad_hi<T>>;
                }));
}

void decode_madc(Decoder &decoder) {
    int part = decoder.take_any({"lo", "hi"});
    bool writes = decoder.take("cc");
    decode_carry_mad(decoder, decoder.take_type(), part, true, writes);
}

void decode_mul24(Decoder &decoder) {
    int part = decoder.take_any({"lo", "hi"});
    Type type = decoder.take_type();
    if (part < 0)
        decoder.refuse(".lo or .hi is missing");
    Handler handler =
        type == Type::S32   ? (part ? lanes<mul24_hi<int32_t>> : lanes<mul24_lo<int32_t>>)
        : type == Type::U32 ? (part ? lanes<mul24_hi<uint32_t>> : lanes<mul24_lo<uint32_t>>)
                            : nullptr;
    decode_same(decoder, type, 2, handler);
}
void decode_mad24(Decoder &decoder) {
    int part = decoder.take_any({"lo", "hi"});
    bool saturates = part == 1 && decoder.take("sat");
    Type type = decoder.take_type();
    if (part < 0)
        decoder.refuse(".lo or .hi is missing");
    Handler handler = type == Type::S32 ? (saturates ? lanes<mad24_hi_sat>
                                           : part    ? lanes<mad24_hi<int32_t>>
                                                     : lanes<mad24_lo<int32_t>>)
                      : type == Type::U32 && !saturates
                          ? (part ? lanes<mad24_hi<uint32_t>> : lanes<mad24_lo<uint32_t>>)
                          : nullptr;
    decode_same(decoder, type, 3, handler);
}

void decode_sad(Decoder &decoder) {
    Type type = decoder.take_type();
    decode_same(decoder, type, 3,
                by_integer(type, [](auto zero) -> Handler { return lanes<sad<decltype(zero)>>; }));
}

void decode_div(Decoder &decoder) {
    int mode = decoder.take_any({"full", "approx"});
    Type type = decoder.take_type();
    if (is_float(type))
        return decode_float_div(decoder, type, mode);
    decode_same(decoder, type, 2, by_integer(type, [](auto zero) -> Handler {
                    return lanes<integer::div<decltype(zero)>>;
                }));
}
void decode_rem(Decoder &decoder) {
    Type type = decoder.take_type();
    decode_same(decoder, type, 2, by_integer(type, [](auto zero) -> Handler {
                    return lanes<integer::rem<decltype(zero)>>;
                }));
}

template <class T, T operation(T, T)> T with_relu(T a, T b) { return relu(operation(a, b)); }

template <bool greatest> void decode_min_max(Decoder &decoder) {
    bool relus = decoder.any_left("relu");
    if (decoder.any_left("s16x2") && relus && decoder.take("relu")) {
        constexpr auto operation = greatest ? max<int16_t> : min<int16_t>;
        decoder.take("s16x2");
        return decode_same(decoder, Type::B32, 2,
                           lanes<halves<int16_t, with_relu<int16_t, operation>>>);
    }
    if (greatest ? decode_halves<max, max>(decoder) : decode_halves<min, min>(decoder))
        return;
    Type type = decoder.take_type();
    if (is_float(type))
        return greatest ? decode_float_max(decoder, type) : decode_float_min(decoder, type);
    if (relus && type == Type::S32 && decoder.take("relu")) {
        Handler handler = greatest ? lanes<max<int32_t>> : lanes<min<int32_t>>;
        decode_same(decoder, type, 2, handler);
        decoder.step.rows[1] = decoder.step.rows[0];
        return decoder.emit(lanes<relu<int32_t>>);
    }
    decode_same(decoder, type, 2, by_integer(type, [](auto zero) -> Handler {
                    using T = decltype(zero);
                    return greatest ? lanes<max<T>> : lanes<min<T>>;
                }));
}

template <bool negates> void decode_sign(Decoder &decoder) {
    Type type = decoder.take_type();
    if (is_float(type))
        return negates ? decode_float_neg(decoder, type) : decode_float_abs(decoder, type);
    if (!is_signed(type))
        decoder.refuse_types();
    decode_same(decoder, type, 1, by_integer(type, [](auto zero) -> Handler {
                    using T = decltype(zero);
                    return negates ? lanes<neg<T>> : lanes<abs<T>>;
                }));
}

} // namespace

void add_integer(Opcodes &opcodes) {
    opcodes["add"] = decode_sum<false>;
    opcodes["sub"] = decode_sum<true>;
    opcodes["addc"] = decode_sum_with_carry<false>;
    opcodes["subc"] = decode_sum_with_carry<true>;
    opcodes["mul"] = decode_mul;
    opcodes["mad"] = decode_mad;
    opcodes["madc"] = decode_madc;
    opcodes["mul24"] = decode_mul24;
    opcodes["mad24"] = decode_mad24;
    opcodes["sad"] = decode_sad;
    opcodes["div"] = decode_div;
    opcodes["rem"] = decode_rem;
    opcodes["min"] = decode_min_max<false>;
    opcodes["max"] = decode_min_max<true>;
    opcodes["abs"] = decode_sign<false>;
    opcodes["neg"] = decode_sign<true>;
}

} // namespace soft::ptx
