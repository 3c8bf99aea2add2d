#include "ptx/arithmetic_float.h"

#include "ptx/decode_arithmetic.h"

// This file decodes the instructions setp, set, slct and testp.

namespace soft::ptx {

namespace {

using floating::Bfloat;
using floating::Comparison;
using floating::Half;

// How setp combines the result of its comparison with a predicate, in bits 0 and 1 of Step::detail.
enum class Combine : uint16_t { None, And, Or, Xor };
constexpr unsigned has_second = 4;

// Sets rows[0] to `holds`, combined with the predicate in rows[3]. If the instruction has a second
// destination (has_second), combines the negation of `holds` in the same way and sets rows[4].
void set_predicates(Warp &warp, const Step &step, uint32_t holds) {
    uint32_t opposite = ~holds;
    uint32_t other = step.detail & 3 ? warp.predicate(step.rows[3]) : 0;
    switch (Combine(step.detail & 3)) {
    case Combine::And:
        holds &= other, opposite &= other;
        break;
    case Combine::Or:
        holds |= other, opposite |= other;
        break;
    case Combine::Xor:
        holds ^= other, opposite ^= other;
        break;
    case Combine::None:
        break;
    }
    warp.set_predicate(step.rows[0], holds);
    if (step.detail & has_second)
        warp.set_predicate(step.rows[4], opposite);
}

template <class T, Comparison comparison, bool ftz>
SOFT_INLINE void compare_lanes(Warp &warp, const Step &step) {
    const T *a = warp.row<T>(step.rows[1]), *b = warp.row<T>(step.rows[2]);
    uint32_t holds = 0;
    for (int lane = 0; lane < warp_size; lane++)
        holds |= floating::compare<comparison, ftz>(a[lane], b[lane]) ? lane_bits[lane] : 0;
    if (step.detail)
        set_predicates(warp, step, holds);
    else
        warp.set_predicate(step.rows[0], holds);
}

template <class T, Comparison comparison, bool ftz> void compare(Warp &warp, const Step &step) {
    compare_lanes<T, comparison, ftz>(warp, step);
}
template <class T, Comparison comparison, bool ftz>
SOFT_AVX2 void compare_avx2(Warp &warp, const Step &step) {
    compare_lanes<T, comparison, ftz>(warp, step);
}
template <class T, Comparison comparison, bool ftz>
const Handler comparing =
    has_avx2() ? compare_avx2<T, comparison, ftz> : compare<T, comparison, ftz>;

template <class T, bool ftz> Handler comparison_of(Comparison comparison) {
    switch (comparison) {
    case Comparison::Eq:
        return comparing<T, Comparison::Eq, ftz>;
    case Comparison::Ne:
        return comparing<T, Comparison::Ne, ftz>;
    case Comparison::Lt:
        return comparing<T, Comparison::Lt, ftz>;
    case Comparison::Le:
        return comparing<T, Comparison::Le, ftz>;
    case Comparison::Gt:
        return comparing<T, Comparison::Gt, ftz>;
    case Comparison::Ge:
        return comparing<T, Comparison::Ge, ftz>;
    default:
        break;
    }
    if constexpr (!std::is_integral_v<T>)
        switch (comparison) {
        case Comparison::Equ:
            return comparing<T, Comparison::Equ, ftz>;
        case Comparison::Neu:
            return comparing<T, Comparison::Neu, ftz>;
        case Comparison::Ltu:
            return comparing<T, Comparison::Ltu, ftz>;
        case Comparison::Leu:
            return comparing<T, Comparison::Leu, ftz>;
        case Comparison::Gtu:
            return comparing<T, Comparison::Gtu, ftz>;
        case Comparison::Geu:
            return comparing<T, Comparison::Geu, ftz>;
        case Comparison::Num:
            return comparing<T, Comparison::Num, ftz>;
        case Comparison::Nan:
            return comparing<T, Comparison::Nan, ftz>;
        default:
            break;
        }
    return nullptr;
}

Handler comparison_of(Type type, Comparison comparison, bool ftz) {
    switch (type) {
    case Type::F32:
        return ftz ? comparison_of<float, true>(comparison)
                   : comparison_of<float, false>(comparison);
    case Type::F64:
        return ftz ? nullptr : comparison_of<double, false>(comparison);
    case Type::F16:
        return ftz ? comparison_of<Half, true>(comparison) : comparison_of<Half, false>(comparison);
    case Type::BF16:
        return ftz ? nullptr : comparison_of<Bfloat, false>(comparison);
    default:
        return by_integer(type, [comparison](auto zero) -> Handler {
            return comparison_of<decltype(zero), false>(comparison);
        });
    }
}

// Reads the modifier that selects the comparison. The comparisons lo, ls, hi and hs are for
// unsigned integers.
Comparison take_comparison(Decoder &decoder) {
    int which = decoder.take_any({"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu",
                                  "gtu", "geu", "num", "nan", "lo", "ls", "hi", "hs"});
    if (which < 0)
        decoder.refuse("a comparison is missing");
    return Comparison(which < 14 ? which : which - 14 + int(Comparison::Lt));
}

// Refuses all comparisons of bit types except eq and ne.
void check_bits(Decoder &decoder, Type type, Comparison comparison) {
    if (is_bits(type) && comparison != Comparison::Eq && comparison != Comparison::Ne)
        decoder.refuse("bit types can only be compared for equality");
}

int take_combination(Decoder &decoder) { return decoder.take_any({"and", "or", "xor"}) + 1; }

void decode_setp(Decoder &decoder) {
    Comparison comparison = take_comparison(decoder);
    int combine = take_combination(decoder);
    bool ftz = decoder.take("ftz");
    Type type = decoder.take_type();
    check_bits(decoder, type, comparison);
    decoder.expect_operands(combine ? 4 : 3);
    const Operand &results = decoder.operand(0);
    bool pair = results.kind == Operand::Kind::Pair;
    decoder.step.detail = uint16_t(unsigned(combine) | (pair ? has_second : 0));
    const Operand &first = pair ? results.parts.at(0) : results;
    if (type == Type::F16x2 || type == Type::BF16x2)
        decoder.refuse_types();
    decoder.step.rows[0] = decoder.destination(first, Type::Pred);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    decoder.step.rows[2] = decoder.source(decoder.operand(2), type);
    if (combine)
        decoder.step.rows[3] = decoder.predicate(decoder.operand(3));
    if (pair)
        decoder.step.rows[4] = decoder.destination(results.parts.at(1), Type::Pred);
    decoder.emit(comparison_of(type, comparison, ftz));
}

template <class T> T choose(T a, T b, bool first) { return first ? a : b; }

// Compares two pairs of 16-bit floats. In the result, a half is all ones if the comparison of the
// corresponding halves is true, and otherwise zero.
template <class T, Comparison comparison, bool ftz> uint32_t compare_both(uint32_t a, uint32_t b) {
    auto compare_half = [=](unsigned shift) {
        bool holds =
            floating::compare<comparison, ftz>(T{uint16_t(a >> shift)}, T{uint16_t(b >> shift)});
        return holds ? uint32_t{0xffff} << shift : 0;
    };
    return compare_half(0) | compare_half(16);
}
template <class T, bool ftz, size_t... n>
Handler both_halves(Comparison comparison, std::index_sequence<n...>) {
    static const Handler handlers[] = {lanes<compare_both<T, Comparison(n), ftz>>...};
    return handlers[size_t(comparison)];
}
uint32_t keep_bits(uint32_t a, uint32_t b) { return a & b; }

void decode_packed_set(Decoder &decoder, Type to, Type type, Comparison comparison, bool ftz) {
    constexpr auto all = std::make_index_sequence<14>();
    bool halves = type == Type::F16x2;
    if ((to != type && to != Type::U32 && to != Type::S32) || (ftz && !halves))
        decoder.refuse_types();
    decoder.expect_operands(3);
    Row result = decoder.destination(decoder.operand(0), to), holds = decoder.temporary(4);
    decoder.step.rows[0] = holds;
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    decoder.step.rows[2] = decoder.source(decoder.operand(2), type);
    decoder.emit(!halves ? both_halves<Bfloat, false>(comparison, all)
                 : ftz   ? both_halves<Half, true>(comparison, all)
                         : both_halves<Half, false>(comparison, all));
    decoder.step.rows[0] = result;
    decoder.step.rows[1] = holds;
    decoder.step.rows[2] = decoder.constant(4, to != type ? ~uint64_t{0}
                                               : halves   ? 0x3c003c00
                                                          : 0x3f803f80);
    decoder.emit(lanes<keep_bits>);
}

// Decodes `set` as two steps. The first step compares and writes a temporary predicate. The second
// step selects all ones (1.0 for floating-point types) or zero.
void decode_set(Decoder &decoder) {
    Comparison comparison = take_comparison(decoder);
    int combine = take_combination(decoder);
    bool ftz = decoder.take("ftz");
    Type to = decoder.take_type(), type = decoder.take_type();
    check_bits(decoder, type, comparison);
    if ((type == Type::F16x2 || type == Type::BF16x2) && !combine)
        return decode_packed_set(decoder, to, type, comparison, ftz);
    decoder.expect_operands(combine ? 4 : 3);
    Row result = decoder.destination(decoder.operand(0), to), holds = decoder.temporary(0);
    decoder.step.detail = uint16_t(combine);
    decoder.step.rows[0] = holds;
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    decoder.step.rows[2] = decoder.source(decoder.operand(2), type);
    if (combine)
        decoder.step.rows[3] = decoder.predicate(decoder.operand(3));
    decoder.emit(comparison_of(type, comparison, ftz));
    bool wide = to == Type::U32 || to == Type::S32 || to == Type::F32;
    uint64_t one = to == Type::F32    ? 0x3f800000
                   : to == Type::F16  ? 0x3c00
                   : to == Type::BF16 ? 0x3f80
                                      : ~0u;
    if (!wide && to != Type::U16 && to != Type::S16 && to != Type::F16 && to != Type::BF16)
        decoder.refuse_types();
    decoder.step.rows[0] = result;
    decoder.step.rows[1] = decoder.constant(wide ? 4 : 2, one);
    decoder.step.rows[2] = decoder.constant(wide ? 4 : 2, 0);
    decoder.step.rows[3] = holds;
    decoder.emit(wide ? lanes<choose<uint32_t>> : lanes<choose<uint16_t>>);
}

template <class T, class C, bool ftz> T select_by_sign(T a, T b, C c) {
    if constexpr (std::is_same_v<C, float>)
        return floating::chooses_first<ftz>(c) ? a : b;
    else
        return floating::chooses_first(c) ? a : b;
}
template <class C, bool ftz> Handler selection(Type type) {
    switch (size_of(type)) {
    case 2:
        return lanes<select_by_sign<uint16_t, C, ftz>>;
    case 4:
        return lanes<select_by_sign<uint32_t, C, ftz>>;
    case 8:
        return lanes<select_by_sign<uint64_t, C, ftz>>;
    default:
        return nullptr;
    }
}
void decode_slct(Decoder &decoder) {
    bool ftz = decoder.take("ftz");
    Type type = decoder.take_type(), by = decoder.take_type();
    decoder.expect_operands(4);
    if (by != Type::S32 && by != Type::F32)
        decoder.refuse_types();
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    decoder.step.rows[2] = decoder.source(decoder.operand(2), type);
    decoder.step.rows[3] = decoder.source(decoder.operand(3), by);
    decoder.emit(by == Type::S32 ? selection<int32_t, false>(type)
                 : ftz           ? selection<float, true>(type)
                                 : selection<float, false>(type));
}

template <class T> Handler test_of(int which) {
    using floating::Class;
    static const Handler handlers[] = {
        lanes<floating::is<Class::Finite, T>>, lanes<floating::is<Class::Infinite, T>>,
        lanes<floating::is<Class::Number, T>>, lanes<floating::is<Class::NotANumber, T>>,
        lanes<floating::is<Class::Normal, T>>, lanes<floating::is<Class::Subnormal, T>>};
    return handlers[which];
}
void decode_testp(Decoder &decoder) {
    int which =
        decoder.take_any({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
    Type type = decoder.take_type();
    if (which < 0)
        decoder.refuse("the property to test is missing");
    decoder.expect_operands(2);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::Pred);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    decoder.emit(type == Type::F32   ? test_of<float>(which)
                 : type == Type::F64 ? test_of<double>(which)
                                     : nullptr);
}

} // namespace

void add_comparisons(Opcodes &opcodes) {
    opcodes["setp"] = decode_setp;
    opcodes["set"] = decode_set;
    opcodes["slct"] = decode_slct;
    opcodes["testp"] = decode_testp;
}

} // namespace soft::ptx
