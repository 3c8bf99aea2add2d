#pragma once

#include "ptx/arithmetic_float.h"

#include <cmath>

// This header has the .approx and .full operations of one lane. PTX only limits their errors. This
// driver's results are more accurate than those of a GPU, and may differ from them in the last
// bits.

namespace soft::ptx::floating {

template <class T, bool ftz, T function(T)> inline T approximate(T a) {
    a = flush<ftz>(a);
    return flush<ftz>(settle(function(a), a));
}
template <bool ftz = false> inline float sin_approx(float a) {
    return approximate<float, ftz, std::sin>(a);
}
template <bool ftz = false> inline float cos_approx(float a) {
    return approximate<float, ftz, std::cos>(a);
}
template <bool ftz = false> inline float lg2_approx(float a) {
    return approximate<float, ftz, std::log2>(a);
}
// For the next functions, T is float, Half or Bfloat.
template <class T, bool ftz = false> inline T ex2_approx(T a) {
    float power = approximate<float, ftz, std::exp2>(widen(flush<ftz>(a)));
    return flush<ftz>(narrow<T>(power));
}
template <class T> inline T tanh_approx(T a) {
    return narrow<T>(approximate<float, false, std::tanh>(widen(a)));
}

template <bool ftz = false> inline float rcp_approx(float a) {
    return rcp<float, Rounding::Nearest, ftz>(a);
}
template <bool ftz = false> inline float sqrt_approx(float a) {
    return sqrt<float, Rounding::Nearest, ftz>(a);
}
template <bool ftz = false> inline float rsqrt_approx(float a) {
    a = flush<ftz>(a);
    return settle(float(1 / native_sqrt(double(a))));
}
inline double rsqrt_approx(double a) { return settle(1 / native_sqrt(a), a); }

// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 read only the upper half of the operand, and set the
// lower half of the result to zero, even if the result is a NaN.
inline double upper_half(double a) {
    uint64_t bits = is_nan(a) ? Format<double>::sign - 1 : to_bits(a);
    return from_bits<double>(bits >> 32 << 32);
}
inline double known_half(double a) { return flush(from_bits<double>(to_bits(a) >> 32 << 32)); }
inline double rcp_approx_ftz(double a) { return upper_half(flush(1 / known_half(a))); }
inline double rsqrt_approx_ftz(double a) {
    return upper_half(flush(1 / native_sqrt(known_half(a))));
}

template <bool ftz = false> inline float div_full(float a, float b) {
    return div<float, Rounding::Nearest, ftz>(a, b);
}
// Divides. As PTX defines, a finite divisor above 2^126 in magnitude counts as infinity: the
// quotient is 0, or NaN if the dividend is infinite.
template <bool ftz = false> inline float div_approx(float a, float b) {
    a = flush<ftz>(a), b = flush<ftz>(b);
    float size = from_bits<float>(magnitude(b));
    bool huge = size > 0x1p126f && is_finite(b);
    float divisor = huge ? from_bits<float>(Format<float>::infinity | (to_bits(b) & 1u << 31)) : b;
    return flush<ftz>(settle(a / divisor));
}

} // namespace soft::ptx::floating
