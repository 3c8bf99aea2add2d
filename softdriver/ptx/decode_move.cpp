#include "ptx/decoder.h"
#include "ptx/families.h"
#include "ptx/lanes.h"
#include "ptx/machine.h"
#include "ptx/memory.h"
#include "ptx/special.h"

// This file decodes mov, cvta, isspacep, selp, activemask and nanosleep, and instructions that have
// no effect in this driver.

namespace soft::ptx {

namespace {

void move_predicate(Warp &warp, const Step &step) {
    warp.set_predicate(step.rows[0], warp.predicate(step.rows[1]));
}
template <class T> T select(T a, T b, bool first) { return first ? a : b; }

// The handler of mov.v2 and mov.v4: moves the values of rows[n] and the following rows to rows[0]
// and the following ones. All are read before the first is written.
template <class T, int n> void move_vector(Warp &warp, const Step &step) {
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        T values[n];
        for (int i = 0; i < n; i++)
            values[i] = warp.row<T>(step.rows[n + i])[lane];
        for (int i = 0; i < n; i++)
            warp.row<T>(step.rows[i])[lane] = values[i];
    }
}

template <class T> void read_now(Warp &warp, const Step &step) {
    auto *special = reinterpret_cast<const Special *>(step.offset);
    T *result = warp.row<T>(step.rows[0]);
    for (uint32_t left = warp.active; left; left &= left - 1)
        result[__builtin_ctz(left)] = T(special->now(warp.machine, warp));
}

void active_mask(Warp &warp, const Step &step) {
    uint32_t *result = warp.row<uint32_t>(step.rows[0]);
    for (uint32_t left = warp.active; left; left &= left - 1)
        result[__builtin_ctz(left)] = warp.active;
}

// Parts of 8 bits are in registers of 16 bits, whose upper half is ignored.
template <class Part> using Held = std::conditional_t<sizeof(Part) == 1, uint16_t, Part>;

// Packs the parts in rows[1], rows[2] and so on into rows[0], with the first part in the lowest
// bits.
template <class Whole, class Part> void pack(Warp &warp, const Step &step) {
    constexpr int count = sizeof(Whole) / sizeof(Part);
    Whole *result = warp.row<Whole>(step.rows[0]);
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        Whole whole = 0;
        for (int i = 0; i < count; i++)
            whole |= Whole(Whole(Part(warp.row<Held<Part>>(step.rows[1 + i])[lane]))
                           << (8 * sizeof(Part) * i));
        result[lane] = whole;
    }
}
template <class Whole, class Part> void unpack(Warp &warp, const Step &step) {
    constexpr int count = sizeof(Whole) / sizeof(Part);
    const Whole *source = warp.row<Whole>(step.rows[9]);
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        for (int i = 0; i < count; i++)
            warp.row<Held<Part>>(step.rows[i])[lane] = Part(source[lane] >> (8 * sizeof(Part) * i));
    }
}

template <class Whole, class Part> Handler mover(bool packs) {
    return packs ? pack<Whole, Part> : unpack<Whole, Part>;
}

// Returns the handler of a mov between a register and a vector, or null for wrong sizes.
Handler vector_mover(size_t whole, size_t count, bool packs) {
    if (whole == 2 && count == 2)
        return mover<uint16_t, uint8_t>(packs);
    if (whole == 4 && count == 2)
        return mover<uint32_t, uint16_t>(packs);
    if (whole == 4 && count == 4)
        return mover<uint32_t, uint8_t>(packs);
    if (whole == 8 && count == 2)
        return mover<uint64_t, uint32_t>(packs);
    if (whole == 8 && count == 4)
        return mover<uint64_t, uint16_t>(packs);
    return nullptr;
}

void decode_vector_move(Decoder &decoder, Type type, bool packs) {
    const Operand &vector = decoder.operand(packs ? 1 : 0);
    const Operand &whole = decoder.operand(packs ? 0 : 1);
    size_t count = vector.parts.size();
    Handler handler = nullptr;
    if (type == Type::B16 || type == Type::B32 || type == Type::B64)
        handler = vector_mover(size_of(type), count, packs);
    if (!handler)
        decoder.refuse("a vector of " + std::to_string(count) +
                       " does not have the size of this type");
    size_t bytes = size_of(type) / count;
    Type part = bytes == 4 ? Type::B32 : bytes == 2 ? Type::B16 : Type::B8;
    for (size_t i = 0; i < count; i++)
        decoder.step.rows[packs ? i + 1 : i] = packs ? decoder.source(vector.parts[i], part)
                                                     : decoder.destination(vector.parts[i], part);
    decoder.step.rows[packs ? 0 : 9] =
        packs ? decoder.destination(whole, type) : decoder.source(whole, type);
    decoder.emit(handler);
}

// Returns the components of a vector. Those of a special register are .x, .y, .z and .w.
std::vector<Operand> components_of(const Operand &vector) {
    if (vector.kind != Operand::Kind::Special || vector.name.find('.') != std::string::npos)
        return vector.parts;
    std::vector<Operand> components;
    for (const char *component : {".x", ".y", ".z", ".w"}) {
        components.push_back(vector);
        components.back().name += component;
    }
    return components;
}

// Decodes mov.v2 and mov.v4, whose operands are both vectors.
void decode_move_of_vectors(Decoder &decoder, size_t count) {
    Type type = decoder.take_type();
    decoder.expect_operands(2);
    std::vector<Operand> to = decoder.operand(0).parts, from = components_of(decoder.operand(1));
    if (to.size() != count || from.size() != count)
        decoder.refuse("both operands must be vectors of as many items as the modifier says");
    size_t bytes = size_of(type);
    if (bytes < 2 || bytes * count > 16 || type == Type::F16 || type == Type::BF16 ||
        type == Type::F16x2 || type == Type::BF16x2)
        decoder.refuse_types();
    for (size_t i = 0; i < count; i++) {
        decoder.step.rows[i] = decoder.destination(to[i], type);
        decoder.step.rows[count + i] = decoder.source(from[i], type);
    }
    decoder.emit(by_width(bytes, [count](auto zero) -> Handler {
        using T = decltype(zero);
        return count == 2 ? move_vector<T, 2> : move_vector<T, 4>;
    }));
}

void decode_move(Decoder &decoder) {
    int vector = decoder.take_any({"v2", "v4"});
    if (vector >= 0)
        return decode_move_of_vectors(decoder, size_t{2} << vector);
    Type type = decoder.take_type();
    decoder.expect_operands(2);
    const Operand &to = decoder.operand(0), &from = decoder.operand(1);
    bool packs = from.kind == Operand::Kind::Vector;
    if (packs || to.kind == Operand::Kind::Vector)
        return decode_vector_move(decoder, type, packs);
    decoder.step.rows[0] = decoder.destination(to, type);
    if (from.kind == Operand::Kind::Special) {
        const Special *special = find_special(from.name);
        if (special && special->now) {
            if (size_of(type) < special->width)
                decoder.refuse(from.name + " does not fit the type");
            decoder.code().reads_time |= is_time(*special);
            decoder.step.offset = reinterpret_cast<int64_t>(special);
            return decoder.emit(size_of(type) == 4 ? read_now<uint32_t> : read_now<uint64_t>);
        }
    }
    if (type == Type::Pred) {
        decoder.step.rows[1] = decoder.predicate(from);
        return decoder.is_constant(to) ? void() : decoder.emit(move_predicate);
    }
    decoder.step.rows[1] = decoder.source(from, type);
    if (decoder.is_constant(to))
        return;
    decoder.emit(by_width(size_of(type), [](auto zero) -> Handler {
        return lanes<same<std::conditional_t<sizeof(zero) == 1, uint16_t, decltype(zero)>>>;
    }));
}

void decode_activemask(Decoder &decoder) {
    if (!decoder.take("b32"))
        decoder.refuse_types();
    decoder.expect_operands(1);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::B32);
    decoder.emit(active_mask);
}

void decode_select(Decoder &decoder) {
    Type type = decoder.take_type();
    decoder.expect_operands(4);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    decoder.step.rows[2] = decoder.source(decoder.operand(2), type);
    decoder.step.rows[3] = decoder.predicate(decoder.operand(3));
    if (type == Type::Pred || size_of(type) < 2)
        decoder.refuse_types();
    decoder.emit(by_width(size_of(type),
                          [](auto zero) -> Handler { return lanes<select<decltype(zero)>>; }));
}

// The instructions cvta and isspacep, which convert and test generic addresses.

uint64_t add_offset(uint64_t a, uint64_t offset) { return a + offset; }
bool is_in_window(uint64_t a, uint64_t window) { return a / window_bytes * window_bytes == window; }

// Reads a state space and returns the address where its window begins in the generic address space.
// For .global and .const this is 0, because their addresses equal their generic addresses. A block
// reaches only its own shared memory, so .shared::cluster has the window of .shared::cta.
const uint64_t *take_window(Decoder &decoder) {
    static const uint64_t windows[] = {shared_window,
                                       shared_window,
                                       shared_window,
                                       local_window,
                                       parameter_window,
                                       parameter_window,
                                       0,
                                       0};
    int which = decoder.take_any({"shared", "shared::cta", "shared::cluster", "local", "param",
                                  "param::entry", "global", "const"});
    if (which < 0)
        decoder.refuse("a state space is missing");
    return &windows[which];
}

void decode_cvta(Decoder &decoder) {
    bool to = decoder.take("to");
    uint64_t window = *take_window(decoder);
    if (!decoder.take("u64"))
        decoder.refuse_types();
    decoder.expect_operands(2);
    // Only a kernel's parameters are in the parameter window. The parameters of other functions are
    // in local memory.
    const Operand &from = decoder.operand(1);
    const Operand &base = from.kind == Operand::Kind::Element ? from.parts[0] : from;
    if (window == parameter_window &&
        (decoder.named(base) ? !decoder.is_kernel_parameter(base) : !decoder.function().entry))
        window = local_window;
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::U64);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), Type::U64);
    decoder.step.rows[2] = decoder.constant(8, to ? 0 - window : window);
    if (decoder.is_constant(decoder.operand(0)))
        return;
    decoder.emit(window ? lanes<add_offset> : lanes<same<uint64_t>>);
}

void decode_isspacep(Decoder &decoder) {
    uint64_t window = *take_window(decoder);
    decoder.expect_operands(2);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::Pred);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), Type::U64);
    decoder.step.rows[2] = decoder.constant(8, window);
    decoder.emit(lanes<is_in_window>);
}

// Decodes an instruction that affects only the speed, and so does nothing here.
void decode_nothing(Decoder &decoder) {
    decoder.take_all({"launch_dependents", "wait", "inc", "dec", "sync", "aligned", "u32", "mask"});
    decoder.emit(nothing);
}

void sleep(Warp &warp, const Step &step) {
    const uint32_t *times = warp.row<uint32_t>(step.rows[1]);
    uint32_t longest = 0;
    for (int lane = 0; lane < warp_size; lane++)
        if (warp.active >> lane & 1)
            longest = std::max(longest, times[lane]);
    warp.machine.sleep(longest);
    warp.yield();
}
void decode_sleep(Decoder &decoder) {
    decoder.take("u32");
    decoder.expect_operands(1);
    decoder.step.rows[1] = decoder.source(decoder.operand(0), Type::U32);
    decoder.emit(sleep);
}

} // namespace

void add_moves(Opcodes &opcodes) {
    opcodes["mov"] = decode_move;
    opcodes["selp"] = decode_select;
    opcodes["cvta"] = decode_cvta;
    opcodes["isspacep"] = decode_isspacep;
    opcodes["activemask"] = decode_activemask;
    opcodes["nanosleep"] = decode_sleep;
    for (const char *opcode : {"setmaxnreg", "pmevent"})
        opcodes[opcode] = decode_nothing;
}

} // namespace soft::ptx
