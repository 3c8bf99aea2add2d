#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

// This header has the integer operations of one lane: add, sub, mul, div, rem and so on, and the
// operations with a carry. Each operation supports all widths that PTX defines for it. None traps,
// branches on data, or has undefined behaviour.

namespace soft::ptx::integer {

template <class T> constexpr unsigned bits_of = 8 * sizeof(T);
template <class T> using Unsigned = std::make_unsigned_t<T>;
// The type in which sums and products are computed. It is unsigned, so that they wrap, and has at
// least 32 bits, because C++ promotes narrower types to int.
template <class T> using Wrapping = std::conditional_t<(sizeof(T) < 4), uint32_t, Unsigned<T>>;

template <size_t bytes, bool is_signed> struct Integer;
template <> struct Integer<2, false> {
    using Type = uint16_t;
};
template <> struct Integer<2, true> {
    using Type = int16_t;
};
template <> struct Integer<4, false> {
    using Type = uint32_t;
};
template <> struct Integer<4, true> {
    using Type = int32_t;
};
template <> struct Integer<8, false> {
    using Type = uint64_t;
};
template <> struct Integer<8, true> {
    using Type = int64_t;
};
template <> struct Integer<16, false> {
    using Type = unsigned __int128;
};
template <> struct Integer<16, true> {
    using Type = __int128;
};
// The integer type that has twice the width and the same signedness.
template <class T> using Wide = typename Integer<2 * sizeof(T), std::is_signed_v<T>>::Type;

template <class T> constexpr T lowest = std::numeric_limits<T>::min();
template <class T> constexpr T highest = std::numeric_limits<T>::max();

template <class T> inline T add(T a, T b) { return T(Wrapping<T>(a) + Wrapping<T>(b)); }
template <class T> inline T sub(T a, T b) { return T(Wrapping<T>(a) - Wrapping<T>(b)); }
template <class T> inline T mul_lo(T a, T b) { return T(Wrapping<T>(a) * Wrapping<T>(b)); }
template <class T> inline Wide<T> mul_wide(T a, T b) { return Wide<T>(Wide<T>(a) * Wide<T>(b)); }
template <class T> inline T mul_hi(T a, T b) { return T(mul_wide(a, b) >> bits_of<T>); }

// `add` and `sub` with .sat, which PTX defines for s32. A result out of range becomes the nearest
// number that s32 can represent.
inline int32_t add_sat(int32_t a, int32_t b) {
    uint32_t ua = uint32_t(a), ub = uint32_t(b), sum = ua + ub;
    bool over = int32_t((sum ^ ua) & (sum ^ ub)) < 0;
    return int32_t(over ? (ua >> 31) + 0x7fffffffu : sum);
}
inline int32_t sub_sat(int32_t a, int32_t b) {
    uint32_t ua = uint32_t(a), ub = uint32_t(b), difference = ua - ub;
    bool over = int32_t((ua ^ ub) & (difference ^ ua)) < 0;
    return int32_t(over ? (ua >> 31) + 0x7fffffffu : difference);
}

template <class T> inline T mad_lo(T a, T b, T c) { return add(mul_lo(a, b), c); }
template <class T> inline T mad_hi(T a, T b, T c) { return add(mul_hi(a, b), c); }
template <class T> inline Wide<T> mad_wide(T a, T b, Wide<T> c) { return add(mul_wide(a, b), c); }
inline int32_t mad_hi_sat(int32_t a, int32_t b, int32_t c) { return add_sat(mul_hi(a, b), c); }

// `mul24` and `mad24` use only the lower 24 bits of the operands.
inline uint32_t low24(uint32_t a) { return a & 0xffffff; }
inline int32_t low24(int32_t a) { return int32_t(uint32_t(a) << 8) >> 8; }
template <class T> inline T mul24_lo(T a, T b) { return mul_lo(low24(a), low24(b)); }
template <class T> inline T mul24_hi(T a, T b) { return T(mul_wide(low24(a), low24(b)) >> 16); }
template <class T> inline T mad24_lo(T a, T b, T c) { return add(mul24_lo(a, b), c); }
template <class T> inline T mad24_hi(T a, T b, T c) { return add(mul24_hi(a, b), c); }
inline int32_t mad24_hi_sat(int32_t a, int32_t b, int32_t c) { return add_sat(mul24_hi(a, b), c); }

template <class T> inline T sad(T a, T b, T c) { return add(c, a < b ? sub(b, a) : sub(a, b)); }

// Divides as a GPU does. PTX does not define division by zero; on GPUs all bits of the quotient and
// of the remainder are then set. Divisors 0 and -1 can trap in C++, so the division uses 1 instead.
// For -1 the quotient is then negated; the lowest number divided by -1 is the lowest number.
template <class T> inline T div(T a, T b) {
    bool trap = std::is_signed_v<T> && b == T(-1);
    T quotient = T(a / (trap || b == 0 ? T(1) : b));
    return b == 0 ? T(-1) : trap ? sub(T(0), a) : quotient;
}
template <class T> inline T rem(T a, T b) {
    bool trap = std::is_signed_v<T> && b == T(-1);
    T remainder = T(a % (trap || b == 0 ? T(1) : b));
    return b == 0 ? T(-1) : remainder;
}

template <class T> inline T min(T a, T b) { return a < b ? a : b; }
template <class T> inline T max(T a, T b) { return a < b ? b : a; }
template <class T> inline T relu(T a) { return a < 0 ? T(0) : a; }
template <class T> inline T neg(T a) { return sub(T(0), a); }
template <class T> inline T abs(T a) { return a < 0 ? neg(a) : a; }

// Applies an operation to both 16-bit halves of the operands, as add.u16x2 does.
template <class T, T operation(T, T)> inline uint32_t halves(uint32_t a, uint32_t b) {
    uint32_t low = uint16_t(operation(T(a), T(b)));
    return low | uint32_t(uint16_t(operation(T(a >> 16), T(b >> 16)))) << 16;
}

// Additions and subtractions with a carry. `carry` is the input carry and becomes the output carry.
// A subtraction adds the complement of `b`, as on a GPU: its carry says that there is no borrow.
template <class T> inline T add_carry(T a, T b, bool &carry) {
    using U = Unsigned<T>;
    U sum = U(U(a) + U(b)), all = U(sum + U(carry));
    carry = sum < U(a) || all < sum;
    return T(all);
}
template <class T> inline T sub_carry(T a, T b, bool &carry) { return add_carry(a, T(~b), carry); }
template <class T> inline T mad_lo_carry(T a, T b, T c, bool &carry) {
    return add_carry(mul_lo(a, b), c, carry);
}
template <class T> inline T mad_hi_carry(T a, T b, T c, bool &carry) {
    return add_carry(mul_hi(a, b), c, carry);
}

// Adds the products of corresponding bytes of `a` and `b` to `c`. A and B are the types of these
// bytes, int8_t or uint8_t.
template <class A, class B> inline uint32_t dp4a(uint32_t a, uint32_t b, uint32_t c) {
    for (int i = 0; i < 32; i += 8)
        c += uint32_t(int32_t(A(a >> i)) * int32_t(B(b >> i)));
    return c;
}
// Adds to `c` the products of the two halves of `a` and two bytes of `b`, which are in the upper
// half of `b` if `high` is set. A is a 16-bit integer type, and B an 8-bit type.
template <class A, class B> inline uint32_t dp2a(uint32_t a, uint32_t b, uint32_t c, bool high) {
    b = high ? b >> 16 : b;
    c += uint32_t(int32_t(A(a)) * int32_t(B(b)));
    return c + uint32_t(int32_t(A(a >> 16)) * int32_t(B(b >> 8)));
}

} // namespace soft::ptx::integer
