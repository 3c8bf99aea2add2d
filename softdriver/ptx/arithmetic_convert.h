#pragma once

#include "ptx/arithmetic_format.h"
#include "ptx/arithmetic_integer.h"

// This header has the conversions (cvt) of one lane. If the source or result has .ftz, or the
// floating-point result has .sat or .relu, the decoder adds a step for it, with a function of
// arithmetic_format.h.

namespace soft::ptx::floating {

// Converts an integer to another integer type by truncation or extension. With `sat`, an integer
// out of range becomes the nearest integer that the type can represent.
template <class To, class From, bool sat = false> inline To to_integer_of(From a) {
    if constexpr (sat) {
        constexpr To low = integer::lowest<To>, high = integer::highest<To>;
        bool below =
            std::is_signed_v<From> && a < 0 && (!std::is_signed_v<To> || int64_t(a) < int64_t(low));
        bool above = a > 0 && uint64_t(a) > uint64_t(high);
        return below ? low : above ? high : To(a);
    } else
        return To(a);
}

// Rounds to an integral value of the same type. A float of 2^23 or more (a double of 2^52 or more)
// has no fraction bits, so adding this number rounds a smaller number to an integral one.
template <Rounding rounding, class T> inline T native_integral(T a) {
    constexpr T shift = std::is_same_v<T, double> ? T(0x1p52) : T(0x1p23);
    T size = from_bits<T>(magnitude(a));
    T nearest = (size + shift) - shift;
    Bits<T> sign = to_bits(a) & Format<T>::sign;
    if constexpr (rounding != Rounding::Nearest) {
        bool outward =
            rounding == Rounding::Up ? sign == 0 : rounding == Rounding::Down && sign != 0;
        nearest += outward ? (nearest < size ? T(1) : T(0)) : (nearest > size ? T(-1) : T(0));
    }
    return size < shift ? from_bits<T>(to_bits(nearest) | sign) : a;
}
// Rounds to an integral value, by .rni, .rzi, .rmi or .rpi.
template <class T, Rounding rounding> inline T to_integral(T a) {
    auto rounded = settle(native_integral<rounding>(widen(a)), widen(a));
    if constexpr (sizeof(T) == 2)
        return narrow<T>(double(rounded));
    else
        return rounded;
}

// Converts to an integer. A number out of range becomes the nearest integer that the type can
// represent. A NaN becomes 0. But if the integer or the float has 64 bits, a NaN becomes an integer
// of which only the highest bit is set.
template <class To, Rounding rounding, class From> inline To to_integer(From from) {
    auto a = native_integral<rounding>(widen(from));
    using Native = decltype(a);
    constexpr bool wide = sizeof(To) == 8 || sizeof(From) == 8;
    constexpr To of_nan = wide ? To(integer::Unsigned<To>(1) << (integer::bits_of<To> - 1)) : To(0);
    constexpr Native low = Native(integer::lowest<To>);
    constexpr Native end = Native(To(1) << (integer::bits_of<To> - 2)) *
                           (std::is_signed_v<To> ? 2 : 4); // the highest value of To, plus 1
    To inside = To(a >= low && a < end ? a : Native(0));
    return a != a     ? of_nan
           : a < low  ? integer::lowest<To>
           : a >= end ? integer::highest<To>
                      : inside;
}

// Converts an integer to floating point, with rounding by .rn, .rz, .rm or .rp.
template <class To, Rounding rounding = Rounding::Nearest, class From>
inline To from_integer(From a) {
    constexpr bool native = std::is_same_v<To, float> || std::is_same_v<To, double>;
    if constexpr (native && rounding == Rounding::Nearest)
        return To(a);
    else {
        bool negative = std::is_signed_v<From> && a < 0;
        return round_to<To>(negative, 0, negative ? ~uint64_t(a) + 1 : uint64_t(a), rounding);
    }
}

// Converts a double that is a NaN to a narrower format. The result keeps the sign, and as much of
// the payload as fits.
template <class To> inline To shorten_nan(double a) {
    constexpr int lost = Format<double>::mantissa - Format<To>::mantissa;
    Bits<To> payload = Bits<To>((to_bits(a) | Format<double>::quiet) >> lost);
    Bits<To> rest = Bits<To>(payload & (Format<To>::normal - 1));
    return from_bits<To>(
        Bits<To>(Format<To>::infinity | rest | (is_negative(a) ? Format<To>::sign : 0)));
}

// Converts between floating-point formats. Conversions to a wider format are exact. A NaN becomes
// the canonical NaN, but conversions from or to double, and from Bfloat to float, keep its payload.
// `ftz` applies to a float result.
template <class To, Rounding rounding = Rounding::Nearest, bool ftz = false, class From>
inline To to_float(From from) {
    if constexpr (std::is_same_v<To, double>)
        return settle(double(widen(from)), double(widen(from)));
    else if constexpr (std::is_same_v<To, float> && sizeof(From) < sizeof(double))
        return std::is_same_v<From, Bfloat> ? widen(from) : flush<ftz>(settle(float(widen(from))));
    else if constexpr (std::is_same_v<From, double>)
        return from == from ? narrow<To>(from, rounding, ftz) : shorten_nan<To>(from);
    else
        return narrow<To>(double(widen(from)), rounding, ftz);
}

// Implements cvt.pack.sat: converts `a` and `b` to integers of `bits` bits, the nearest ones to
// them. The result has, from the lowest bit: the converted `b`, the converted `a`, and the lower
// bits of `c`.
template <int bits, bool is_signed>
inline uint32_t pack_saturated(int32_t a, int32_t b, uint32_t c) {
    constexpr int32_t low = is_signed ? -(1 << (bits - 1)) : 0;
    constexpr int32_t high = (1 << (is_signed ? bits - 1 : bits)) - 1;
    constexpr uint32_t mask = (1u << bits) - 1;
    uint32_t first = uint32_t(a < low ? low : a > high ? high : a) & mask;
    uint32_t second = uint32_t(b < low ? low : b > high ? high : b) & mask;
    uint32_t rest = bits == 16 ? 0 : c << (2 * bits % 32);
    return rest | first << bits | second;
}

// Implements cvt.rna.tf32.f32: keeps ten fraction bits, and rounds to nearest with ties away from
// zero.
inline uint32_t to_tf32(float a) {
    uint32_t bits = to_bits(a);
    return (is_finite(a) ? bits + 0x1000 : bits) & ~0x1fffu;
}

} // namespace soft::ptx::floating
