#pragma once

#include "ptx/arithmetic_exact.h"
#include "ptx/arithmetic_format.h"

// This header has the floating-point operations of one lane for which PTX defines the exact result.
// T is Half, Bfloat, float or double. If float or double results are rounded to nearest, the
// functions use the operations of the processor, so that compilers can vectorize loops over lanes.
// For .sat and .relu, the decoder adds steps with the functions in arithmetic_format.h.

namespace soft::ptx::floating {

template <class T> constexpr bool is_native = std::is_same_v<T, float> || std::is_same_v<T, double>;

// Returns `a + b`, rounded to odd: if the sum is not exact, returns the neighbouring double whose
// last bit is set. If the caller then rounds to at most 51 bits, the result is the same as if the
// exact sum were rounded once.
template <Rounding rounding = Rounding::Nearest> inline double odd_sum(double a, double b) {
    double sum = a + b, part = sum - a;
    double error = (a - (sum - part)) + (b - part);
    uint64_t bits = to_bits(sum);
    bool inexact = (error < 0 || error > 0) && (bits & 1) == 0;
    bits += inexact ? ((error > 0) == (sum > 0) ? uint64_t(1) : ~uint64_t(0)) : 0;
    if (rounding == Rounding::Down && sum == 0) // if rounded down, 0 + -0 and x - x are -0
        bits = (to_bits(a) | to_bits(b)) & Format<double>::sign;
    return from_bits<double>(bits);
}

template <class T, Rounding rounding = Rounding::Nearest, bool ftz = false> inline T add(T a, T b) {
    a = flush<ftz>(a), b = flush<ftz>(b);
    if constexpr (is_native<T> && rounding == Rounding::Nearest)
        return flush<ftz>(settle(a + b, a, b));
    else if constexpr (std::is_same_v<T, double>)
        return settle(exact_sum(a, b, rounding), a, b);
    else
        return narrow<T>(odd_sum<rounding>(widen(a), widen(b)), rounding, ftz);
}

template <class T> inline T negative_of(T a) { return from_bits<T>(to_bits(a) ^ Format<T>::sign); }

template <class T, Rounding rounding = Rounding::Nearest, bool ftz = false> inline T sub(T a, T b) {
    a = flush<ftz>(a), b = flush<ftz>(b);
    if constexpr (is_native<T> && rounding == Rounding::Nearest)
        return flush<ftz>(settle(a - b, a, b));
    else if constexpr (std::is_same_v<T, double>)
        return settle(exact_sum(a, negative_of(b), rounding), a, b);
    else
        return add<T, rounding, ftz>(a, negative_of(b));
}

template <class T, Rounding rounding = Rounding::Nearest, bool ftz = false> inline T mul(T a, T b) {
    a = flush<ftz>(a), b = flush<ftz>(b);
    if constexpr (ftz && std::is_same_v<T, float> && rounding == Rounding::Nearest)
        return flush_result<ftz>(settle(a * b, a, b), double(a) * b);
    else if constexpr (is_native<T> && rounding == Rounding::Nearest)
        return settle(a * b, a, b);
    else if constexpr (std::is_same_v<T, double>)
        return settle(exact_product(a, b, rounding), a, b);
    else
        return narrow<T>(double(widen(a)) * widen(b), rounding, ftz);
}

inline float native_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double native_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

// The instructions `fma` and floating-point `mad`. If `a` is no NaN but `b` and `c` are, the result
// is the NaN of `c`. The function is fast if it is inlined into a function that may use the
// processor's FMA instruction (a target attribute). Otherwise it calls a library function.
template <class T, Rounding rounding = Rounding::Nearest, bool ftz = false>
inline T fma(T a, T b, T c) {
    a = flush<ftz>(a), b = flush<ftz>(b), c = flush<ftz>(c);
    if constexpr (ftz && std::is_same_v<T, float> && rounding == Rounding::Nearest)
        return flush_result<ftz>(settle(native_fma(a, b, c), a, c, b), odd_sum(double(a) * b, c));
    else if constexpr (is_native<T> && rounding == Rounding::Nearest)
        return settle(native_fma(a, b, c), a, c, b);
    else if constexpr (std::is_same_v<T, double>)
        return settle(exact_fma(a, b, c, rounding), a, c, b);
    else
        return narrow<T>(odd_sum<rounding>(double(widen(a)) * widen(b), widen(c)), rounding, ftz);
}

// Divides. The quotient of floats may be computed as a double and then rounded to float: the first
// rounding cannot change the result, because an inexact quotient is never very near to a float or
// to the middle between two floats.
template <class T, Rounding rounding = Rounding::Nearest, bool ftz = false> inline T div(T a, T b) {
    a = flush<ftz>(a), b = flush<ftz>(b);
    if constexpr (ftz && rounding == Rounding::Nearest)
        return flush_result<ftz>(settle(a / b, a, b), double(a) / b);
    else if constexpr (rounding == Rounding::Nearest)
        return settle(a / b, a, b);
    else if constexpr (std::is_same_v<T, double>)
        return settle(exact_quotient(a, b, rounding), a, b);
    else
        return narrow<T>(double(a) / b, rounding, ftz);
}
template <class T, Rounding rounding = Rounding::Nearest, bool ftz = false> inline T rcp(T a) {
    return div<T, rounding, ftz>(T(1), a);
}

inline float native_sqrt(float a) { return __builtin_sqrtf(a); }
inline double native_sqrt(double a) { return __builtin_sqrt(a); }

template <class T, Rounding rounding = Rounding::Nearest, bool ftz = false> inline T sqrt(T a) {
    a = flush<ftz>(a);
    if constexpr (rounding == Rounding::Nearest)
        return settle(native_sqrt(a), a);
    else if constexpr (std::is_same_v<T, double>)
        return settle(exact_root(a, rounding), a);
    else
        return narrow<T>(native_sqrt(double(a)), rounding);
}

// Returns the smaller operand. If one operand is a NaN, returns the other. -0 is less than +0.
template <class T, bool ftz = false> inline T min(T a, T b) {
    a = flush<ftz>(a), b = flush<ftz>(b);
    auto x = widen(a), y = widen(b);
    T less = x < y || y != y ? a : b;
    less = x == y ? from_bits<T>(to_bits(a) | to_bits(b)) : less;
    return settle(less, b, a);
}
template <class T, bool ftz = false> inline T max(T a, T b) {
    a = flush<ftz>(a), b = flush<ftz>(b);
    auto x = widen(a), y = widen(b);
    T greater = x > y || y != y ? a : b;
    greater = x == y ? from_bits<T>(to_bits(a) & to_bits(b)) : greater;
    return settle(greater, b, a);
}
// Implements `min` with .NaN: the result is a NaN if an operand is.
template <class T, bool ftz = false> inline T min_nan(T a, T b) {
    return is_nan(a) || is_nan(b) ? nan_of<T>() : min<T, ftz>(a, b);
}
template <class T, bool ftz = false> inline T max_nan(T a, T b) {
    return is_nan(a) || is_nan(b) ? nan_of<T>() : max<T, ftz>(a, b);
}

template <class T, bool ftz = false> inline T abs(T a) {
    return settle(flush<ftz>(from_bits<T>(magnitude(a))), a);
}
template <class T, bool ftz = false> inline T neg(T a) {
    return settle(flush<ftz>(negative_of(a)), a);
}
// Returns `b` with the sign of `a`.
template <class T> inline T copysign(T a, T b) {
    return from_bits<T>(Bits<T>((to_bits(a) & Format<T>::sign) | magnitude(b)));
}
// Sets the sign of the result of min.xorsign.abs or max.xorsign.abs to the sign of `a * b`.
template <class T> inline T xorsign(T result, T a, T b) {
    Bits<T> sign = (to_bits(a) ^ to_bits(b)) & Format<T>::sign;
    return is_nan(result) ? result : from_bits<T>(Bits<T>(magnitude(result) | sign));
}
template <class T, bool ftz = false, bool nan = false> inline T min_xorsign_abs(T a, T b) {
    T x = abs(a), y = abs(b);
    return xorsign(nan ? min_nan<T, ftz>(x, y) : min<T, ftz>(x, y), a, b);
}
template <class T, bool ftz = false, bool nan = false> inline T max_xorsign_abs(T a, T b) {
    T x = abs(a), y = abs(b);
    return xorsign(nan ? max_nan<T, ftz>(x, y) : max<T, ftz>(x, y), a, b);
}

enum class Comparison : uint8_t {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge, // if an operand is a NaN, Eq to Ge are false
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu, // if an operand is a NaN, Equ to Geu are true
    Num,
    Nan,
};
// Returns whether the comparison of a `set` or `setp` instruction is true. PTX's names lo, ls, hi
// and hs are Lt, Le, Gt and Ge of unsigned integers.
template <Comparison comparison, class T> inline bool holds(T x, T y) {
    switch (comparison) {
    case Comparison::Eq:
        return x == y;
    case Comparison::Ne:
        return x < y || x > y;
    case Comparison::Lt:
        return x < y;
    case Comparison::Le:
        return x <= y;
    case Comparison::Gt:
        return x > y;
    case Comparison::Ge:
        return x >= y;
    case Comparison::Equ:
        return !(x < y || x > y);
    case Comparison::Neu:
        return !(x == y);
    case Comparison::Ltu:
        return !(x >= y);
    case Comparison::Leu:
        return !(x > y);
    case Comparison::Gtu:
        return !(x <= y);
    case Comparison::Geu:
        return !(x < y);
    case Comparison::Num:
        return x == x && y == y;
    case Comparison::Nan:
        return x != x || y != y;
    }
    return false;
}
template <Comparison comparison, bool ftz = false, class T> inline bool compare(T a, T b) {
    if constexpr (std::is_integral_v<T>)
        return holds<comparison>(a, b);
    else
        return holds<comparison>(widen(flush<ftz>(a)), widen(flush<ftz>(b)));
}

// Returns true if `slct` with this `c` selects its first operand. The second operand is selected if
// `c` is negative or a NaN; -0 counts as 0.
inline bool chooses_first(int32_t c) { return c >= 0; }
template <bool ftz = false> inline bool chooses_first(float c) { return flush<ftz>(c) >= 0; }

enum class Class : uint8_t { Finite, Infinite, Number, NotANumber, Normal, Subnormal };
// Returns whether a number has the property that the testp instruction tests.
template <Class wanted, class T> inline bool is(T a) {
    Bits<T> rest = magnitude(a), smallest_normal = Bits<T>(1) << Format<T>::mantissa;
    switch (wanted) {
    case Class::Finite:
        return rest < Format<T>::infinity;
    case Class::Infinite:
        return rest == Format<T>::infinity;
    case Class::Number:
        return rest <= Format<T>::infinity;
    case Class::NotANumber:
        return rest > Format<T>::infinity;
    case Class::Normal:
        // As on a GPU, zero counts as a normal number.
        return rest == 0 || (rest >= smallest_normal && rest < Format<T>::infinity);
    case Class::Subnormal:
        return rest != 0 && rest < smallest_normal;
    }
    return false;
}

} // namespace soft::ptx::floating
