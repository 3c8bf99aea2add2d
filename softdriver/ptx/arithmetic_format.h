#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

// This header has the floating-point formats of PTX, their NaNs and subnormal numbers, and a
// rounding function for the operations that C++ operators cannot do.

namespace soft::ptx::floating {

// Values of type .f16 and .bf16, as registers hold them. C++17 has no types for these formats.
struct Half {
    uint16_t bits;
};
struct Bfloat {
    uint16_t bits;
};

// The rounding modifiers .rn, .rz, .rm, .rp and .rna (to nearest, ties away from zero). The first
// four are also used for .rni, .rzi, .rmi and .rpi, which round to integral values.
enum class Rounding : uint8_t { Nearest, Zero, Down, Up, NearestAway };

// Constants of a floating-point format. `normal` is the smallest normal number. `nan` is the
// canonical NaN, which is the result of an invalid operation without NaN operands.
template <class T> struct Format;
template <> struct Format<Half> {
    using Bits = uint16_t;
    static constexpr int mantissa = 10, bias = 15;
    static constexpr Bits sign = 0x8000, infinity = 0x7c00, one = 0x3c00;
    static constexpr Bits normal = 1 << mantissa, nan = 0x7fff;
};
template <> struct Format<Bfloat> {
    using Bits = uint16_t;
    static constexpr int mantissa = 7, bias = 127;
    static constexpr Bits sign = 0x8000, infinity = 0x7f80, one = 0x3f80;
    static constexpr Bits normal = 1 << mantissa, nan = 0x7fff;
};
template <> struct Format<float> {
    using Bits = uint32_t;
    static constexpr int mantissa = 23, bias = 127;
    static constexpr Bits sign = 1u << 31, infinity = 0xffu << 23, one = 0x7fu << 23;
    static constexpr Bits normal = 1u << mantissa, nan = 0x7fffffff;
};
template <> struct Format<double> {
    using Bits = uint64_t;
    static constexpr int mantissa = 52, bias = 1023;
    static constexpr Bits sign = Bits(1) << 63, infinity = Bits(0x7ff) << 52;
    static constexpr Bits one = Bits(0x3ff) << 52, normal = Bits(1) << 52;
    static constexpr Bits quiet = Bits(1) << 51, nan = sign | infinity | quiet;
};
template <class T> using Bits = typename Format<T>::Bits;

template <class T> inline Bits<T> to_bits(T value) {
    Bits<T> bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
template <class T> inline T from_bits(Bits<T> bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> inline Bits<T> magnitude(T a) { return to_bits(a) & Bits<T>(~Format<T>::sign); }
template <class T> inline bool is_nan(T a) { return magnitude(a) > Format<T>::infinity; }
template <class T> inline bool is_finite(T a) { return magnitude(a) < Format<T>::infinity; }
template <class T> inline bool is_negative(T a) { return (to_bits(a) & Format<T>::sign) != 0; }
template <class T> inline T nan_of() { return from_bits<T>(Format<T>::nan); }

// settle() returns the result of an operation. A NaN result is replaced: in a double by the first
// NaN among the operands, with its sign and payload; in other formats, or if no operand is a NaN,
// by the canonical NaN. All operations choose their NaNs with this function.
inline double quiet(double a) { return from_bits<double>(to_bits(a) | Format<double>::quiet); }
inline double settle(double result, double a) {
    return result == result ? result : a != a ? quiet(a) : nan_of<double>();
}
inline double settle(double result, double a, double b) {
    return result == result ? result : a != a ? quiet(a) : settle(result, b);
}
inline double settle(double result, double a, double b, double c) {
    return result == result ? result : a != a ? quiet(a) : settle(result, b, c);
}
template <class T, class... Operands> inline T settle(T result, Operands...) {
    return is_nan(result) ? nan_of<T>() : result;
}

// Applies .ftz: a subnormal number becomes zero with the same sign.
template <bool ftz = true, class T> inline T flush(T a) {
    Bits<T> bits = to_bits(a);
    bool subnormal = (bits & Format<T>::infinity) == 0;
    return ftz ? from_bits<T>(subnormal ? bits & Format<T>::sign : bits) : a;
}

// Applies .ftz to a float result that was rounded to nearest: a subnormal result becomes zero.
// `exact` is the exact result, or the exact result rounded to odd. The result also becomes zero if
// it is the smallest normal number only because subnormal numbers have fewer bits.
template <bool ftz> inline float flush_result(float result, double exact) {
    double size = from_bits<double>(magnitude(exact));
    uint32_t bits = to_bits(result);
    return ftz ? from_bits<float>(size < 0x1.ffffffp-127 ? bits & 1u << 31 : bits) : result;
}

// Applies .sat: limits a number to the range from 0 to 1; a NaN becomes 0.
template <class T> inline T saturate(T a) {
    Bits<T> bits = to_bits(a);
    bool below = is_negative(a) || is_nan(a);
    return from_bits<T>(below ? Bits<T>(0) : bits > Format<T>::one ? Format<T>::one : bits);
}
// Applies .relu: negative numbers and -0 become +0; a NaN stays a NaN.
template <class T> inline T relu(T a) {
    return from_bits<T>(is_negative(a) && !is_nan(a) ? Bits<T>(0) : to_bits(a));
}

inline float widen(Bfloat a) { return from_bits<float>(uint32_t(a.bits) << 16); }
inline float widen(Half a) {
    // Move exponent and fraction to their places in a float. The float is then 2^112 times too
    // small, for subnormal numbers too.
    uint32_t moved = uint32_t(a.bits & 0x7fff) << 13;
    uint32_t scaled = to_bits(from_bits<float>(moved) * 0x1p112f);
    scaled = moved < 0x7c00u << 13 ? scaled : moved | 0xffu << 23;
    return from_bits<float>(scaled | uint32_t(a.bits & 0x8000) << 16);
}
inline float widen(float a) { return a; }
inline double widen(double a) { return a; }

inline bool rounds_up(uint64_t kept, uint64_t rest, uint64_t half, bool negative, Rounding to) {
    bool outward = to == Rounding::Up ? !negative : to == Rounding::Down && negative;
    return to == Rounding::Nearest       ? rest > half || (rest == half && (kept & 1))
           : to == Rounding::NearestAway ? rest >= half
                                         : outward && rest != 0;
}

// Rounds significand * 2^exponent to format T. The lowest bit of the significand may be a sticky
// bit, which represents all lower bits of the exact number. In this case the significand must have
// more than two bits that T does not keep. With `ftz` the result is zero if the number would be
// subnormal after rounding with an unlimited range of exponents, as on a GPU.
template <class T>
inline T round_to(bool negative, int exponent, uint64_t significand, Rounding rounding,
                  bool ftz = false) {
    using F = Format<T>;
    Bits<T> sign = negative ? F::sign : Bits<T>(0);
    if (significand == 0)
        return from_bits<T>(sign);
    int lead = __builtin_clzll(significand);
    significand <<= lead;
    int biased = exponent - lead + 63 + F::bias;
    int drop = 63 - F::mantissa + (biased < 1 && !ftz ? 1 - biased : 0);
    if (drop > 62) { // far below the smallest number of T
        int more = drop - 62 < 63 ? drop - 62 : 63;
        bool lost = (significand & ((uint64_t(1) << more) - 1)) != 0;
        significand = significand >> more | lost;
        drop = 62;
    }
    uint64_t kept = significand >> drop, half = uint64_t(1) << (drop - 1);
    uint64_t rest = significand & (2 * half - 1);
    kept += rounds_up(kept, rest, half, negative, rounding);
    if (ftz && biased < 1)
        return from_bits<T>(biased == 0 && kept >> (F::mantissa + 1) ? Bits<T>(sign | F::normal)
                                                                     : sign);
    uint64_t result = kept + (biased < 1 ? 0 : uint64_t(biased - 1) << F::mantissa);
    if (biased > 2 * F::bias || result >= F::infinity) {
        bool finite = rounding == Rounding::Zero || (rounding == Rounding::Up && negative) ||
                      (rounding == Rounding::Down && !negative);
        result = finite ? F::infinity - 1 : F::infinity;
    }
    return from_bits<T>(Bits<T>(sign | result));
}

// Rounds a double to a narrower format.
template <class T>
inline T narrow(double a, Rounding rounding = Rounding::Nearest, bool ftz = false) {
    uint64_t bits = magnitude(a), fraction = bits & ((uint64_t(1) << 52) - 1);
    if (is_nan(a))
        return nan_of<T>();
    if (!is_finite(a))
        return from_bits<T>(Bits<T>(Format<T>::infinity | (is_negative(a) ? Format<T>::sign : 0)));
    int exponent = int(bits >> 52);
    bool normal = exponent != 0;
    return round_to<T>(is_negative(a), (normal ? exponent : 1) - 1075,
                       fraction | uint64_t(normal) << 52, rounding, ftz);
}

} // namespace soft::ptx::floating
