#include "ptx/access.h"
#include "ptx/arithmetic_float.h"
#include "ptx/arithmetic_integer.h"
#include "ptx/decode_arithmetic.h"

#include <cstring>

// This file decodes and runs the instructions atom and red.

namespace soft::ptx {

namespace {

using floating::Bfloat;
using floating::Half;

// The unsigned integer type of the same size as T, for comparing and exchanging bits.
template <class T>
using Cell = std::conditional_t<sizeof(T) == 2, uint16_t,
                                std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

template <class T, class From> T as(From from) {
    static_assert(sizeof(T) == sizeof(From));
    T to;
    memcpy(&to, &from, sizeof to);
    return to;
}

// Atomically replaces the value x at `place` by operation(x, b...), and returns x. In shared memory
// (`private_to_block`) no other thread can change x at the same time, so a plain load and store are
// enough.
template <class T, auto operation, class... B>
T replace(char *place, bool private_to_block, uint64_t &changes, B... b) {
    auto *cell = reinterpret_cast<Cell<T> *>(place);
    Cell<T> before = __atomic_load_n(cell, __ATOMIC_RELAXED), after;
    if (private_to_block) {
        after = as<Cell<T>>(operation(as<T>(before), b...));
        __atomic_store_n(cell, after, __ATOMIC_RELAXED);
    } else
        do
            after = as<Cell<T>>(operation(as<T>(before), b...));
        while (!__atomic_compare_exchange_n(cell, &before, after, true, __ATOMIC_SEQ_CST,
                                            __ATOMIC_RELAXED));
    changes += before != after;
    return as<T>(before);
}

// The handler of atom and red. rows[9] has the addresses, rows[1] and rows[2] have the operands,
// and rows[0] receives the old values.
template <class T, class A, auto operation, int sources> void update(Warp &warp, const Step &step) {
    Access access{warp, step, Space(step.detail), Use::Atomic};
    const A *addresses = warp.row<A>(step.rows[9]);
    const T *b = warp.row<T>(step.rows[1]), *c = warp.row<T>(step.rows[2]);
    T *result = warp.row<T>(step.rows[0]);
    bool shared = access.space == Space::Shared;
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t address = uint64_t(addresses[lane]) + uint64_t(step.offset);
        char *place = access.reach_or_fail(unsigned(lane), address, sizeof(T));
        if (!place)
            return;
        if constexpr (sources == 1)
            result[lane] = replace<T, operation>(place, shared, warp.machine.progress, b[lane]);
        else
            result[lane] =
                replace<T, operation>(place, shared, warp.machine.progress, b[lane], c[lane]);
    }
}

template <class T> T exchange(T, T b) { return b; }
template <class T> T exchange_if(T a, T b, T c) { return a == b ? c : a; }
template <class T> T bit_and(T a, T b) { return T(a & b); }
template <class T> T bit_or(T a, T b) { return T(a | b); }
template <class T> T bit_xor(T a, T b) { return T(a ^ b); }
uint32_t increment(uint32_t a, uint32_t b) { return a >= b ? 0 : a + 1; }
uint32_t decrement(uint32_t a, uint32_t b) { return a == 0 || a > b ? b : a - 1; }
float add_float(float a, float b) { return floating::add<float>(a, b); }
double add_double(double a, double b) { return floating::add<double>(a, b); }
template <class T> T add_half(T a, T b) { return floating::add<T>(a, b); }
template <class T> uint32_t add_halves(uint32_t a, uint32_t b) {
    uint32_t low = add_half(T{uint16_t(a)}, T{uint16_t(b)}).bits;
    return low | uint32_t(add_half(T{uint16_t(a >> 16)}, T{uint16_t(b >> 16)}).bits) << 16;
}
// Selects a handler by the width of addresses. The two halves of a pair such as f16x2 are updated
// in one atomic operation. PTX would allow two.
template <class T, auto operation, int sources = 1> Handler with_address(size_t address) {
    return address == 4 ? update<T, uint32_t, operation, sources>
                        : update<T, uint64_t, operation, sources>;
}

Handler addition(Type type, size_t address) {
    switch (type) {
    case Type::F32:
        return with_address<float, add_float>(address);
    case Type::F64:
        return with_address<double, add_double>(address);
    case Type::F16:
        return with_address<Half, add_half<Half>>(address);
    case Type::BF16:
        return with_address<Bfloat, add_half<Bfloat>>(address);
    case Type::F16x2:
        return with_address<uint32_t, add_halves<Half>>(address);
    case Type::BF16x2:
        return with_address<uint32_t, add_halves<Bfloat>>(address);
    case Type::U32:
    case Type::S32:
        return with_address<uint32_t, integer::add<uint32_t>>(address);
    case Type::U64:
    case Type::S64:
        return with_address<uint64_t, integer::add<uint64_t>>(address);
    default:
        return nullptr;
    }
}

template <bool greatest> Handler extreme(Type type, size_t address) {
    if (is_bits(type) || size_of(type) < 4)
        return nullptr;
    return by_integer(type, [address](auto zero) -> Handler {
        using T = decltype(zero);
        if constexpr (greatest)
            return with_address<T, integer::max<T>>(address);
        else
            return with_address<T, integer::min<T>>(address);
    });
}

// Calls `choose` with the unsigned type for B32 or B64, to select a handler. Other types have no
// handler.
template <class Choose> Handler of_bits(Type type, Choose choose) {
    return type == Type::B32   ? choose(uint32_t())
           : type == Type::B64 ? choose(uint64_t())
                               : nullptr;
}

// The operations, in the order of the names in decode_atomic().
enum class Operation { Add, Min, Max, And, Or, Xor, Inc, Dec, Exch, Cas };

Handler handler_of(Operation operation, Type type, size_t address) {
    switch (operation) {
    case Operation::Add:
        return addition(type, address);
    case Operation::Min:
        return extreme<false>(type, address);
    case Operation::Max:
        return extreme<true>(type, address);
    case Operation::And:
        return of_bits(type, [address](auto zero) -> Handler {
            return with_address<decltype(zero), bit_and<decltype(zero)>>(address);
        });
    case Operation::Or:
        return of_bits(type, [address](auto zero) -> Handler {
            return with_address<decltype(zero), bit_or<decltype(zero)>>(address);
        });
    case Operation::Xor:
        return of_bits(type, [address](auto zero) -> Handler {
            return with_address<decltype(zero), bit_xor<decltype(zero)>>(address);
        });
    case Operation::Inc:
        return type == Type::U32 ? with_address<uint32_t, increment>(address) : nullptr;
    case Operation::Dec:
        return type == Type::U32 ? with_address<uint32_t, decrement>(address) : nullptr;
    case Operation::Exch:
        return of_bits(type, [address](auto zero) -> Handler {
            return with_address<decltype(zero), exchange<decltype(zero)>>(address);
        });
    case Operation::Cas:
        if (type == Type::B16)
            return with_address<uint16_t, exchange_if<uint16_t>, 2>(address);
        return of_bits(type, [address](auto zero) -> Handler {
            return with_address<decltype(zero), exchange_if<decltype(zero)>, 2>(address);
        });
    }
    return nullptr;
}

template <bool reduces> void decode_atomic(Decoder &decoder) {
    decoder.take_all({"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys"});
    decoder.take_all({"noftz", "L2::cache_hint"});
    int space = decoder.take_any({"global", "shared", "shared::cta"});
    int operation =
        decoder.take_any({"add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas"});
    Type type = decoder.take_type();
    if (operation < 0 || (reduces && operation >= int(Operation::Exch)))
        decoder.refuse("the operation is unknown");
    size_t sources = operation == int(Operation::Cas) ? 2 : 1, next = reduces ? 0 : 1;
    // The operand after the sources is an optional cache policy.
    decoder.expect_operands(next + 1 + sources, next + 2 + sources);
    decoder.step.rows[0] =
        reduces ? decoder.temporary(size_of(type)) : decoder.destination(decoder.operand(0), type);
    size_t address = decoder.address(decoder.operand(next));
    for (size_t i = 1; i <= sources; i++)
        decoder.step.rows[i] = decoder.source(decoder.operand(next + i), type);
    decoder.step.detail = uint16_t(space < 0    ? Space::Generic
                                   : space == 0 ? Space::Global
                                                : Space::Shared);
    decoder.emit(handler_of(Operation(operation), type, address));
}

} // namespace

void add_atomics(Opcodes &opcodes) {
    opcodes["atom"] = decode_atomic<false>;
    opcodes["red"] = decode_atomic<true>;
}

} // namespace soft::ptx
