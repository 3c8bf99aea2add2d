#include "ptx/arithmetic_convert.h"

#include "ptx/decode_arithmetic.h"

// This file decodes the instruction cvt. The modifiers .ftz, .sat and .relu become extra steps
// before or after the conversion. So do registers that are wider than the type.

namespace soft::ptx {

namespace {

using namespace floating;

// The type in which a register holds a T. Registers hold 8-bit numbers in 16 bits.
template <class T>
using Held = std::conditional_t<sizeof(T) == 1,
                                std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>, T>;

template <class To, class From> To truncate(From a) { return To(a); }

template <class To, class From, bool sat> Held<To> integer_to_integer(Held<From> a) {
    return to_integer_of<To, From, sat>(From(a));
}
template <class To, Rounding rounding, class From> Held<To> float_to_integer(From a) {
    return to_integer<To, rounding>(a);
}
template <class To, Rounding rounding, class From> To integer_to_float(Held<From> a) {
    return from_integer<To, rounding>(From(a));
}
template <class To, Rounding rounding, bool ftz, class From> To float_to_float(From a) {
    return to_float<To, rounding, ftz>(a);
}

template <class Choose> Handler by_any_integer(Type type, Choose choose) {
    switch (type) {
    case Type::B8:
    case Type::U8:
        return choose(uint8_t());
    case Type::S8:
        return choose(int8_t());
    default:
        return by_integer(type, choose);
    }
}
template <class Choose> Handler by_float(Type type, Choose choose) {
    switch (type) {
    case Type::F16:
        return choose(Half());
    case Type::BF16:
        return choose(Bfloat());
    case Type::F32:
        return choose(float());
    case Type::F64:
        return choose(double());
    default:
        return nullptr;
    }
}

// Calls `choose` with the rounding as a compile-time constant, and returns the result.
template <class Choose> Handler by_rounding(Rounding rounding, Choose choose) {
    switch (rounding) {
    case Rounding::Nearest:
        return choose(std::integral_constant<Rounding, Rounding::Nearest>());
    case Rounding::Zero:
        return choose(std::integral_constant<Rounding, Rounding::Zero>());
    case Rounding::Down:
        return choose(std::integral_constant<Rounding, Rounding::Down>());
    case Rounding::Up:
        return choose(std::integral_constant<Rounding, Rounding::Up>());
    default:
        return nullptr;
    }
}

struct Conversion {
    Type to, from;
    Rounding rounding = Rounding::Nearest;
    bool rounded = false, to_integral = false, sat = false, ftz = false, relu = false;
};

// Integers of 64 bits.
template <class Choose> Handler by_long(Type type, Choose choose) {
    return is_signed(type) ? choose(int64_t()) : choose(uint64_t());
}

Handler between_integers(const Conversion &wanted) {
    return by_any_integer(wanted.to, [&](auto to) -> Handler {
        using To = decltype(to);
        if (wanted.sat)
            return by_long(wanted.from, [](auto from) -> Handler {
                return lanes<integer_to_integer<To, decltype(from), true>>;
            });
        return by_any_integer(wanted.from, [](auto from) -> Handler {
            return lanes<integer_to_integer<To, decltype(from), false>>;
        });
    });
}
Handler from_integer(const Conversion &wanted) {
    return by_float(wanted.to, [&](auto to) -> Handler {
        using To = decltype(to);
        if constexpr (sizeof(To) > 2)
            if (wanted.rounding == Rounding::Nearest)
                return by_any_integer(wanted.from, [](auto from) -> Handler {
                    return lanes<integer_to_float<To, Rounding::Nearest, decltype(from)>>;
                });
        return by_rounding(wanted.rounding, [&](auto rounding) -> Handler {
            return by_long(wanted.from, [](auto from) -> Handler {
                constexpr Rounding how = decltype(rounding)::value;
                return lanes<integer_to_float<To, how, decltype(from)>>;
            });
        });
    });
}
Handler to_integer(const Conversion &wanted) {
    return by_any_integer(wanted.to, [&](auto to) -> Handler {
        using To = decltype(to);
        return by_float(wanted.from, [&](auto from) -> Handler {
            using From = decltype(from);
            if constexpr (std::is_same_v<From, float>)
                return by_rounding(wanted.rounding, [](auto rounding) -> Handler {
                    return lanes<float_to_integer<To, decltype(rounding)::value, float>>;
                });
            else
                return lanes<float_to_integer<To, Rounding::Zero, From>>;
        });
    });
}
Handler between_floats(const Conversion &wanted) {
    return by_float(wanted.to, [&](auto to) -> Handler {
        using To = decltype(to);
        return by_float(wanted.from, [&](auto from) -> Handler {
            using From = decltype(from);
            if constexpr (sizeof(To) == 8 || (sizeof(To) == 4 && sizeof(From) <= 4)) // exact
                return lanes<float_to_float<To, Rounding::Nearest, false, From>>;
            else
                return by_rounding(wanted.rounding, [&](auto rounding) -> Handler {
                    constexpr Rounding how = decltype(rounding)::value;
                    if constexpr (sizeof(To) == 4)
                        if (wanted.ftz)
                            return lanes<float_to_float<To, how, true, From>>;
                    return lanes<float_to_float<To, how, false, From>>;
                });
        });
    });
}
Handler integral(const Conversion &wanted) {
    if (wanted.to != wanted.from)
        return nullptr;
    return by_float(wanted.to, [&](auto to) -> Handler {
        return by_rounding(wanted.rounding, [](auto rounding) -> Handler {
            return lanes<floating::to_integral<decltype(to), decltype(rounding)::value>>;
        });
    });
}

// Returns the handler of a conversion in one step, or null for types that cvt does not have.
Handler core(const Conversion &wanted) {
    bool from_float = is_float(wanted.from), into_float = is_float(wanted.to);
    if (!from_float)
        return into_float ? from_integer(wanted) : between_integers(wanted);
    if (!into_float)
        return to_integer(wanted);
    return wanted.to_integral ? integral(wanted) : between_floats(wanted);
}

// A handler is compiled for each pair of types, and for many pairs one for each rounding. Some rare
// conversions have two steps. With one step each, twice as many handlers would be compiled.
bool extends_first(const Conversion &wanted) {
    if (is_float(wanted.from) || size_of(wanted.from) == 8)
        return false;
    if (!is_float(wanted.to))
        return wanted.sat;
    return wanted.rounding != Rounding::Nearest || size_of(wanted.to) == 2;
}
bool rounds_first(const Conversion &wanted) {
    return is_float(wanted.from) && wanted.from != Type::F32 && !is_float(wanted.to) &&
           wanted.rounding != Rounding::Zero;
}

Handler saturation(Type type) {
    return by_float(type, [](auto zero) -> Handler { return lanes<saturate<decltype(zero)>>; });
}
Handler relu_of(Type type) {
    return by_float(type,
                    [](auto zero) -> Handler { return lanes<floating::relu<decltype(zero)>>; });
}

// Returns the handler that extends or truncates the values of a row to another width.
Handler resize(size_t from, size_t to, bool sign) {
    auto pick = [&](auto source) -> Handler {
        using S = decltype(source);
        using Signed = std::make_signed_t<S>;
        if (to == 2)
            return lanes<truncate<uint16_t, S>>;
        if (to == 4)
            return sign ? lanes<truncate<int32_t, Signed>> : lanes<truncate<uint32_t, S>>;
        return sign ? lanes<truncate<int64_t, Signed>> : lanes<truncate<uint64_t, S>>;
    };
    return from == 2 ? pick(uint16_t()) : from == 4 ? pick(uint32_t()) : pick(uint64_t());
}

size_t held_width(Type type) { return size_of(type) == 1 ? 2 : size_of(type); }

// Emits an extra step with one source. `before` says whether it runs before the conversion or
// after.
void emit_aside(Decoder &decoder, Handler handler, Row to, Row from, bool before) {
    Step aside;
    aside.rows[0] = to;
    aside.rows[1] = from;
    if (before) {
        aside.run = handler;
        return decoder.emit_before(aside);
    }
    decoder.step = aside;
    decoder.emit(handler);
}

// Applies .ftz to a source. This also replaces every NaN by the canonical NaN.
float flushed_source(float a) { return settle(flush<true>(a)); }

// Emits a conversion that comes before the main one. Returns the row of its result.
Row emit_first(Decoder &decoder, const Conversion &wanted, Row from) {
    Handler handler = core(wanted);
    if (!handler)
        decoder.refuse_types();
    Row result = decoder.temporary(held_width(wanted.to));
    emit_aside(decoder, handler, result, from, true);
    return result;
}

void emit_conversion(Decoder &decoder, const Conversion &wanted) {
    size_t from_width = 0, to_width = 0;
    Row from = decoder.wide_source(decoder.operand(1), wanted.from, from_width);
    if (from_width != held_width(wanted.from)) {
        Row narrow = decoder.temporary(held_width(wanted.from));
        emit_aside(decoder, resize(from_width, held_width(wanted.from), false), narrow, from, true);
        from = narrow;
    }
    if (wanted.ftz && wanted.from == Type::F32) {
        Row flushed = decoder.temporary(4);
        emit_aside(decoder, lanes<flushed_source>, flushed, from, true);
        from = flushed;
    }
    Conversion last = wanted;
    if (extends_first(wanted)) {
        last.from = is_signed(wanted.from) ? Type::S64 : Type::U64;
        from = emit_first(decoder, {last.from, wanted.from}, from);
    } else if (rounds_first(wanted)) {
        last.rounding = Rounding::Zero;
        from = emit_first(decoder, {wanted.from, wanted.from, wanted.rounding, true, true}, from);
    }
    Row to = decoder.wide_destination(decoder.operand(0), wanted.to, to_width);
    bool wider = to_width != held_width(wanted.to);
    Row result = wider ? decoder.temporary(held_width(wanted.to)) : to;
    decoder.step.rows[0] = result;
    decoder.step.rows[1] = from;
    decoder.emit(core(last));
    if (wanted.sat && is_float(wanted.to))
        emit_aside(decoder, saturation(wanted.to), result, result, false);
    if (wanted.relu)
        emit_aside(decoder, relu_of(wanted.to), result, result, false);
    if (wider)
        emit_aside(decoder, resize(held_width(wanted.to), to_width, is_signed(wanted.to)), to,
                   result, false);
}

// cvt.rn.f16x2.f32 d, a, b: converts both operands; a becomes the upper half of d.
template <class T, Rounding rounding, bool with_relu> uint32_t pack_pair(float a, float b) {
    T high = to_float<T, rounding>(a), low = to_float<T, rounding>(b);
    if (with_relu)
        high = floating::relu(high), low = floating::relu(low);
    return uint32_t(to_bits(high)) << 16 | to_bits(low);
}
void decode_pair(Decoder &decoder, const Conversion &wanted) {
    decoder.expect_operands(3);
    if (wanted.from != Type::F32 || wanted.sat || wanted.ftz)
        decoder.refuse_types();
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::B32);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), Type::F32);
    decoder.step.rows[2] = decoder.source(decoder.operand(2), Type::F32);
    decoder.emit(by_rounding(wanted.rounding, [&](auto rounding) -> Handler {
        constexpr Rounding how = decltype(rounding)::value;
        if (wanted.to == Type::F16x2)
            return wanted.relu ? lanes<pack_pair<Half, how, true>>
                               : lanes<pack_pair<Half, how, false>>;
        return wanted.relu ? lanes<pack_pair<Bfloat, how, true>>
                           : lanes<pack_pair<Bfloat, how, false>>;
    }));
}

void take_rounding(Decoder &decoder, Conversion &wanted) {
    int of_float = decoder.take_any({"rn", "rz", "rm", "rp"});
    int of_integer = decoder.take_any({"rni", "rzi", "rmi", "rpi"});
    wanted.rounded = of_float >= 0 || of_integer >= 0;
    wanted.to_integral = of_integer >= 0;
    wanted.rounding = Rounding(of_float >= 0 ? of_float : of_integer >= 0 ? of_integer : 0);
}

// Refuses a conversion whose rounding modifier is missing, and a conversion between integers that
// has one.
void check_rounding(Decoder &decoder, const Conversion &wanted) {
    bool from_float = is_float(wanted.from), into_float = is_float(wanted.to);
    if (!from_float && !into_float) {
        if (wanted.rounded)
            decoder.refuse("a conversion between integers has no rounding modifier");
    } else if (from_float && !into_float) {
        if (!wanted.to_integral)
            decoder.refuse(".rni, .rzi, .rmi or .rpi is missing");
    } else if (!from_float && (!wanted.rounded || wanted.to_integral))
        decoder.refuse(".rn, .rz, .rm or .rp is missing");
    else if (from_float && !wanted.rounded && size_of(wanted.to) < size_of(wanted.from))
        decoder.refuse(".rn, .rz, .rm or .rp is missing");
}

// Decodes cvt.rna.tf32.f32, whose result has type B32.
void decode_tf32(Decoder &decoder) {
    decoder.expect_operands(2);
    if (decoder.take_type() != Type::F32)
        decoder.refuse_types();
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::B32);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), Type::F32);
    decoder.emit(lanes<to_tf32>);
}

// Decodes cvt.pack. The last operand, c, exists only for results of fewer than 16 bits.
void decode_pack(Decoder &decoder) {
    if (!decoder.take("sat"))
        decoder.refuse(".sat is missing");
    int which = decoder.take_any({"u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"});
    bool is_narrow = which >= 2;
    if (which < 0 || !decoder.take("s32") || (is_narrow && !decoder.take("b32")))
        decoder.refuse_types();
    decoder.expect_operands(is_narrow ? 4 : 3);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::B32);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), Type::S32);
    decoder.step.rows[2] = decoder.source(decoder.operand(2), Type::S32);
    decoder.step.rows[3] =
        is_narrow ? decoder.source(decoder.operand(3), Type::B32) : decoder.constant(4, 0);
    static const Handler handlers[] = {
        lanes<pack_saturated<16, false>>, lanes<pack_saturated<16, true>>,
        lanes<pack_saturated<8, false>>,  lanes<pack_saturated<8, true>>,
        lanes<pack_saturated<4, false>>,  lanes<pack_saturated<4, true>>,
        lanes<pack_saturated<2, false>>,  lanes<pack_saturated<2, true>>,
    };
    decoder.emit(handlers[which]);
}

void decode_cvt(Decoder &decoder) {
    if (decoder.take("pack"))
        return decode_pack(decoder);
    if (decoder.any_left("tf32") && decoder.take("rna") && decoder.take("tf32"))
        return decode_tf32(decoder);
    if (decoder.any_left("e4m3x2") || decoder.any_left("e5m2x2"))
        return decode_f8(decoder);
    Conversion wanted;
    take_rounding(decoder, wanted);
    wanted.ftz = decoder.take("ftz");
    wanted.sat = decoder.take("sat");
    wanted.relu = decoder.take("relu");
    wanted.to = decoder.take_type();
    wanted.from = decoder.take_type();
    if (wanted.to == Type::F16x2 || wanted.to == Type::BF16x2)
        return decode_pair(decoder, wanted);
    decoder.expect_operands(2);
    check_rounding(decoder, wanted);
    emit_conversion(decoder, wanted);
}

} // namespace

void add_conversions(Opcodes &opcodes) { opcodes["cvt"] = decode_cvt; }

} // namespace soft::ptx
