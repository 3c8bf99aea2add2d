#pragma once

#include "fuzz_player.h"

#include <algorithm>
#include <limits>

// Random numbers, addresses and texts, most of them near special values.

namespace fuzz {

// A size up to about the capacity, or one that no machine can allocate. The driver would really
// allocate a size between these.
inline size_t any_size() {
    soft::Random &random = player->random;
    static const size_t marks[] = {
        64, 512, 4096, 65536, size_t(4) << 20, capacity, size_t(1) << 46, size_t(1) << 63};
    switch (random.below(16)) {
    case 0:
        return 0;
    case 1:
    case 2:
    case 3:
        return 1 + random.below(16);
    case 4:
        return marks[random.below(std::size(marks))] + random.below(3) - 1;
    case 5:
        return random.below(size_t(2) << 20);
    case 6:
        return SIZE_MAX - random.below(2) * random.below(4096);
    case 7:
        return (size_t(1) << 46) + (random.next() >> random.below(18));
    default:
        return 1 + random.below(player->chance(20) ? 70000 : 4096);
    }
}

inline uint64_t any_bits() {
    soft::Random &random = player->random;
    switch (random.below(8)) {
    case 0:
        return random.next();
    case 1:
        return ~uint64_t(0) >> random.below(64);
    case 2:
        return uint64_t(1) << random.below(64);
    default:
        return random.below(4);
    }
}

// A size for functions that reserve addresses, or map memory to them.
inline size_t any_granules() {
    return player->chance(90) ? granule * player->random.below(4) : any_size();
}

// A size or a place in a row of an array: mostly one of whole elements.
inline size_t any_part() {
    return player->chance(90) ? player->random.below(8) << player->random.below(5) : any_size();
}

// Reserved addresses, a handle of memory, or flags: they have the same type.
inline unsigned long long any_mapping() {
    soft::Random &random = player->random;
    switch (random.below(8)) {
    case 0:
    case 1:
    case 2:
        return reservations.any(random) + granule * random.below(4);
    case 3:
    case 4:
    case 5:
        return backings.any(random);
    default:
        return player->chance(80) ? 0 : any_bits();
    }
}

inline int any_int() {
    soft::Random &random = player->random;
    static const int extremes[] = {std::numeric_limits<int>::min(),
                                   std::numeric_limits<int>::max(),
                                   -1,
                                   2000,
                                   11020,
                                   12000,
                                   13000};
    switch (random.below(8)) {
    case 0:
        return extremes[random.below(std::size(extremes))];
    case 1:
        return static_cast<int>(random.below(40)) - 8;
    default:
        return static_cast<int>(random.below(2)); // mostly a device number
    }
}

inline uintptr_t own_memory() {
    return reinterpret_cast<uintptr_t>(player->scratch) + player->random.below(scratch_used);
}

inline uintptr_t never_valid() {
    static const uintptr_t values[] = {0,
                                       1,
                                       2,
                                       3,
                                       16,
                                       4096,
                                       65535,
                                       0x5c0000001000,
                                       uintptr_t(1) << 47,
                                       UINTPTR_MAX,
                                       UINTPTR_MAX - 4095};
    return values[player->random.below(std::size(values))];
}

// An address for functions that only look it up: any value is allowed.
inline uintptr_t looked_up_address() {
    soft::Random &random = player->random;
    uintptr_t begin = player->chance(30) ? player->mine.any(random) : addresses.any(random);
    Known known;
    switch (random.below(12)) {
    case 0:
        return own_memory();
    case 1:
        return never_valid();
    case 2:
        return begin + random.below(4096);
    case 3:
        return ask(begin, known) ? begin + known.bytes : begin;
    case 4:
        return ask(begin, known) ? begin + random.below(known.bytes) : begin - 1;
    case 5:
        return begin + 64 * random.below(8);
    default:
        return begin;
    }
}

// An address for functions that keep using the memory: never in memory of another thread.
inline uintptr_t kept_memory() {
    Known known;
    uintptr_t address = looked_up_address();
    return address < 65536 || (player->alone && ask(address, known)) ? address : own_memory();
}

// An address for functions that also access memory that the driver does not know. There must be
// memory at the address, up to the limit of the shape.
inline uintptr_t touched_address(Pool &pool) {
    Player &me = *player;
    Known known;
    if (me.chance(3))
        return me.random.below(65536);
    uintptr_t begin = pool.any(me.random);
    if (me.chance(40) || !ask(begin, known)) {
        me.shape.limit = std::min(me.shape.limit, capacity);
        return own_memory();
    }
    size_t offset = me.chance(50) ? 0 : me.random.below(known.bytes);
    // Another thread may free the memory before the driver looks it up.
    if (known.host && !me.alone)
        me.shape.limit = std::min(me.shape.limit, known.bytes - offset);
    return known.begin + offset;
}

inline const char *any_text() {
    static const char *const texts[] = {"",       "cuMemAlloc", "cuStreamSynchronize",
                                        "cuInit", "cuNothing",  "cuGetProcAddress",
                                        "%s%n",   "cuMemcpy",   "0000:01:00.0",
                                        "empty",  "count",      "counter",
                                        "table",  "common",     "store"};
    return texts[player->random.below(std::size(texts))];
}

// A handle of one type: alive, destroyed, special, or of another type.
template <class Handle> Handle any_handle() {
    soft::Random &random = player->random;
    uintptr_t value = pool_of<Handle>().any(random);
    switch (random.below(20)) {
    case 0:
    case 1:
    case 2:
        value = random.below(4); // the default streams, for example
        break;
    case 3:
        value = never_valid();
        break;
    case 4:
        value = pool_of<CUstream>().any(random);
        break;
    case 5:
        value = pool_of<CUcontext>().any(random) + random.below(2);
        break;
    }
    return reinterpret_cast<Handle>(value);
}

// The address of a word to wait for: a word of the gates, or an address that the driver must
// refuse.
inline uintptr_t wait_address() {
    Player &me = *player;
    uintptr_t address = me.gates.address(me.random.below(Gates::count));
    Known known;
    if (me.chance(10))
        return address + 1 + me.random.below(3); // misaligned
    if (me.chance(10)) {
        uintptr_t other = looked_up_address();
        if (!ask(other, known) && me.alone)
            return other;
    }
    if (!ask(address, known))
        cuMemHostRegister_v2(me.gates.pages(), Gates::bytes, 0);
    return address;
}

} // namespace fuzz
