#pragma once

#include "ptx/arithmetic_float.h"

// This header has the 8-bit floating-point formats. E4M3 has no infinities. In its NaNs, all bits
// other than the sign are ones.

namespace soft::ptx::floating {

struct E4M3 {
    static constexpr int mantissa = 3, bias = 7;
    static constexpr uint8_t highest = 0x7e; // the highest number, 448
};
struct E5M2 {
    static constexpr int mantissa = 2, bias = 15;
    static constexpr uint8_t highest = 0x7b; // the highest number, 57344
};
constexpr uint8_t nan_of_f8 = 0x7f;

// Returns the number as a Half. Half can represent every number of the 8-bit formats.
template <class F> inline Half half_of(uint8_t bits) {
    if constexpr (std::is_same_v<F, E5M2>) {
        Half wide{uint16_t(bits << 8)};
        return is_nan(wide) ? nan_of<Half>() : wide;
    } else {
        uint16_t sign = uint16_t((bits & 0x80) << 8);
        Half size{uint16_t((bits & 0x7f) << 7)}; // the magnitude, divided by 256
        return (bits & 0x7f) == nan_of_f8
                   ? nan_of<Half>()
                   : Half{uint16_t(sign | narrow<Half>(double(widen(size)) * 256).bits)};
    }
}

// Rounds to nearest. A number that is too high for the format becomes the highest one, and so does
// an infinity.
template <class F> inline uint8_t to_f8(double a) {
    if (is_nan(a))
        return nan_of_f8;
    uint8_t sign = is_negative(a) ? 0x80 : 0;
    uint64_t bits = magnitude(a);
    constexpr int widest = Format<double>::mantissa, least = 1 - F::bias;
    int exponent = int(bits >> widest) - Format<double>::bias;
    int lowest = exponent < least ? least : exponent;
    if (exponent > F::bias + 1)
        return sign | F::highest;
    // Scale the number so that its last bit in the format has the value 1, and round it by adding
    // and subtracting a number that has no fraction bits.
    double scale =
        from_bits<double>(uint64_t(Format<double>::bias + F::mantissa - lowest) << widest);
    double scaled = (from_bits<double>(bits) * scale + 0x1p52) - 0x1p52;
    int code = ((lowest - least) << F::mantissa) + int(scaled);
    return uint8_t(sign | (code > F::highest ? F::highest : code));
}

} // namespace soft::ptx::floating
