#pragma once

#include "ptx/arithmetic_integer.h"

// This header has the bit operations of one lane: shifts, lookup tables, bit fields, counts,
// permutations of bytes.

namespace soft::ptx::integer {

// Shifts. An amount beyond the width of T counts as the width. For shl, shr.b and shr.u, T must be
// unsigned.
template <class T> inline T shl(T a, uint32_t amount) {
    return amount < bits_of<T> ? T(Wrapping<T>(a) << (amount & (bits_of<T> - 1))) : T(0);
}
template <class T> inline T shr(T a, uint32_t amount) {
    if (std::is_signed_v<T>)
        return T(a >> (amount < bits_of<T> ? amount : bits_of<T> - 1));
    return amount < bits_of<T> ? T(a >> (amount & (bits_of<T> - 1))) : T(0);
}

// Funnel shifts, which shift the 64-bit value with the upper half `b` and the lower half `a`.
inline uint32_t funnel_amount(uint32_t c, bool wrap) { return wrap ? c & 31 : c < 32 ? c : 32; }
inline uint32_t shf_l(uint32_t a, uint32_t b, uint32_t c, bool wrap) {
    uint64_t both = uint64_t(b) << 32 | a;
    return uint32_t((both << funnel_amount(c, wrap)) >> 32);
}
inline uint32_t shf_r(uint32_t a, uint32_t b, uint32_t c, bool wrap) {
    uint64_t both = uint64_t(b) << 32 | a;
    return uint32_t(both >> funnel_amount(c, wrap));
}

template <class T> inline T cnot(T a) { return T(a == 0); }

// Looks up each bit of the result in `table`. The index is 4 * i + 2 * j + k, where i, j and k are
// the bits of `a`, `b` and `c` at this position.
inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    for (uint32_t i = 0; i < 8; i++)
        result |= (0u - (table >> i & 1)) & (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}

template <class T> inline T low_mask(uint32_t length) { return T(shl(T(1), length) - 1); }

// Extracts a bit field. Only the lowest byte of `position` and of `length` counts.
template <class T> inline T bfe(T a, uint32_t position, uint32_t length) {
    using U = Unsigned<T>;
    position &= 0xff, length &= 0xff;
    uint32_t last = position + length - 1;
    last = last < bits_of<T> ? last : bits_of<T> - 1;
    bool sign = std::is_signed_v<T> && length != 0 && (U(a) >> last & 1);
    U field = U(low_mask<U>(length) & shr(U(-1), position));
    return T((shr(U(a), position) & field) | (sign ? U(~field) : U(0)));
}
template <class U> inline U bfi(U a, U b, uint32_t position, uint32_t length) {
    position &= 0xff, length &= 0xff;
    U field = shl(low_mask<U>(length), position);
    return U((b & ~field) | (shl(a, position) & field));
}

template <class U> inline uint32_t popc(U a) { return uint32_t(__builtin_popcountll(a)); }
template <class U> inline uint32_t clz(U a) {
    return a ? uint32_t(__builtin_clzll(a)) - (64 - bits_of<U>) : bits_of<U>;
}
template <class U> inline U brev(U a) {
    uint64_t x = a;
    x = (x >> 1 & 0x5555555555555555) | (x & 0x5555555555555555) << 1;
    x = (x >> 2 & 0x3333333333333333) | (x & 0x3333333333333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f0f0f0f0f) | (x & 0x0f0f0f0f0f0f0f0f) << 4;
    return U(__builtin_bswap64(x) >> (64 - bits_of<U>));
}

// Returns the position of the highest set bit. For a signed type, returns the position of the
// highest bit that differs from the sign. Returns all ones if there is no such bit.
template <class T> inline uint32_t bfind(T a) {
    using U = Unsigned<T>;
    return bits_of<T> - 1 - clz(U(a < 0 ? ~a : a));
}
// Returns by how many bits a left shift must move the bit that bfind() finds, so that it becomes
// the highest bit. Returns all ones if there is no such bit.
template <class T> inline uint32_t bfind_shiftamt(T a) {
    uint32_t found = bfind(a);
    return found == ~0u ? found : bits_of<T> - 1 - found;
}

// Returns the position of the offset-th set bit of the mask, counted from `base`, or backwards if
// `offset` is negative. Returns all ones if there is no such bit.
inline uint32_t fns(uint32_t mask, uint32_t base, int32_t offset) {
    int64_t left = offset < 0 ? -int64_t(offset) : offset;
    if (offset == 0)
        return base < 32 && (mask >> base & 1) ? base : ~0u;
    for (int64_t at = base; at >= 0 && at < 32; at += offset > 0 ? 1 : -1)
        if ((mask >> at & 1) && --left == 0)
            return uint32_t(at);
    return ~0u;
}

// Permutes bytes. Each of the four lower hexadecimal digits of `selector` selects a byte of the
// 64-bit value with the upper half `b` and the lower half `a`. If bit 3 of a digit is set, the
// result contains the sign bit of the byte, eight times.
inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t both = uint64_t(b) << 32 | a;
    uint32_t result = 0;
    for (unsigned i = 0; i < 4; i++) {
        uint32_t digit = selector >> (4 * i) & 0xf;
        uint32_t byte = uint32_t(both >> (8 * (digit & 7))) & 0xff;
        uint32_t sign = byte & 0x80 ? 0xff : 0;
        result |= (digit & 8 ? sign : byte) << (8 * i);
    }
    return result;
}
enum class Permutation : uint8_t { Index, F4e, B4e, Rc8, Ecl, Ecr, Rc16 };
// Returns the selector for a mode of `prmt`, in which `c` selects one of four permutations.
inline uint32_t prmt_selector(Permutation mode, uint32_t c) {
    static constexpr uint16_t table[7][4] = {
        {},
        {0x3210, 0x4321, 0x5432, 0x6543}, // f4e: forward 4 extract
        {0x5670, 0x6701, 0x7012, 0x0123}, // b4e: backward 4 extract
        {0x0000, 0x1111, 0x2222, 0x3333}, // rc8: replicate a byte
        {0x3210, 0x3211, 0x3222, 0x3333}, // ecl: edge clamp left
        {0x0000, 0x1110, 0x2210, 0x3210}, // ecr: edge clamp right
        {0x1010, 0x3232, 0x1010, 0x3232}, // rc16: replicate a half
    };
    return mode == Permutation::Index ? c : table[int(mode)][c & 3];
}

// Keeps the lowest `width` bits of `a`, and extends them by the sign (T is int32_t) or by zeros (T
// is uint32_t).
template <class T> inline uint32_t szext(uint32_t a, uint32_t width, bool wrap) {
    uint32_t kept = wrap || width < 32 ? low_mask<uint32_t>(width & 31) : ~0u;
    uint32_t sign = a & (kept ^ kept >> 1);
    return (a & kept) | (std::is_signed_v<T> && sign ? ~kept : 0);
}
// Returns a number in which `width` bits are set, from bit `start` upwards.
inline uint32_t bmsk(uint32_t start, uint32_t width, bool wrap) {
    if (wrap)
        start &= 31, width &= 31;
    return shl(low_mask<uint32_t>(width), start);
}

} // namespace soft::ptx::integer
