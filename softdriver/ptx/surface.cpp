#include "ptx/arithmetic_convert.h"
#include "ptx/families.h"
#include "ptx/observer.h"
#include "ptx/texture_operand.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

// This file decodes and runs the instructions on surfaces: suld, sust and sured.

namespace soft::ptx {

uint32_t stored_half(float number) {
    constexpr uint32_t nan = 0x7e00;
    if (floating::is_nan(number))
        return nan;
    return floating::narrow<floating::Half>(double(number), floating::Rounding::Zero).bits;
}

namespace {

// How accesses outside of the surface are treated, in the order of the names in take_mode().
enum class Beyond : uint8_t { Trap, Clamp, Zero };

// The variant of an instruction, which is stored in Step::offset.
struct SurfaceForm {
    Geometry geometry;
    Beyond beyond;
    uint8_t bytes;    // bytes of an item
    uint8_t count;    // number of items
    uint8_t width;    // width of the registers, in bytes
    bool formatted;   // the coordinates count elements, and each item is a channel
    uint8_t op, sign; // operation and signedness of sured
};
static_assert(sizeof(SurfaceForm) == sizeof(int64_t));

SurfaceForm surface_form_of(const Step &step) {
    SurfaceForm form;
    memcpy(&form, &step.offset, sizeof form);
    return form;
}

// Moves a coordinate into the range from 0 to `last`. Returns false if it is outside.
bool limit_to(int64_t &coordinate, int64_t last) {
    int64_t given = coordinate;
    coordinate = std::max<int64_t>(0, std::min(given, last));
    return coordinate == given;
}

// The place where a lane accesses a surface.
struct SurfaceSpot {
    const Texture *surface = nullptr;
    char *bytes = nullptr; // null if the access has no effect
    bool failed = false;   // the launch has ended with an error
};

SurfaceSpot locate(Warp &warp, const Step &step, const SurfaceForm &form, unsigned lane, Use use) {
    SurfaceSpot spot;
    uint64_t handle = warp.row<uint64_t>(step.rows[9])[lane];
    spot.surface = find_texture(warp, step, lane, handle, form.geometry, true, true);
    spot.failed = true;
    if (!spot.surface)
        return spot;
    const Texels &texels = spot.surface->levels[0];
    int64_t element = int64_t(spot.surface->element);
    int64_t size = form.formatted ? element : int64_t(form.bytes) * form.count;
    unsigned layered = is_layered(form.geometry), flat = coordinates_of(form.geometry);
    auto given = [&](unsigned i) -> int64_t { return warp.row<int32_t>(step.rows[4 + i])[lane]; };
    int64_t x = given(layered) * (form.formatted ? element : 1);
    int64_t y = flat > 1 ? given(layered + 1) : 0;
    // Devices use only the lower 16 bits of the layer.
    int64_t z = layered ? given(0) & 0xffff : flat > 2 ? given(2) : 0;
    auto stop = [&](CUresult status, const std::string &what) {
        warp.machine.fail(warp, step, lane, status, what);
        return spot;
    };
    int64_t row = int64_t(texels.width) * element;
    if (x % size)
        return stop(CUDA_ERROR_MISALIGNED_ADDRESS,
                    "byte " + std::to_string(x) + " of a row is not aligned");
    // Clamp x to the last access that fits into the row. A row may be too short for any access,
    // even for a clamped one.
    bool fits = row >= size, within = limit_to(x, (row / size - 1) * size) && fits;
    within = limit_to(y, int64_t(texels.height) - 1) && within;
    within = limit_to(z, int64_t(texels.depth) - 1) && within;
    if (!within && form.beyond == Beyond::Trap)
        return stop(CUDA_ERROR_ILLEGAL_ADDRESS, "outside of the surface, which has " +
                                                    std::to_string(texels.depth) + " x " +
                                                    std::to_string(texels.height) + " rows of " +
                                                    std::to_string(row) + " bytes");
    if (!within && (form.beyond == Beyond::Zero || !fits)) {
        spot.failed = false;
        return spot;
    }
    uintptr_t address =
        texels.address + uintptr_t(z) * texels.slice + uintptr_t(y) * texels.pitch + uintptr_t(x);
    spot.bytes = warp.machine.memory.reach(step.site, address, size_t(size), use, true);
    spot.failed = !spot.bytes;
    if (spot.failed)
        fail_texel(warp, step, lane, address);
    else if (Observer *observer = warp.machine.observer.get())
        observer->uses(warp, lane, Space::Global, address, size_t(size), use);
    return spot;
}

// Returns the address of item i of a lane, which is in rows[i].
char *item(Warp &warp, const Step &step, const SurfaceForm &form, unsigned lane, unsigned i) {
    return warp.row<char>(step.rows[i]) + size_t(lane) * form.width;
}

void load_surface(Warp &warp, const Step &step) {
    const SurfaceForm form = surface_form_of(step);
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        SurfaceSpot spot = locate(warp, step, form, lane, Use::Read);
        if (spot.failed)
            return;
        for (unsigned i = 0; i < form.count; i++) {
            char *to = item(warp, step, form, lane, i);
            memset(to, 0, form.width);
            if (spot.bytes)
                memcpy(to, spot.bytes + i * form.bytes, form.bytes);
        }
    }
}

// Converts a register to a channel. Integers that do not fit are clamped.
void encode(Channel channel, uint32_t bits, char *to) {
    uint32_t raw = bits;
    auto clamped = [&](int64_t low, int64_t high, int64_t value) {
        return uint32_t(std::max(low, std::min(high, value)));
    };
    switch (channel) {
    case Channel::U8:
        raw = clamped(0, 255, bits);
        break;
    case Channel::U16:
        raw = clamped(0, 65535, bits);
        break;
    case Channel::S8:
        raw = clamped(-128, 127, int32_t(bits));
        break;
    case Channel::S16:
        raw = clamped(-32768, 32767, int32_t(bits));
        break;
    case Channel::F16:
        raw = stored_half(floating::from_bits<float>(bits));
        break;
    default:
        break;
    }
    memcpy(to, &raw, bytes_of(channel));
}

// Converts a register, which is a float, to a channel that stands for a number from 0 or -1 to 1.
// The integer for 1 is 2^bits - 1, so a number is multiplied by 2^bits, and subtracted once. As on
// an H200, both steps are in fixed point: the number times 2^bits has 4 fraction bits, the number
// has none beyond these, and the difference is rounded to the nearest integer, halves to 0. Bits
// that do not fit are dropped.
void encode_fraction(Channel channel, uint32_t bits, char *to) {
    bool sign = channel == Channel::S8 || channel == Channel::S16;
    auto number = floating::from_bits<float>(bits);
    number = std::isnan(number) ? 0 : std::max(sign ? -1.0f : 0.0f, std::min(number, 1.0f));
    int width = int(8 * bytes_of(channel) - sign);
    auto fixed = int(std::ldexp(std::abs(number), width + 4));
    int size = (fixed - (fixed >> width) + 7) >> 4;
    auto raw = uint32_t(std::signbit(number) ? -size : size);
    memcpy(to, &raw, bytes_of(channel));
}

void store_surface(Warp &warp, const Step &step) {
    const SurfaceForm form = surface_form_of(step);
    warp.machine.progress++;
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        SurfaceSpot spot = locate(warp, step, form, lane, Use::Write);
        if (spot.failed)
            return;
        if (!spot.bytes)
            continue;
        if (form.formatted) // channels without an item become 0
            memset(spot.bytes, 0, spot.surface->element);
        for (unsigned i = 0; i < form.count; i++) {
            const char *from = item(warp, step, form, lane, i);
            if (!form.formatted)
                memcpy(spot.bytes + i * form.bytes, from, form.bytes);
            else if (i < spot.surface->channels) {
                uint32_t bits;
                memcpy(&bits, from, sizeof bits);
                Channel channel = spot.surface->channel;
                auto store = spot.surface->fractions ? encode_fraction : encode;
                store(channel, bits, spot.bytes + i * bytes_of(channel));
            }
        }
    }
}

// The operations of sured, in the order of their names.
enum class Reduction : uint8_t { Add, Min, Max, And, Or };

template <class T> T reduced(Reduction operation, bool is_signed, T a, T b) {
    using Signed = std::make_signed_t<T>;
    bool less = is_signed ? Signed(a) < Signed(b) : a < b;
    switch (operation) {
    case Reduction::Add:
        return a + b;
    case Reduction::Min:
        return less ? a : b;
    case Reduction::Max:
        return less ? b : a;
    case Reduction::And:
        return a & b;
    default:
        return a | b;
    }
}

// Checks that the elements of a surface are integers of the width that sured.p reduces. As PTX
// defines, the format of the surface determines their sign, and a pair of 32-bit channels is one
// 64-bit number.
bool are_numbers(Warp &warp, const Step &step, const SurfaceForm &form, unsigned lane,
                 const Texture &surface) {
    bool integers = surface.channel == Channel::U32 || surface.channel == Channel::S32;
    if (integers && surface.element == form.bytes)
        return true;
    warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                      "the elements of the surface are no integers of " +
                          std::to_string(8 * form.bytes) + " bits");
    return false;
}

// Atomically replaces the number in a cell by the result of `reduce`. Returns whether the number
// has changed.
template <class T, class Reduce> bool replace(char *cell, Reduce reduce) {
    T before, after;
    if (reinterpret_cast<uintptr_t>(cell) % sizeof(T)) {
        // Rows have no gaps, so the number may lie across words, and not every processor has atomic
        // accesses there.
        static std::mutex alone;
        std::lock_guard<std::mutex> lock(alone);
        memcpy(&before, cell, sizeof before);
        after = reduce(before);
        memcpy(cell, &after, sizeof after);
        return before != after;
    }
    auto *number = reinterpret_cast<T *>(cell);
    before = __atomic_load_n(number, __ATOMIC_RELAXED);
    do
        after = reduce(before);
    while (!__atomic_compare_exchange_n(number, &before, after, true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED));
    return before != after;
}

template <class T> void reduce_surface(Warp &warp, const Step &step) {
    const SurfaceForm form = surface_form_of(step);
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        SurfaceSpot spot = locate(warp, step, form, lane, Use::Atomic);
        if (spot.failed || (form.formatted && !are_numbers(warp, step, form, lane, *spot.surface)))
            return;
        if (!spot.bytes)
            continue;
        bool sign = form.formatted ? spot.surface->channel == Channel::S32 : form.sign;
        T b = warp.row<T>(step.rows[0])[lane];
        warp.machine.progress +=
            replace<T>(spot.bytes, [&](T a) { return reduced(Reduction(form.op), sign, a, b); });
    }
}

SurfaceForm take_surface_form(Decoder &decoder) {
    SurfaceForm form{};
    int mode = decoder.take_any({"trap", "clamp", "zero"});
    if (mode < 0)
        decoder.refuse(".trap, .clamp or .zero is missing");
    form.beyond = Beyond(mode);
    form.geometry = take_geometry(decoder, false);
    form.count = decoder.take("v2") ? 2 : decoder.take("v4") ? 4 : 1;
    decoder.take_all({"ca", "cg", "cs", "cv", "wb", "wt"});
    return form;
}

void emit_surface(Decoder &decoder, const SurfaceForm &form, Handler handler) {
    memcpy(&decoder.step.offset, &form, sizeof form);
    decoder.effect.kind = Effect::Kind::Other;
    decoder.effect.noncoherent = true;
    decoder.effect.item_bytes = form.bytes;
    decoder.emit(handler);
}

// Reads the items of suld and sust: rows[0] to rows[3].
template <bool is_load>
void take_items(Decoder &decoder, const Operand &items, Type type, SurfaceForm &form) {
    bool vector = items.kind == Operand::Kind::Vector;
    if (vector ? items.parts.size() != form.count : form.count != 1)
        decoder.refuse("the vector does not have as many items as the modifier says");
    for (size_t i = 0; i < form.count; i++) {
        const Operand &part = vector ? items.parts[i] : items;
        size_t width = 0;
        decoder.step.rows[i] = is_load ? decoder.wide_destination(part, type, width)
                                       : decoder.wide_source(part, type, width);
        if (i && width != form.width)
            decoder.refuse("the registers of a vector have different widths");
        form.width = uint8_t(width);
    }
}

template <bool is_load> void decode_surface_access(Decoder &decoder) {
    bool bytes = decoder.take("b");
    bool formatted = !bytes && !is_load && decoder.take("p");
    if (!bytes && !formatted)
        decoder.refuse(is_load ? "only suld.b is supported" : ".b or .p is missing");
    SurfaceForm form = take_surface_form(decoder);
    form.formatted = formatted;
    bool layered = is_layered(form.geometry);
    Type type = decoder.take_type();
    if (formatted ? type != Type::B32 || layered : !is_bits(type) || size_of(type) > 8)
        decoder.refuse_types();
    form.bytes = uint8_t(size_of(type));
    if (size_t(form.bytes) * form.count > 16 && !formatted)
        decoder.refuse("more than 16 bytes");
    decoder.expect_operands(2);
    take_items<is_load>(decoder, decoder.operand(is_load ? 0 : 1), type, form);
    take_place(decoder, decoder.operand(is_load ? 1 : 0), form.geometry, Type::S32,
               Variable::Reference::Surface);
    emit_surface(decoder, form, is_load ? load_surface : store_surface);
}

// Returns whether sured has this operation with this type.
bool reduces(Reduction operation, Type type, bool formatted) {
    if (formatted) // PTX has .b64 only for min and max
        return type == Type::B32 ||
               (type == Type::B64 && (operation == Reduction::Min || operation == Reduction::Max));
    switch (operation) {
    case Reduction::Add:
        return type == Type::U32 || type == Type::S32 || type == Type::U64;
    case Reduction::Min:
    case Reduction::Max:
        return !is_float(type) && !is_bits(type) && size_of(type) >= 4;
    default:
        return type == Type::B32;
    }
}

void decode_surface_reduction(Decoder &decoder) {
    bool formatted = !decoder.take("b");
    if (formatted && !decoder.take("p"))
        decoder.refuse(".b or .p is missing");
    int operation = decoder.take_any({"add", "min", "max", "and", "or"});
    SurfaceForm form = take_surface_form(decoder);
    Type type = decoder.take_type();
    if (operation < 0 || form.count != 1 || is_layered(form.geometry) ||
        !reduces(Reduction(operation), type, formatted))
        decoder.refuse_types();
    bool adds = Reduction(operation) == Reduction::Add;
    if (!adds && size_of(type) == 8 && decoder.tree().version < 81)
        decoder.refuse("needs PTX 8.1");
    form.formatted = formatted;
    form.op = uint8_t(operation);
    form.sign = is_signed(type);
    form.bytes = form.width = uint8_t(size_of(type));
    decoder.expect_operands(2);
    decoder.step.rows[0] = decoder.source(decoder.operand(1), type);
    take_place(decoder, decoder.operand(0), form.geometry, Type::S32, Variable::Reference::Surface);
    emit_surface(decoder, form,
                 form.bytes == 4 ? reduce_surface<uint32_t> : reduce_surface<uint64_t>);
}

} // namespace

void add_surfaces(Opcodes &opcodes) {
    opcodes["suld"] = decode_surface_access<true>;
    opcodes["sust"] = decode_surface_access<false>;
    opcodes["sured"] = decode_surface_reduction;
}

} // namespace soft::ptx
