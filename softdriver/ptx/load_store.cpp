#include "ptx/access.h"
#include "ptx/decoder.h"
#include "ptx/families.h"
#include "ptx/lanes.h"

#include <atomic>
#include <cstring>

// This file decodes and runs the instructions ld and st.

namespace soft::ptx {

namespace {

// The parts of Step::detail of an access: a mask for the state space, two flags, and the position
// of the field that has the number of items.
constexpr unsigned space_bits = 0xf, ordered_bit = 0x10, signal_bit = 0x20, count_shift = 8;
Space space_of(const Step &step) { return Space(step.detail & space_bits); }

// Returns `signal` for a volatile or ordered access and `plain` for any other. Volatile and ordered
// accesses are signals between threads, so the race detector does not report them as races.
Use use_of(const Step &step, Use plain, Use signal) {
    return step.detail & signal_bit ? signal : plain;
}

enum class Pattern { Scattered, Contiguous, Uniform };

// What the handlers ask about the addresses of a warp, in which each lane accesses `bytes` bytes.
template <class A> struct Addresses {
    const A *of;
    size_t bytes;

    // Returns the pattern of the addresses, if all lanes are active.
    SOFT_INLINE Pattern pattern() const {
        A expected = of[0], apart = A(of[1] - expected), wrong = 0;
        if (apart && apart != A(bytes))
            return Pattern::Scattered;
        for (int lane = 0; lane < warp_size; lane++, expected += apart)
            wrong |= of[lane] ^ expected;
        return wrong ? Pattern::Scattered : apart ? Pattern::Contiguous : Pattern::Uniform;
    }
    // Returns whether the addresses of the lanes are aligned and, minus `begin`, at most `last`.
    SOFT_INLINE bool within(uint32_t lanes, uint64_t begin, uint64_t last) const {
        uint64_t wrong = 0;
        auto check = [&](int lane) {
            uint64_t offset = uint64_t(of[lane]) - begin;
            return uint64_t(offset > last) | (uint64_t(of[lane]) & (bytes - 1));
        };
        if (lanes == ~uint32_t{0})
            for (int lane = 0; lane < warp_size; lane++)
                wrong |= check(lane);
        else
            for (uint32_t left = lanes; left; left &= left - 1)
                wrong |= check(__builtin_ctz(left));
        return !wrong;
    }
    // Returns the lanes whose bytes lie directly before the bytes of the next lane.
    SOFT_INLINE uint32_t followed() const {
        uint32_t lanes = 0;
        for (int lane = 0; lane < warp_size - 1; lane++)
            lanes |= of[lane + 1] == A(of[lane] + A(bytes)) ? lane_bits[lane] : 0;
        return lanes;
    }
};

template <class A> struct Plain {
    static Pattern pattern(Addresses<A> all) { return all.pattern(); }
    static bool within(Addresses<A> all, uint32_t lanes, uint64_t begin, uint64_t last) {
        return all.within(lanes, begin, last);
    }
    static uint32_t followed(Addresses<A> all) { return all.followed(); }
};
template <class A> struct Avx2 {
    SOFT_AVX2 static Pattern pattern(Addresses<A> all) { return all.pattern(); }
    SOFT_AVX2 static bool within(Addresses<A> all, uint32_t lanes, uint64_t begin, uint64_t last) {
        return all.within(lanes, begin, last);
    }
    SOFT_AVX2 static uint32_t followed(Addresses<A> all) { return all.followed(); }
};
template <class A> const auto pattern = has_avx2() ? Avx2<A>::pattern : Plain<A>::pattern;
template <class A> const auto within = has_avx2() ? Avx2<A>::within : Plain<A>::within;
template <class A> const auto followed = has_avx2() ? Avx2<A>::followed : Plain<A>::followed;

// Fast path: checks the accesses of all active lanes together, records them, and finds their bytes.
// Returns false if each lane has to be checked separately.
template <class A> bool reach_all(const Access &access, Addresses<A> addresses, Reach &reach) {
    uint64_t begin, last, offset = uint64_t(access.step.offset);
    if (offset % addresses.bytes || !access.expect(addresses.bytes, reach, begin, last))
        return false;
    reach.base += offset;
    uint32_t left = access.warp.active;
    if (!within<A>(addresses, left, begin - offset, last))
        return false;
    int first = __builtin_ctz(left), last_lane = warp_size - 1 - __builtin_clz(left);
    access.prefetch_ends(reach.of(unsigned(first), addresses.of[first]),
                         reach.of(unsigned(last_lane), addresses.of[last_lane]));
    if (!access.records())
        return true;
    for (uint32_t joined = followed<A>(addresses); left;) { // the lanes of each range of bytes
        int lane = __builtin_ctz(left), end = __builtin_ctz(left & ~(joined & left >> 1));
        __builtin_prefetch(reach.of(unsigned(lane), addresses.of[lane]));
        access.record(uint64_t(addresses.of[lane]) + offset,
                      size_t(end - lane + 1) * addresses.bytes);
        left &= ~uint32_t{1} << end;
    }
    return true;
}

template <class A> Pattern pattern_of(const Access &access, size_t bytes) {
    const A *addresses = access.warp.row<A>(access.step.rows[9]);
    return access.warp.active == ~uint32_t{0} && access.space != Space::Local
               ? pattern<A>({addresses, bytes})
               : Pattern::Scattered;
}

// Reads a T and extends it to R, the type of the register.
template <class R, class T> R extended(const char *from) {
    T value;
    memcpy(&value, from, sizeof value);
    return R(value);
}

void acquire(const Step &step) {
    if (step.detail & ordered_bit)
        std::atomic_thread_fence(std::memory_order_seq_cst);
}

// The handler of ld. T is the type in memory, R the type of the register, A the type of addresses,
// and n the number of items of a vector.
template <class T, class R, class A, int n> void load(Warp &warp, const Step &step) {
    constexpr size_t bytes = n * sizeof(T);
    Access access{warp, step, space_of(step), use_of(step, Use::Read, Use::Signal)};
    const A *addresses = warp.row<A>(step.rows[9]);
    R *rows[n];
    for (int i = 0; i < n; i++)
        rows[i] = warp.row<R>(step.rows[i]);
    Pattern how = pattern_of<A>(access, bytes);
    if (how != Pattern::Scattered) {
        uint64_t first = uint64_t(addresses[0]) + uint64_t(step.offset);
        size_t all = how == Pattern::Uniform ? bytes : bytes * warp_size;
        const char *from = first % bytes || (first >= shared_window && how != Pattern::Uniform)
                               ? nullptr
                               : access.reach(0, first, all);
        bool own = first / window_bytes * window_bytes == local_window;
        if (from && !own) {
            size_t stride = how == Pattern::Uniform ? 0 : bytes;
            if (stride)
                access.prefetch_all(from, all);
            if (stride && n == 1 && sizeof(T) == sizeof(R))
                memcpy(rows[0], from, all);
            else if (stride)
                for (int lane = 0; lane < warp_size; lane++)
                    for (int i = 0; i < n; i++)
                        rows[i][lane] = extended<R, T>(from + size_t(lane) * bytes + i * sizeof(T));
            else
                for (int i = 0; i < n; i++) {
                    R value = extended<R, T>(from + i * sizeof(T));
                    for (int lane = 0; lane < warp_size; lane++)
                        rows[i][lane] = value;
                }
            return acquire(step);
        }
    }
    auto take = [&](const char *from, int lane) {
        for (int i = 0; i < n; i++)
            rows[i][lane] = extended<R, T>(from + i * sizeof(T));
    };
    Reach all;
    bool known = reach_all<A>(access, {addresses, bytes}, all);
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        if (known) {
            take(all.of(unsigned(lane), addresses[lane]), lane);
            continue;
        }
        uint64_t address = uint64_t(addresses[lane]) + uint64_t(step.offset);
        const char *from = access.reach_or_fail(unsigned(lane), address, bytes);
        if (!from)
            return;
        take(from, lane);
    }
    acquire(step);
}

template <class T, class R, class A, int n> void store(Warp &warp, const Step &step) {
    constexpr size_t bytes = n * sizeof(T);
    acquire(step);
    warp.machine.progress++;
    Access access{warp, step, space_of(step), use_of(step, Use::Write, Use::Atomic)};
    const A *addresses = warp.row<A>(step.rows[9]);
    const R *rows[n];
    for (int i = 0; i < n; i++)
        rows[i] = warp.row<R>(step.rows[i]);
    auto put = [&](char *to, int lane) {
        for (int i = 0; i < n; i++) {
            T value = T(rows[i][lane]);
            memcpy(to + size_t(i) * sizeof(T), &value, sizeof value);
        }
    };
    if (pattern_of<A>(access, bytes) == Pattern::Contiguous) {
        uint64_t first = uint64_t(addresses[0]) + uint64_t(step.offset);
        char *to = first % bytes || first >= shared_window
                       ? nullptr
                       : access.reach(0, first, bytes * warp_size);
        if (to)
            access.prefetch_all(to, bytes * warp_size);
        if (to && n == 1 && sizeof(T) == sizeof(R)) {
            memcpy(to, rows[0], bytes * warp_size);
            return;
        }
        if (to) {
            for (int lane = 0; lane < warp_size; lane++)
                put(to + size_t(lane) * bytes, lane);
            return;
        }
    }
    Reach all;
    bool known = reach_all<A>(access, {addresses, bytes}, all);
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        if (known) {
            put(all.of(unsigned(lane), addresses[lane]), lane);
            continue;
        }
        uint64_t address = uint64_t(addresses[lane]) + uint64_t(step.offset);
        char *to = access.reach_or_fail(unsigned(lane), address, bytes);
        if (!to)
            return;
        put(to, lane);
    }
}

template <class T, class R, class A, bool is_load> Handler by_count(size_t count) {
    switch (count) {
    case 1:
        return is_load ? load<T, R, A, 1> : store<T, R, A, 1>;
    case 2:
        return is_load ? load<T, R, A, 2> : store<T, R, A, 2>;
    case 4:
        return is_load ? load<T, R, A, 4> : store<T, R, A, 4>;
    case 8:
        if constexpr (sizeof(T) == 4) // .v8 has 256 bits
            return is_load ? load<T, R, A, 8> : store<T, R, A, 8>;
        [[fallthrough]];
    default:
        return nullptr;
    }
}

// Selects the handler by the width of the register. A load extends a signed T by its sign, and an
// unsigned T by zeros.
template <class T, bool is_load> Handler by_registers(size_t width, size_t address, size_t count) {
    using R16 = std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>;
    using R32 = std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>;
    using R64 = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    auto pick = [&](auto reg) -> Handler {
        using R = decltype(reg);
        if constexpr (sizeof(R) < sizeof(T))
            return nullptr;
        else
            return address == 4 ? by_count<T, R, uint32_t, is_load>(count)
                                : by_count<T, R, uint64_t, is_load>(count);
    };
    return width == 2 ? pick(R16()) : width == 4 ? pick(R32()) : width == 8 ? pick(R64()) : nullptr;
}

template <bool is_load> Handler by_type(Type type, size_t width, size_t address, size_t count) {
    bool sign = is_load && is_signed(type) && width > size_of(type);
    switch (size_of(type)) {
    case 1:
        return sign ? by_registers<int8_t, is_load>(width, address, count)
                    : by_registers<uint8_t, is_load>(width, address, count);
    case 2:
        return sign ? by_registers<int16_t, is_load>(width, address, count)
                    : by_registers<uint16_t, is_load>(width, address, count);
    case 4:
        return sign ? by_registers<int32_t, is_load>(width, address, count)
                    : by_registers<uint32_t, is_load>(width, address, count);
    case 8:
        return by_registers<uint64_t, is_load>(width, address, count);
    default:
        return nullptr;
    }
}

// Reads the modifiers for caching and ordering. Most have no effect, because this driver executes
// all accesses in order.
unsigned take_hints(Decoder &decoder) {
    unsigned bits = 0;
    Effect &effect = decoder.effect;
    int order = decoder.take_any({"acquire", "release"});
    if (order >= 0)
        bits = ordered_bit | signal_bit;
    if (decoder.take("volatile"))
        bits |= signal_bit;
    effect.scope = bits == signal_bit ? Effect::Scope::System : take_scope(decoder);
    if (decoder.take("relaxed"))
        bits |= signal_bit;
    effect.strong = bits != 0;
    effect.acquires = order == 0;
    effect.releases = order == 1;
    decoder.take_all({"weak", "mmio"});
    effect.noncoherent = decoder.take("nc");
    decoder.take_all({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
    for (const char *level : {"L1", "L2"})
        for (const char *priority : {"evict_normal", "evict_unchanged", "evict_first", "evict_last",
                                     "no_allocate", "cache_hint", "64B", "128B", "256B"})
            decoder.take(std::string(level) + "::" + priority);
    return bits;
}

Space take_space(Decoder &decoder) {
    static const std::pair<const char *, Space> spaces[] = {
        {"global", Space::Global},      {"shared", Space::Shared},
        {"shared::cta", Space::Shared}, {"shared::cluster", Space::Shared},
        {"local", Space::Local},        {"const", Space::Const},
        {"param", Space::Param},        {"param::entry", Space::Param},
        {"param::func", Space::Param},
    };
    for (auto &[name, space] : spaces)
        if (decoder.take(name))
            return space;
    return Space::Generic;
}

// Returns the state space of an address. The address of a variable is in the variable's state
// space, even if the instruction names none. Parameters of kernels are in parameter memory.
// Parameters of other functions, and variables for calls, are in local memory.
Space real_space(Decoder &decoder, Space space, const Operand &address) {
    const Variable *variable = decoder.named(address.parts.at(0));
    if (variable)
        space = decoder.space_of(*variable, space);
    if (space != Space::Param)
        return space;
    bool kernels =
        variable ? decoder.is_kernel_parameter(address.parts[0]) : decoder.function().entry;
    return kernels ? Space::Param : Space::Local;
}

template <bool is_load> void access_memory(Decoder &decoder) {
    unsigned hints = take_hints(decoder);
    Space space = take_space(decoder);
    static const std::pair<const char *, size_t> vectors[] = {{"v2", 2}, {"v4", 4}, {"v8", 8}};
    size_t count = 1;
    for (auto &[name, items] : vectors)
        if (decoder.take(name))
            count = items;
    Type type = decoder.take_type();
    decoder.expect_operands(2, 3); // a cache policy may follow
    const Operand &value = decoder.operand(is_load ? 0 : 1);
    const Operand &place = decoder.operand(is_load ? 1 : 0);
    size_t address = place.kind == Operand::Kind::Element ? decoder.address_of_element(place)
                                                          : decoder.address(place);
    space = real_space(decoder, space, place);
    bool vector = value.kind == Operand::Kind::Vector;
    if (vector ? value.parts.size() != count : count != 1)
        decoder.refuse("the vector does not have as many items as the modifier says");
    size_t width = 0;
    for (size_t i = 0; i < count; i++) {
        const Operand &part = vector ? value.parts[i] : value;
        size_t own = 0;
        if (is_load && part.kind == Operand::Kind::Sink && width) {
            decoder.step.rows[i] = decoder.temporary(width);
            continue;
        }
        decoder.step.rows[i] = is_load ? decoder.wide_destination(part, type, own)
                                       : decoder.wide_source(part, type, own);
        if (width && own != width)
            decoder.refuse("the registers of a vector have different widths");
        width = own;
    }
    if (hints && (space == Space::Global || space == Space::Generic))
        decoder.code().communicates = true;
    if (is_load && !vector && decoder.is_constant(value))
        return;
    if (is_load && space == Space::Param && !vector && width == size_of(type))
        if (std::optional<Row> row = decoder.argument(place, type)) {
            decoder.step.rows[1] = *row;
            return decoder.emit(
                by_width(width, [](auto zero) -> Handler { return lanes<same<decltype(zero)>>; }));
        }
    decoder.step.detail = uint16_t(unsigned(space) | hints);
    decoder.effect.kind = is_load ? Effect::Kind::Read : Effect::Kind::Write;
    decoder.effect.space = space;
    decoder.effect.item_bytes = uint8_t(size_of(type));
    decoder.effect.count = uint8_t(count);
    decoder.effect.address_bytes = uint8_t(address);
    decoder.effect.value_bytes = uint8_t(width);
    decoder.emit(by_type<is_load>(type, width, address, count));
}

void prefetch(Decoder &decoder) {
    take_hints(decoder);
    decoder.take_all({"global", "local", "L1", "L2", "tensormap", "param", "const", "generic"});
    decoder.expect_operands(1, 3);
    decoder.effect = {};
    decoder.emit(nothing);
}

uint64_t policy_of(uint64_t bits) { return bits; }

// Decodes createpolicy. A cache policy affects only the speed, so it is 0 here.
void decode_policy(Decoder &decoder) {
    int form = decoder.take_any({"fractional", "range", "cvt"});
    decoder.take_all({"global", "L2", "L2::evict_last", "L2::evict_normal", "L2::evict_first",
                      "L2::evict_unchanged"});
    if (form < 0 || !decoder.take("b64"))
        decoder.refuse_types();
    constexpr size_t least[] = {1, 4, 2}, most[] = {2, 4, 2};
    decoder.expect_operands(least[form], most[form]);
    if (form == 1)
        decoder.address(decoder.operand(1)); // refuses an operand that is no address
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::B64);
    decoder.step.rows[1] = decoder.constant(8, 0);
    decoder.emit(lanes<policy_of>);
}

} // namespace

void add_load_store(Opcodes &opcodes) {
    opcodes["ld"] = access_memory<true>;
    opcodes["ldu"] = access_memory<true>;
    opcodes["st"] = access_memory<false>;
    opcodes["prefetch"] = prefetch;
    opcodes["prefetchu"] = prefetch;
    opcodes["applypriority"] = prefetch;
    opcodes["discard"] = prefetch;
    opcodes["createpolicy"] = decode_policy;
}

} // namespace soft::ptx
