#include "ptx/arithmetic_bits.h"

#include "ptx/decode_arithmetic.h"

// This file decodes the instructions on bits: logic, shifts, bit fields, counts, permutations of
// bytes.

namespace soft::ptx {

namespace {

using namespace integer;

template <class T> T bit_and(T a, T b) { return T(a & b); }
template <class T> T bit_or(T a, T b) { return T(a | b); }
template <class T> T bit_xor(T a, T b) { return T(a ^ b); }
template <class T> T bit_not(T a) { return T(~a); }

// The handlers of instructions on predicates, whose rows are masks of the lanes.
template <uint32_t operation(uint32_t, uint32_t)> void combine(Warp &warp, const Step &step) {
    warp.set_predicate(step.rows[0],
                       operation(warp.predicate(step.rows[1]), warp.predicate(step.rows[2])));
}
void negate(Warp &warp, const Step &step) {
    warp.set_predicate(step.rows[0], ~warp.predicate(step.rows[1]));
}

template <class Choose> Handler by_bits(Type type, Choose choose) {
    size_t width = size_of(type);
    return width == 2   ? choose(uint16_t())
           : width == 4 ? choose(uint32_t())
           : width == 8 ? choose(uint64_t())
                        : nullptr;
}

enum class Logic { And, Or, Xor };
template <Logic logic> void decode_logic(Decoder &decoder) {
    Type type = decoder.take_type();
    if (type == Type::Pred) {
        decoder.expect_operands(3);
        decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
        decoder.step.rows[1] = decoder.predicate(decoder.operand(1));
        decoder.step.rows[2] = decoder.predicate(decoder.operand(2));
        return decoder.emit(logic == Logic::And  ? combine<bit_and<uint32_t>>
                            : logic == Logic::Or ? combine<bit_or<uint32_t>>
                                                 : combine<bit_xor<uint32_t>>);
    }
    decode_same(decoder, type, 2, by_bits(type, [](auto zero) -> Handler {
                    using T = decltype(zero);
                    return logic == Logic::And  ? lanes<bit_and<T>>
                           : logic == Logic::Or ? lanes<bit_or<T>>
                                                : lanes<bit_xor<T>>;
                }));
}

void decode_not(Decoder &decoder) {
    Type type = decoder.take_type();
    if (type == Type::Pred) {
        decoder.expect_operands(2);
        decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
        decoder.step.rows[1] = decoder.predicate(decoder.operand(1));
        return decoder.emit(negate);
    }
    decode_same(decoder, type, 1,
                by_bits(type, [](auto zero) -> Handler { return lanes<bit_not<decltype(zero)>>; }));
}

void decode_cnot(Decoder &decoder) {
    Type type = decoder.take_type();
    decode_same(decoder, type, 1,
                by_bits(type, [](auto zero) -> Handler { return lanes<cnot<decltype(zero)>>; }));
}

template <bool left> void decode_shift(Decoder &decoder) {
    Type type = decoder.take_type();
    decoder.expect_operands(3);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    decoder.step.rows[2] = decoder.source(decoder.operand(2), Type::U32);
    decoder.emit(
        left ? by_bits(type, [](auto zero) -> Handler { return lanes<shl<decltype(zero)>>; })
             : by_integer(type, [](auto zero) -> Handler { return lanes<shr<decltype(zero)>>; }));
}

template <bool left, bool wrap> uint32_t funnel(uint32_t a, uint32_t b, uint32_t c) {
    return left ? shf_l(a, b, c, wrap) : shf_r(a, b, c, wrap);
}
void decode_funnel(Decoder &decoder) {
    bool left = decoder.take("l");
    if (!left && !decoder.take("r"))
        decoder.refuse(".l or .r is missing");
    bool wrap = decoder.take("wrap");
    if (!wrap && !decoder.take("clamp"))
        decoder.refuse(".wrap or .clamp is missing");
    Type type = decoder.take_type();
    Handler handler = left ? (wrap ? lanes<funnel<true, true>> : lanes<funnel<true, false>>)
                           : (wrap ? lanes<funnel<false, true>> : lanes<funnel<false, false>>);
    decode_same(decoder, type, 3, size_of(type) == 4 ? handler : nullptr);
}

void decode_lop3(Decoder &decoder) {
    Type type = decoder.take_type();
    decoder.expect_operands(5);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
    for (size_t i = 1; i <= 3; i++)
        decoder.step.rows[i] = decoder.source(decoder.operand(i), type);
    decoder.step.rows[4] = decoder.constant(4, decoder.integer(decoder.operand(4)));
    decoder.emit(type == Type::B32 ? lanes<lop3> : nullptr);
}

void decode_bfe(Decoder &decoder) {
    Type type = decoder.take_type();
    decoder.expect_operands(4);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    decoder.step.rows[2] = decoder.source(decoder.operand(2), Type::U32);
    decoder.step.rows[3] = decoder.source(decoder.operand(3), Type::U32);
    decoder.emit(size_of(type) < 4 ? nullptr : by_integer(type, [](auto zero) -> Handler {
        return lanes<bfe<decltype(zero)>>;
    }));
}

void decode_bfi(Decoder &decoder) {
    Type type = decoder.take_type();
    decoder.expect_operands(5);
    for (size_t i = 1; i <= 2; i++)
        decoder.step.rows[i] = decoder.source(decoder.operand(i), type);
    for (size_t i = 3; i <= 4; i++)
        decoder.step.rows[i] = decoder.source(decoder.operand(i), Type::U32);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
    decoder.emit(type == Type::B32   ? lanes<bfi<uint32_t>>
                 : type == Type::B64 ? lanes<bfi<uint64_t>>
                                     : nullptr);
}

// Decodes an instruction that has one source and a 32-bit result.
void decode_counted(Decoder &decoder, Type type, Handler handler) {
    decoder.expect_operands(2);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::U32);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    decoder.emit(handler);
}
void decode_popc(Decoder &decoder) {
    Type type = decoder.take_type();
    decode_counted(decoder, type,
                   type == Type::B32   ? lanes<popc<uint32_t>>
                   : type == Type::B64 ? lanes<popc<uint64_t>>
                                       : nullptr);
}
void decode_clz(Decoder &decoder) {
    Type type = decoder.take_type();
    decode_counted(decoder, type,
                   type == Type::B32   ? lanes<clz<uint32_t>>
                   : type == Type::B64 ? lanes<clz<uint64_t>>
                                       : nullptr);
}
void decode_bfind(Decoder &decoder) {
    bool shift = decoder.take("shiftamt");
    Type type = decoder.take_type();
    decode_counted(decoder, type,
                   size_of(type) < 4 ? nullptr : by_integer(type, [shift](auto zero) -> Handler {
                       using T = decltype(zero);
                       return shift ? lanes<bfind_shiftamt<T>> : lanes<bfind<T>>;
                   }));
}
void decode_brev(Decoder &decoder) {
    Type type = decoder.take_type();
    decode_same(decoder, type, 1,
                type == Type::B32   ? lanes<brev<uint32_t>>
                : type == Type::B64 ? lanes<brev<uint64_t>>
                                    : nullptr);
}

void decode_fns(Decoder &decoder) {
    Type type = decoder.take_type();
    decode_same(decoder, type, 3, type == Type::B32 ? lanes<fns> : nullptr);
}

template <Permutation mode> uint32_t permute(uint32_t a, uint32_t b, uint32_t c) {
    return prmt(a, b, prmt_selector(mode, c));
}
void decode_prmt(Decoder &decoder) {
    Type type = decoder.take_type();
    static const Handler handlers[] = {
        lanes<permute<Permutation::F4e>>, lanes<permute<Permutation::B4e>>,
        lanes<permute<Permutation::Rc8>>, lanes<permute<Permutation::Ecl>>,
        lanes<permute<Permutation::Ecr>>, lanes<permute<Permutation::Rc16>>};
    int mode = decoder.take_any({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
    Handler handler = mode < 0 ? lanes<permute<Permutation::Index>> : handlers[mode];
    decode_same(decoder, type, 3, type == Type::B32 ? handler : nullptr);
}

template <class T, bool wrap> uint32_t extend(uint32_t a, uint32_t width) {
    return szext<T>(a, width, wrap);
}
template <bool wrap> uint32_t mask(uint32_t start, uint32_t width) {
    return bmsk(start, width, wrap);
}
bool take_wrap(Decoder &decoder) {
    bool wrap = decoder.take("wrap");
    if (!wrap && !decoder.take("clamp"))
        decoder.refuse(".wrap or .clamp is missing");
    return wrap;
}
void decode_szext(Decoder &decoder) {
    bool wrap = take_wrap(decoder);
    Type type = decoder.take_type();
    Handler is_signed = wrap ? lanes<extend<int32_t, true>> : lanes<extend<int32_t, false>>;
    Handler not_signed = wrap ? lanes<extend<uint32_t, true>> : lanes<extend<uint32_t, false>>;
    decode_same(decoder, type, 2,
                type == Type::S32   ? is_signed
                : type == Type::U32 ? not_signed
                                    : nullptr);
}
void decode_bmsk(Decoder &decoder) {
    bool wrap = take_wrap(decoder);
    Type type = decoder.take_type();
    Handler handler = wrap ? lanes<mask<true>> : lanes<mask<false>>;
    decode_same(decoder, type, 2, type == Type::B32 ? handler : nullptr);
}

template <class A, class B, bool high> uint32_t products(uint32_t a, uint32_t b, uint32_t c) {
    return dp2a<A, B>(a, b, c, high);
}
template <bool signed_a, bool signed_b> Handler dot(int part) {
    using A4 = std::conditional_t<signed_a, int8_t, uint8_t>;
    using A2 = std::conditional_t<signed_a, int16_t, uint16_t>;
    using B = std::conditional_t<signed_b, int8_t, uint8_t>;
    return part == 0   ? lanes<products<A2, B, false>>
           : part == 1 ? lanes<products<A2, B, true>>
                       : lanes<dp4a<A4, B>>;
}
template <bool of_two> void decode_dot(Decoder &decoder) {
    int part = of_two ? decoder.take_any({"lo", "hi"}) : 2;
    Type a = decoder.take_type(), b = decoder.take_type();
    if (part < 0)
        decoder.refuse(".lo or .hi is missing");
    if ((a != Type::U32 && a != Type::S32) || (b != Type::U32 && b != Type::S32))
        decoder.refuse_types();
    bool signed_b = b == Type::S32;
    decode_same(decoder, Type::B32, 3,
                a == Type::S32 ? (signed_b ? dot<true, true>(part) : dot<true, false>(part))
                               : (signed_b ? dot<false, true>(part) : dot<false, false>(part)));
}

} // namespace

void add_bits(Opcodes &opcodes) {
    opcodes["and"] = decode_logic<Logic::And>;
    opcodes["or"] = decode_logic<Logic::Or>;
    opcodes["xor"] = decode_logic<Logic::Xor>;
    opcodes["not"] = decode_not;
    opcodes["cnot"] = decode_cnot;
    opcodes["shl"] = decode_shift<true>;
    opcodes["shr"] = decode_shift<false>;
    opcodes["shf"] = decode_funnel;
    opcodes["lop3"] = decode_lop3;
    opcodes["bfe"] = decode_bfe;
    opcodes["bfi"] = decode_bfi;
    opcodes["popc"] = decode_popc;
    opcodes["clz"] = decode_clz;
    opcodes["bfind"] = decode_bfind;
    opcodes["brev"] = decode_brev;
    opcodes["fns"] = decode_fns;
    opcodes["prmt"] = decode_prmt;
    opcodes["szext"] = decode_szext;
    opcodes["bmsk"] = decode_bmsk;
    opcodes["dp4a"] = decode_dot<false>;
    opcodes["dp2a"] = decode_dot<true>;
}

} // namespace soft::ptx
