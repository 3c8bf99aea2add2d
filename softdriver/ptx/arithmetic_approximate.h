#pragma once

#include "ptx/arithmetic_float.h"

#include <cmath>

// This header has the .approx operations of one lane, except rcp and sqrt, which this driver rounds
// exactly, as it does div.full. PTX only limits the errors of all of them. This driver's results
// are more accurate than those of a GPU, and may differ from them in the last bits.

namespace soft::ptx::floating {

// Adding this number rounds a double to an integral number, which is then in the lowest bits.
constexpr double integral = 0x1.8p52;

// Returns c[0] + c[1] * x + c[2] * x^2 and so on.
template <size_t first = 0, size_t count>
inline double polynomial(const double (&c)[count], double x) {
    if constexpr (first + 1 == count)
        return c[first];
    else
        return c[first] + x * polynomial<first + 1>(c, x);
}

// The next functions compute doubles with a relative error below 2^-40, and round them once, so
// that they are at least as accurate as those of the C library. They have no branches, so that
// compilers can vectorize loops over lanes.

inline float power_of_2(float a) {
    constexpr double terms[] = {
        0x1.ffffffffff79cp-1,  0x1.62e42fef8615cp-1,  0x1.ebfbdff931a62p-3,
        0x1.c6b08dd46ca25p-5,  0x1.3b2ab5c51d760p-7,  0x1.5d87483902010p-10,
        0x1.430accba59700p-13, 0x1.00dad1ddf1f00p-16, 0x1.61afb2d0ee800p-20};
    double x = a < -151 ? -151 : a > 129 ? 129 : a; // beyond, the result is 0 or infinite
    double shifted = x + integral, power = polynomial(terms, x - (shifted - integral));
    float result = float(from_bits<double>(to_bits(power) + (to_bits(shifted) << 52)));
    return a == a ? result : a;
}

// Returns sin(a + quarters * pi / 2). `a` must not be far_from_0().
template <int quarters> inline float sine(float a) {
    constexpr double per_quarter = 0x1.45f306dc9c883p-1;
    constexpr double quarter = 0x1.921fb544p+0, rest_of_quarter = 0x1.0b4611a626331p-34;
    constexpr double of_sine[] = {0x1.fffffffffffd9p-1,  -0x1.5555555550cf7p-3,
                                  0x1.1111110bc5658p-7,  -0x1.a019f886b4100p-13,
                                  0x1.71d7252868000p-19, -0x1.a94c962580000p-26};
    constexpr double of_cosine[] = {0x1.ffffffffffda1p-1,  -0x1.ffffffffdff72p-2,
                                    0x1.555555431079cp-5,  -0x1.6c16b20acca00p-10,
                                    0x1.a00e3a08b0800p-16, -0x1.23b6d87520000p-22};
    double shifted = a * per_quarter + integral, whole = shifted - integral;
    double x = a - whole * quarter - whole * rest_of_quarter;
    uint64_t number = to_bits(shifted) + quarters;
    double result = number & 1 ? polynomial(of_cosine, x * x) : x * polynomial(of_sine, x * x);
    return float(from_bits<double>(to_bits(result) ^ (number & 2) << 62));
}
inline bool far_from_0(float a) { return !(a > -0x1p20f && a < 0x1p20f); }

template <class T, bool ftz, T function(T)> inline T approximate(T a) {
    a = flush<ftz>(a);
    return flush<ftz>(settle(function(a), a));
}
// Like sin_approx() and cos_approx(), but for numbers that are not far_from_0().
template <bool ftz = false> inline float sin_near_0(float a) {
    return approximate<float, ftz, sine<0>>(a);
}
template <bool ftz = false> inline float cos_near_0(float a) {
    return approximate<float, ftz, sine<1>>(a);
}
template <bool ftz = false> inline float sin_approx(float a) {
    return far_from_0(a) ? approximate<float, ftz, std::sin>(a) : sin_near_0<ftz>(a);
}
template <bool ftz = false> inline float cos_approx(float a) {
    return far_from_0(a) ? approximate<float, ftz, std::cos>(a) : cos_near_0<ftz>(a);
}
template <bool ftz = false> inline float lg2_approx(float a) {
    return approximate<float, ftz, std::log2>(a);
}
// For the next functions, T is float, Half or Bfloat.
template <class T, bool ftz = false> inline T ex2_approx(T a) {
    float power = approximate<float, ftz, power_of_2>(widen(flush<ftz>(a)));
    if constexpr (std::is_same_v<T, float>)
        return power;
    else
        return flush<ftz>(narrow<T>(power));
}
template <class T> inline T tanh_approx(T a) {
    float result = approximate<float, false, std::tanh>(widen(a));
    if constexpr (std::is_same_v<T, float>)
        return result;
    else
        return narrow<T>(result);
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
