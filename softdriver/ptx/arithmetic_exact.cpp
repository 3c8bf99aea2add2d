#include "ptx/arithmetic_exact.h"

#include <cmath>
#include <utility>

namespace soft::ptx::floating {
namespace {

using Wide = unsigned __int128;

// A finite double, which equals significand * 2^exponent. The significand has 53 bits or is zero.
struct Parts {
    bool negative;
    int exponent;
    uint64_t significand;
};

Parts parts_of(double a) {
    uint64_t bits = magnitude(a), fraction = bits & ((uint64_t(1) << 52) - 1);
    if (bits == 0)
        return {is_negative(a), 0, 0};
    if (bits >> 52)
        return {is_negative(a), int(bits >> 52) - 1075, fraction | uint64_t(1) << 52};
    int lead = __builtin_clzll(fraction) - 11;
    return {is_negative(a), -1074 - lead, fraction << lead};
}

int leading_zeros(Wide a) {
    uint64_t high = uint64_t(a >> 64);
    return high ? __builtin_clzll(high) : 64 + __builtin_clzll(uint64_t(a));
}

// Shifts right. Sets the lowest bit of the result if the shift drops a set bit.
Wide shift_sticky(Wide a, int amount) {
    if (amount > 127)
        return a != 0;
    return a >> amount | ((a & ((Wide(1) << amount) - 1)) != 0);
}

double round_wide(bool negative, int exponent, Wide significand, Rounding rounding) {
    if (significand == 0)
        return round_to<double>(negative, 0, 0, rounding);
    int shift = 64 - leading_zeros(significand);
    uint64_t high = shift > 0 ? uint64_t(shift_sticky(significand, shift)) : uint64_t(significand);
    return round_to<double>(negative, exponent + (shift > 0 ? shift : 0), high, rounding);
}

struct Term {
    bool negative;
    int exponent;
    Wide significand;
};

// Shifts a term's significand so that its highest set bit is bit 125. The sum of two such terms
// cannot overflow.
Term aligned(Term term) {
    int shift = leading_zeros(term.significand) - 2;
    return {term.negative, term.exponent - shift, term.significand << shift};
}

// Adds two terms and rounds the sum once. The term with the smaller exponent is shifted right, and
// a sticky bit replaces the bits that it loses. The rounding is still correct. If the exponents
// differ by at most one, the shift loses no bit, because a term has at most 106 bits. Otherwise the
// sum keeps all bits that decide the rounding.
double round_sum(Term a, Term b, Rounding rounding) {
    if (a.significand == 0 && b.significand == 0) {
        bool negative =
            rounding == Rounding::Down ? a.negative || b.negative : a.negative && b.negative;
        return round_to<double>(negative, 0, 0, rounding);
    }
    if (a.significand == 0 || b.significand == 0) {
        const Term &only = a.significand == 0 ? b : a;
        return round_wide(only.negative, only.exponent, only.significand, rounding);
    }
    a = aligned(a), b = aligned(b);
    if (a.exponent < b.exponent || (a.exponent == b.exponent && a.significand < b.significand))
        std::swap(a, b);
    b.significand = shift_sticky(b.significand, a.exponent - b.exponent);
    if (a.negative == b.negative)
        return round_wide(a.negative, a.exponent, a.significand + b.significand, rounding);
    if (a.significand == b.significand)
        return round_to<double>(rounding == Rounding::Down, 0, 0, rounding);
    return round_wide(a.negative, a.exponent, a.significand - b.significand, rounding);
}

Term product(double a, double b) {
    Parts x = parts_of(a), y = parts_of(b);
    return {x.negative != y.negative, x.exponent + y.exponent, Wide(x.significand) * y.significand};
}

Term term(double a) {
    Parts parts = parts_of(a);
    return {parts.negative, parts.exponent, parts.significand};
}

uint64_t root(Wide a) {
    uint64_t result = 0;
    for (uint64_t bit = uint64_t(1) << 63; bit; bit >>= 1)
        if (Wide(result | bit) * (result | bit) <= a)
            result |= bit;
    return result;
}

} // namespace

double exact_sum(double a, double b, Rounding rounding) {
    if (!is_finite(a) || !is_finite(b))
        return a + b;
    return round_sum(term(a), term(b), rounding);
}

double exact_product(double a, double b, Rounding rounding) {
    if (!is_finite(a) || !is_finite(b))
        return a * b;
    Term exact = product(a, b);
    return round_wide(exact.negative, exact.exponent, exact.significand, rounding);
}

double exact_fma(double a, double b, double c, Rounding rounding) {
    if (!is_finite(a) || !is_finite(b) || !is_finite(c))
        return std::fma(a, b, c);
    return round_sum(product(a, b), term(c), rounding);
}

double exact_quotient(double a, double b, Rounding rounding) {
    if (!is_finite(a) || !is_finite(b) || a == 0 || b == 0)
        return a / b;
    Parts x = parts_of(a), y = parts_of(b);
    Wide dividend = Wide(x.significand) << 62;
    uint64_t quotient = uint64_t(dividend / y.significand);
    quotient |= dividend % y.significand != 0;
    return round_to<double>(x.negative != y.negative, x.exponent - y.exponent - 62, quotient,
                            rounding);
}

double exact_root(double a, Rounding rounding) {
    if (!(a > 0) || !is_finite(a))
        return std::sqrt(a);
    Parts parts = parts_of(a);
    int shift = parts.exponent & 1 ? 73 : 72; // the shift makes the exponent even
    Wide square = Wide(parts.significand) << shift;
    uint64_t found = root(square);
    found |= Wide(found) * found != square;
    return round_to<double>(false, (parts.exponent - shift) / 2, found, rounding);
}

} // namespace soft::ptx::floating
