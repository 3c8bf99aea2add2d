#include "ptx/atomic.h"

#include "ptx/access.h"
#include "ptx/arithmetic_float.h"
#include "ptx/arithmetic_integer.h"
#include "ptx/decode_arithmetic.h"

#include <cstring>
#include <utility>

// This file decodes and runs the instructions atom and red. Instructions of vectors become a step
// for each item.

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
// Updates the item at `place` by an operation and the item at `operand`.
template <class T, auto operation>
void update_item(char *place, const char *operand, uint64_t &changes) {
    T b;
    memcpy(&b, operand, sizeof b);
    replace<T, operation>(place, false, changes, b);
}

// The functions below look up an atomic operation. The result is the handler of a step for a width
// of addresses, or a function that updates one item. The two halves of a pair such as f16x2 are
// updated in one atomic operation, although PTX allows two.
struct OfSteps {
    using Result = Handler;
    size_t address;
    template <class T, auto operation, int sources = 1> Handler of() const {
        return address == 4 ? update<T, uint32_t, operation, sources>
                            : update<T, uint64_t, operation, sources>;
    }
};
struct OfItems {
    using Result = UpdateItem;
    template <class T, auto operation> UpdateItem of() const { return update_item<T, operation>; }
};

// Applies an operation to both halves of the operands.
template <class T, T operation(T, T)> uint32_t halves(uint32_t a, uint32_t b) {
    uint32_t low = operation(T{uint16_t(a)}, T{uint16_t(b)}).bits;
    return low | uint32_t(operation(T{uint16_t(a >> 16)}, T{uint16_t(b >> 16)}).bits) << 16;
}

template <class Select> typename Select::Result addition(Type type, Select select) {
    switch (type) {
    case Type::F32:
        return select.template of<float, add_float>();
    case Type::F64:
        return select.template of<double, add_double>();
    case Type::F16:
        return select.template of<Half, add_half<Half>>();
    case Type::BF16:
        return select.template of<Bfloat, add_half<Bfloat>>();
    case Type::F16x2:
        return select.template of<uint32_t, halves<Half, add_half<Half>>>();
    case Type::BF16x2:
        return select.template of<uint32_t, halves<Bfloat, add_half<Bfloat>>>();
    case Type::U32:
    case Type::S32:
        return select.template of<uint32_t, integer::add<uint32_t>>();
    case Type::U64:
    case Type::S64:
        return select.template of<uint64_t, integer::add<uint64_t>>();
    default:
        return nullptr;
    }
}

template <bool greatest, class T> T extreme_integer(T a, T b) {
    return greatest ? integer::max<T>(a, b) : integer::min<T>(a, b);
}
template <bool greatest, class Select> typename Select::Result extreme(Type type, Select select) {
    switch (type) {
    case Type::U32:
        return select.template of<uint32_t, extreme_integer<greatest, uint32_t>>();
    case Type::S32:
        return select.template of<int32_t, extreme_integer<greatest, int32_t>>();
    case Type::U64:
        return select.template of<uint64_t, extreme_integer<greatest, uint64_t>>();
    case Type::S64:
        return select.template of<int64_t, extreme_integer<greatest, int64_t>>();
    default:
        return nullptr;
    }
}

// Calls `choose` with the unsigned type for B32 or B64. Other types have no result.
template <class Choose> auto of_bits(Type type, Choose choose) {
    return type == Type::B32   ? choose(uint32_t())
           : type == Type::B64 ? choose(uint64_t())
                               : nullptr;
}

template <class Select>
typename Select::Result select_reduction(Operation operation, Type type, Select select) {
    switch (operation) {
    case Operation::Add:
        return addition(type, select);
    case Operation::Min:
        return extreme<false>(type, select);
    case Operation::Max:
        return extreme<true>(type, select);
    case Operation::And:
        return of_bits(type, [select](auto zero) {
            return select.template of<decltype(zero), bit_and<decltype(zero)>>();
        });
    case Operation::Or:
        return of_bits(type, [select](auto zero) {
            return select.template of<decltype(zero), bit_or<decltype(zero)>>();
        });
    case Operation::Xor:
        return of_bits(type, [select](auto zero) {
            return select.template of<decltype(zero), bit_xor<decltype(zero)>>();
        });
    case Operation::Inc:
        return type == Type::U32 ? select.template of<uint32_t, increment>() : nullptr;
    case Operation::Dec:
        return type == Type::U32 ? select.template of<uint32_t, decrement>() : nullptr;
    default:
        return nullptr;
    }
}

Handler handler_of(Operation operation, Type type, size_t address) {
    const OfSteps select{address};
    if (operation == Operation::Exch)
        return of_bits(type, [select](auto zero) {
            return select.of<decltype(zero), exchange<decltype(zero)>>();
        });
    if (operation != Operation::Cas)
        return select_reduction(operation, type, select);
    if (type == Type::B16)
        return select.of<uint16_t, exchange_if<uint16_t>, 2>();
    return of_bits(type, [select](auto zero) {
        return select.of<decltype(zero), exchange_if<decltype(zero)>, 2>();
    });
}

// min and max of 16-bit numbers, which only instructions of vectors and copies have.
template <bool greatest, class T> T extreme_half(T a, T b) {
    return greatest ? floating::max<T>(a, b) : floating::min<T>(a, b);
}
template <bool greatest, class Select>
typename Select::Result extreme_of_halves(Type type, Select select) {
    switch (type) {
    case Type::F16:
        return select.template of<Half, extreme_half<greatest, Half>>();
    case Type::BF16:
        return select.template of<Bfloat, extreme_half<greatest, Bfloat>>();
    case Type::F16x2:
        return select.template of<uint32_t, halves<Half, extreme_half<greatest, Half>>>();
    case Type::BF16x2:
        return select.template of<uint32_t, halves<Bfloat, extreme_half<greatest, Bfloat>>>();
    default:
        return nullptr;
    }
}

Handler handler_of_vector(Operation operation, Type type, size_t count, size_t address) {
    const OfSteps select{address};
    if (count * size_of(type) > 16)
        return nullptr;
    if (operation == Operation::Add && is_float(type) && type != Type::F64)
        return addition(type, select);
    return operation == Operation::Min   ? extreme_of_halves<false>(type, select)
           : operation == Operation::Max ? extreme_of_halves<true>(type, select)
                                         : nullptr;
}

// Checks that all bytes of the vectors can be accessed and that they are aligned. The size of a
// vector in bytes is in rows[1].
template <class A> void reach_vectors(Warp &warp, const Step &step) {
    Access access{warp, step, Space(step.detail), Use::Atomic};
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t address = uint64_t(warp.row<A>(step.rows[9])[lane]) + uint64_t(step.offset);
        if (!access.reach_or_fail(lane, address, step.rows[1]))
            return;
    }
}

template <class T> T copy_of(T a) { return a; }

// Decodes an instruction of vectors. The results are moved to their registers at the end, because
// these registers may also be operands.
template <bool reduces>
void decode_vector(Decoder &decoder, Operation operation, Type type, size_t count) {
    constexpr size_t next = reduces ? 0 : 1;
    decoder.expect_operands(next + 2, next + 3); // a cache policy may follow
    const std::vector<Operand> &values = decoder.operand(next + 1).parts;
    const std::vector<Operand> &results = decoder.operand(0).parts;
    if (values.size() != count || (!reduces && results.size() != count))
        decoder.refuse("the vector does not have as many items as the modifier says");
    size_t bytes = size_of(type), address = decoder.address(decoder.operand(next));
    Handler handler = handler_of_vector(operation, type, count, address);
    const Row addresses = decoder.step.rows[9];
    Effect each = std::exchange(decoder.effect, {});
    each.address_bytes = uint8_t(address);
    decoder.step.rows[1] = Row(count * bytes);
    decoder.emit(address == 4 ? reach_vectors<uint32_t> : reach_vectors<uint64_t>);
    std::vector<Row> befores;
    for (const Operand &value : values) {
        befores.push_back(decoder.temporary(bytes));
        decoder.step.rows[0] = befores.back();
        decoder.step.rows[1] = decoder.source(value, type);
        decoder.effect = each;
        decoder.emit(handler);
        decoder.step.offset = int64_t(uint64_t(decoder.step.offset) + bytes);
        decoder.step.rows[9] = addresses;
    }
    for (size_t i = 0; i < (reduces ? 0 : count); i++) {
        decoder.step.rows[0] = decoder.destination(results[i], type);
        decoder.step.rows[1] = befores[i];
        decoder.emit(bytes == 2 ? lanes<copy_of<uint16_t>> : lanes<copy_of<uint32_t>>);
    }
}

// Takes the modifiers for ordering: at most one memory order, and at most one scope.
void take_order(Decoder &decoder) {
    int order = decoder.take_any({"relaxed", "acquire", "release", "acq_rel"});
    decoder.effect.kind = Effect::Kind::Update;
    decoder.effect.strong = true;
    decoder.effect.acquires = order == 1 || order == 3;
    decoder.effect.releases = order == 2 || order == 3;
    decoder.effect.scope = take_scope(decoder);
}

template <bool reduces> void decode_atomic(Decoder &decoder) {
    take_order(decoder);
    decoder.take("L2::cache_hint");
    bool subnormals = decoder.take("noftz");
    int vector = decoder.take_any({"v2", "v4", "v8"});
    int space = decoder.take_any({"global", "shared", "shared::cta", "shared::cluster"});
    int operation =
        decoder.take_any({"add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas"});
    Type type = decoder.take_type();
    if (operation < 0 || (reduces && operation >= int(Operation::Exch)))
        decoder.refuse("the operation is unknown");
    if (subnormals && (!is_float(type) || type == Type::F32 || type == Type::F64))
        decoder.refuse(".noftz is for 16-bit floating-point types");
    Space where = space < 0 ? Space::Generic : space == 0 ? Space::Global : Space::Shared;
    const Operand &place = decoder.operand(reduces ? 0 : 1);
    if (place.kind == Operand::Kind::Memory)
        if (const Variable *variable = decoder.named(place.parts.at(0)))
            where = decoder.space_of(*variable, where);
    decoder.step.detail = uint16_t(where);
    decoder.effect.space = where;
    decoder.effect.item_bytes = uint8_t(size_of(type));
    bool looks = !reduces && decoder.is_read(decoder.operand(0));
    decoder.effect.blind = !looks;
    if (where != Space::Shared && (looks || !commutes(Operation(operation), type)))
        decoder.code().communicates = true;
    if (vector >= 0 && where == Space::Shared)
        decoder.refuse("vectors must be in global memory");
    if (vector >= 0)
        return decode_vector<reduces>(decoder, Operation(operation), type, size_t{2} << vector);
    size_t sources = operation == int(Operation::Cas) ? 2 : 1, next = reduces ? 0 : 1;
    // The operand after the sources is an optional cache policy.
    decoder.expect_operands(next + 1 + sources, next + 2 + sources);
    decoder.step.rows[0] =
        reduces ? decoder.temporary(size_of(type)) : decoder.destination(decoder.operand(0), type);
    size_t address = decoder.address(decoder.operand(next));
    for (size_t i = 1; i <= sources; i++)
        decoder.step.rows[i] = decoder.source(decoder.operand(next + i), type);
    decoder.effect.address_bytes = uint8_t(address);
    decoder.emit(handler_of(Operation(operation), type, address));
}

} // namespace

UpdateItem item_update(Operation operation, Type type) {
    const OfItems select;
    bool half = type == Type::F16 || type == Type::BF16;
    if (half && operation == Operation::Min)
        return extreme_of_halves<false>(type, select);
    if (half && operation == Operation::Max)
        return extreme_of_halves<true>(type, select);
    return select_reduction(operation, type, select);
}

bool commutes(Operation operation, Type type) {
    return operation <= Operation::Xor && (!is_float(type) || operation != Operation::Add);
}

void add_atomics(Opcodes &opcodes) {
    opcodes["atom"] = decode_atomic<false>;
    opcodes["red"] = decode_atomic<true>;
}

} // namespace soft::ptx
