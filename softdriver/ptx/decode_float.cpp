#include "ptx/arithmetic_float.h"

#include "ptx/decode_arithmetic.h"

// This file decodes the floating-point instructions for which PTX defines the exact result.

namespace soft::ptx {

namespace {

using namespace floating;

// The modifiers of a floating-point instruction.
struct Manner {
    Rounding rounding = Rounding::Nearest;
    bool ftz = false, sat = false, relu = false;
};

Rounding take_rounding(Decoder &decoder) {
    int rounding = decoder.take_any({"rn", "rz", "rm", "rp"});
    return Rounding(rounding < 0 ? 0 : rounding);
}

Manner take_manner(Decoder &decoder) {
    Manner manner;
    manner.rounding = take_rounding(decoder);
    manner.ftz = decoder.take("ftz");
    manner.sat = decoder.take("sat");
    manner.relu = decoder.take("relu");
    return manner;
}

template <class T, auto operation> struct Halves;
template <class T, T (*operation)(T)> struct Halves<T, operation> {
    static uint32_t both(uint32_t a) {
        uint32_t low = to_bits(operation(T{uint16_t(a)}));
        return low | uint32_t(to_bits(operation(T{uint16_t(a >> 16)}))) << 16;
    }
};
template <class T, T (*operation)(T, T)> struct Halves<T, operation> {
    static uint32_t both(uint32_t a, uint32_t b) {
        uint32_t low = to_bits(operation(T{uint16_t(a)}, T{uint16_t(b)}));
        return low | uint32_t(to_bits(operation(T{uint16_t(a >> 16)}, T{uint16_t(b >> 16)}))) << 16;
    }
};
template <class T, T (*operation)(T, T, T)> struct Halves<T, operation> {
    static uint32_t both(uint32_t a, uint32_t b, uint32_t c) {
        uint32_t low = to_bits(operation(T{uint16_t(a)}, T{uint16_t(b)}, T{uint16_t(c)}));
        uint32_t high =
            to_bits(operation(T{uint16_t(a >> 16)}, T{uint16_t(b >> 16)}, T{uint16_t(c >> 16)}));
        return low | high << 16;
    }
};
template <class T, auto operation> const Handler halves_of = widest<Halves<T, operation>::both>();

// Selects the handler of an operation that rounds to nearest. If the processor can flush subnormal
// numbers, it does so for .ftz. But a function that computes a fused multiply-add in software does
// not work in this mode.
template <class Operation, class T, bool ftz> Handler to_nearest() {
    constexpr auto exact = Operation::template of<T, Rounding::Nearest, ftz>;
    if constexpr (ftz && std::is_same_v<T, float>) {
        constexpr auto rounded = Operation::template of<T, Rounding::Nearest, false>;
        static const bool flushes = can_flush() && (has_fma() || !Operation::fuses);
        if (flushes)
            return Operation::fuses ? flushing_fused_lanes<rounded> : flushing_lanes<rounded>;
    }
    return Operation::fuses && is_native<T> ? fused_lanes<exact> : lanes<exact>;
}

// Selects the handler for a rounding. Operation::of<T, rounding, ftz> is the function that computes
// one lane.
template <class Operation, class T, bool ftz> Handler by_rounding(Rounding rounding) {
    switch (rounding) {
    case Rounding::Nearest:
        return to_nearest<Operation, T, ftz>();
    case Rounding::Zero:
        return lanes<Operation::template of<T, Rounding::Zero, ftz>>;
    case Rounding::Down:
        return lanes<Operation::template of<T, Rounding::Down, ftz>>;
    case Rounding::Up:
        return lanes<Operation::template of<T, Rounding::Up, ftz>>;
    default:
        return nullptr;
    }
}

// Selects the handler for f32 or f64. All roundings are supported, and .ftz for f32.
template <class Operation> Handler of_numbers(Type type, const Manner &manner) {
    if (type == Type::F32)
        return manner.ftz ? by_rounding<Operation, float, true>(manner.rounding)
                          : by_rounding<Operation, float, false>(manner.rounding);
    return type == Type::F64 && !manner.ftz ? by_rounding<Operation, double, false>(manner.rounding)
                                            : nullptr;
}

// Selects the handler for a 16-bit format or a pair of 16-bit numbers. Only rounding to nearest is
// supported.
template <class Operation> Handler of_halves(Type type, const Manner &manner) {
    constexpr Rounding nearest = Rounding::Nearest;
    if (manner.rounding != nearest)
        return nullptr;
    if (manner.ftz)
        return type == Type::F16     ? lanes<Operation::template of<Half, nearest, true>>
               : type == Type::F16x2 ? halves_of<Half, Operation::template of<Half, nearest, true>>
                                     : nullptr;
    switch (type) {
    case Type::F16:
        return lanes<Operation::template of<Half, nearest, false>>;
    case Type::F16x2:
        return halves_of<Half, Operation::template of<Half, nearest, false>>;
    case Type::BF16:
        return lanes<Operation::template of<Bfloat, nearest, false>>;
    case Type::BF16x2:
        return halves_of<Bfloat, Operation::template of<Bfloat, nearest, false>>;
    default:
        return nullptr;
    }
}

Handler saturation(Type type) {
    switch (type) {
    case Type::F16:
        return lanes<saturate<Half>>;
    case Type::F16x2:
        return halves_of<Half, saturate<Half>>;
    case Type::F32:
        return lanes<saturate<float>>;
    default:
        return nullptr;
    }
}
Handler relu_of(Type type) {
    switch (type) {
    case Type::F16:
        return lanes<floating::relu<Half>>;
    case Type::F16x2:
        return halves_of<Half, floating::relu<Half>>;
    case Type::BF16:
        return lanes<floating::relu<Bfloat>>;
    case Type::BF16x2:
        return halves_of<Bfloat, floating::relu<Bfloat>>;
    default:
        return nullptr;
    }
}

// Emits a step for the operation, then steps for .sat and .relu.
void emit_float(Decoder &decoder, Type type, size_t sources, const Manner &manner,
                Handler handler) {
    decode_same(decoder, type, sources, handler);
    decoder.step.rows[1] = decoder.step.rows[0];
    if (manner.sat)
        decoder.emit(saturation(type));
    if (manner.relu)
        decoder.emit(relu_of(type));
}

template <class Operation> void decode_operation(Decoder &decoder, Type type, size_t sources) {
    Manner manner = take_manner(decoder);
    Handler numbers = of_numbers<Operation>(type, manner);
    emit_float(decoder, type, sources, manner,
               numbers ? numbers : of_halves<Operation>(type, manner));
}

// A pair of floats in a register of 64 bits, as the instructions with .f32x2 use it.
uint32_t first_of(uint64_t pair) { return uint32_t(pair); }
uint32_t second_of(uint64_t pair) { return uint32_t(pair >> 32); }
uint64_t pair_of(uint32_t first, uint32_t second) { return first | uint64_t(second) << 32; }

// Takes the pairs apart, computes each half by the instruction for f32, and makes a pair of the
// results.
template <class Operation> void decode_pairs(Decoder &decoder, size_t sources) {
    bool rounds = decoder.any_left("rn") || decoder.any_left("rz") || decoder.any_left("rm") ||
                  decoder.any_left("rp");
    if (sources == 3 && !rounds)
        decoder.refuse(".rn, .rz, .rm or .rp is missing");
    Manner manner;
    manner.rounding = take_rounding(decoder);
    manner.ftz = decoder.take("ftz");
    decoder.expect_operands(sources + 1);
    Row pairs[3], halves[2];
    for (size_t i = 0; i < sources; i++)
        pairs[i] = decoder.source(decoder.operand(i + 1), Type::B64);
    for (int half : {0, 1}) {
        Step compute;
        for (size_t i = 0; i < sources; i++) {
            Step part;
            part.rows[0] = compute.rows[i + 1] = decoder.temporary(4);
            part.rows[1] = pairs[i];
            part.run = half ? lanes<second_of> : lanes<first_of>;
            decoder.emit_before(part);
        }
        compute.rows[0] = halves[half] = decoder.temporary(4);
        compute.run = of_numbers<Operation>(Type::F32, manner);
        decoder.emit_before(compute);
    }
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::B64);
    decoder.step.rows[1] = halves[0];
    decoder.step.rows[2] = halves[1];
    decoder.emit(lanes<pair_of>);
}

// `fuses` says whether the operation is one instruction of processors with FMA.
struct Plain {
    static constexpr bool fuses = false;
};
struct Add : Plain {
    template <class T, Rounding r, bool ftz> static T of(T a, T b) {
        return floating::add<T, r, ftz>(a, b);
    }
};
struct Sub : Plain {
    template <class T, Rounding r, bool ftz> static T of(T a, T b) {
        return floating::sub<T, r, ftz>(a, b);
    }
};
struct Mul : Plain {
    template <class T, Rounding r, bool ftz> static T of(T a, T b) {
        return floating::mul<T, r, ftz>(a, b);
    }
};
struct Fma : Plain {
    static constexpr bool fuses = true;
    template <class T, Rounding r, bool ftz> static T of(T a, T b, T c) {
        return floating::fma<T, r, ftz>(a, b, c);
    }
};
struct Div : Plain {
    template <class T, Rounding r, bool ftz> static T of(T a, T b) {
        return floating::div<T, r, ftz>(a, b);
    }
};
struct Rcp : Plain {
    template <class T, Rounding r, bool ftz> static T of(T a) {
        return floating::rcp<T, r, ftz>(a);
    }
};
struct Sqrt : Plain {
    template <class T, Rounding r, bool ftz> static T of(T a) {
        return floating::sqrt<T, r, ftz>(a);
    }
};
template <bool greatest, bool nan, bool xorsign> struct Extreme {
    template <class T, Rounding, bool ftz> static T of(T a, T b) {
        if constexpr (xorsign)
            return greatest ? max_xorsign_abs<T, ftz, nan>(a, b)
                            : min_xorsign_abs<T, ftz, nan>(a, b);
        else if constexpr (nan)
            return greatest ? max_nan<T, ftz>(a, b) : min_nan<T, ftz>(a, b);
        else
            return greatest ? floating::max<T, ftz>(a, b) : floating::min<T, ftz>(a, b);
    }
};
// min and max of three operands, or of their absolute values.
template <bool greatest, bool nan, bool absolute> struct Extreme3 {
    template <class T, Rounding r, bool ftz> static T of(T a, T b, T c) {
        using Of2 = Extreme<greatest, nan, false>;
        if constexpr (absolute)
            a = floating::abs(a), b = floating::abs(b), c = floating::abs(c);
        return Of2::template of<T, r, ftz>(Of2::template of<T, r, ftz>(a, b), c);
    }
};
struct Abs {
    template <class T, Rounding, bool ftz> static T of(T a) { return floating::abs<T, ftz>(a); }
};
struct Neg {
    template <class T, Rounding, bool ftz> static T of(T a) { return floating::neg<T, ftz>(a); }
};

// Selects the handler of an operation whose result is never rounded.
template <class Operation> Handler unrounded(Type type, const Manner &manner) {
    constexpr Rounding nearest = Rounding::Nearest;
    if (type == Type::F32)
        return manner.ftz ? lanes<Operation::template of<float, nearest, true>>
                          : lanes<Operation::template of<float, nearest, false>>;
    if (type == Type::F64)
        return manner.ftz ? nullptr : lanes<Operation::template of<double, nearest, false>>;
    return of_halves<Operation>(type, manner);
}

template <bool greatest>
void decode_extreme_of_3(Decoder &decoder, Type type, const Manner &manner, bool nan) {
    constexpr Rounding nearest = Rounding::Nearest;
    auto by_ftz = [&](auto operation) -> Handler {
        using Operation = decltype(operation);
        return manner.ftz ? lanes<Operation::template of<float, nearest, true>>
                          : lanes<Operation::template of<float, nearest, false>>;
    };
    bool absolute = decoder.take("abs");
    Handler handler = nan        ? absolute ? by_ftz(Extreme3<greatest, true, true>())
                                            : by_ftz(Extreme3<greatest, true, false>())
                      : absolute ? by_ftz(Extreme3<greatest, false, true>())
                                 : by_ftz(Extreme3<greatest, false, false>());
    decode_same(decoder, type, 3, type == Type::F32 ? handler : nullptr);
}

template <bool greatest> void decode_extreme(Decoder &decoder, Type type) {
    Manner manner;
    manner.ftz = decoder.take("ftz");
    bool nan = decoder.take("NaN");
    if (decoder.operands() == 4)
        return decode_extreme_of_3<greatest>(decoder, type, manner, nan);
    bool xorsign = decoder.take("xorsign");
    if (xorsign && !decoder.take("abs"))
        decoder.refuse(".xorsign without .abs");
    Handler handler = xorsign ? (nan ? unrounded<Extreme<greatest, true, true>>(type, manner)
                                     : unrounded<Extreme<greatest, false, true>>(type, manner))
                              : (nan ? unrounded<Extreme<greatest, true, false>>(type, manner)
                                     : unrounded<Extreme<greatest, false, false>>(type, manner));
    decode_same(decoder, type, 2, handler);
}

void decode_copysign(Decoder &decoder) {
    Type type = decoder.take_type();
    decode_same(decoder, type, 2,
                type == Type::F32   ? lanes<copysign<float>>
                : type == Type::F64 ? lanes<copysign<double>>
                                    : nullptr);
}

void decode_fma(Decoder &decoder) {
    if (decoder.take("f32x2"))
        return decode_pairs<Fma>(decoder, 3);
    decode_float_fma(decoder, decoder.take_type());
}

} // namespace

void decode_float_add(Decoder &decoder, Type type) { decode_operation<Add>(decoder, type, 2); }
void decode_float_sub(Decoder &decoder, Type type) { decode_operation<Sub>(decoder, type, 2); }
void decode_float_mul(Decoder &decoder, Type type) { decode_operation<Mul>(decoder, type, 2); }
void decode_float_fma(Decoder &decoder, Type type) { decode_operation<Fma>(decoder, type, 3); }
void decode_add_of_pairs(Decoder &decoder) { decode_pairs<Add>(decoder, 2); }
void decode_sub_of_pairs(Decoder &decoder) { decode_pairs<Sub>(decoder, 2); }
void decode_mul_of_pairs(Decoder &decoder) { decode_pairs<Mul>(decoder, 2); }
void decode_float_min(Decoder &decoder, Type type) { decode_extreme<false>(decoder, type); }
void decode_float_max(Decoder &decoder, Type type) { decode_extreme<true>(decoder, type); }
void decode_float_abs(Decoder &decoder, Type type) {
    Manner manner;
    manner.ftz = decoder.take("ftz");
    decode_same(decoder, type, 1, unrounded<Abs>(type, manner));
}
void decode_float_neg(Decoder &decoder, Type type) {
    Manner manner;
    manner.ftz = decoder.take("ftz");
    decode_same(decoder, type, 1, unrounded<Neg>(type, manner));
}

// Decode the exactly rounded variants of div, rcp and so on. decode_approximate.cpp has the
// approximate variants.
void decode_rounded_div(Decoder &decoder, Type type) {
    Manner manner = take_manner(decoder);
    emit_float(decoder, type, 2, manner, of_numbers<Div>(type, manner));
}
void decode_rounded_rcp(Decoder &decoder, Type type) {
    Manner manner = take_manner(decoder);
    emit_float(decoder, type, 1, manner, of_numbers<Rcp>(type, manner));
}
void decode_rounded_sqrt(Decoder &decoder, Type type) {
    Manner manner = take_manner(decoder);
    emit_float(decoder, type, 1, manner, of_numbers<Sqrt>(type, manner));
}

void add_float(Opcodes &opcodes) {
    opcodes["fma"] = decode_fma;
    opcodes["copysign"] = decode_copysign;
}

} // namespace soft::ptx
