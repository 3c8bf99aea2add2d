#pragma once

#include "fuzz_pools.h"

#include <cstdio>

// The state of one thread that makes random calls, and its last calls.

namespace fuzz {

// The last calls of a thread. The thread writes them; they are printed after a failure.
class History {
  public:
    static constexpr size_t arguments = 9;
    static constexpr int running = -1, not_a_call = -2;

    struct Entry {
        const char *name = nullptr;
        uint64_t values[arguments] = {};
        size_t count = 0;
        int status = running;
    };

    Entry &add(const char *name) {
        Entry &entry = entries_[number_ % entries_.size()];
        number_++;
        entry = Entry();
        entry.name = name;
        return entry;
    }

    void print(size_t thread) const {
        uint64_t first = number_ > entries_.size() ? number_ - entries_.size() : 0;
        for (uint64_t i = first; i < number_; i++)
            print(thread, i);
    }

    void print(size_t thread, uint64_t number) const {
        const Entry &entry = entries_[number % entries_.size()];
        std::fprintf(stderr, "  thread %zu call %llu: %s(", thread, (unsigned long long)number,
                     entry.name);
        for (size_t i = 0; i < entry.count; i++)
            std::fprintf(stderr, "%s%#llx", i ? ", " : "", (unsigned long long)entry.values[i]);
        if (entry.status == running)
            std::fprintf(stderr, ") ...\n");
        else
            std::fprintf(stderr, ") = %d\n", entry.status);
    }

    uint64_t calls() const { return number_; }

  private:
    std::array<Entry, 40> entries_;
    uint64_t number_ = 0;
};

// Properties of the called function that do not follow from the types of its parameters.
struct Shape {
    bool touches_pointers = false; // accesses memory at host pointers that the driver does not know
    // Accesses memory at device addresses that the driver does not know.
    bool touches_addresses = false;
    bool own_buffers = true;   // needs a buffer of the caller
    bool keeps_memory = false; // keeps using the memory after the call
    bool maps = false;         // takes reserved addresses, and memory for them
    bool objects = false;      // takes handles of texture or surface objects
    bool parts = false;        // takes sizes of parts of arrays
    bool counted = false;      // an argument counts the elements of an array
    size_t limit = SIZE_MAX;   // limit of sizes, so that they fit the pointers
};

struct Player {
    Player(uint64_t seed, size_t thread, bool alone)
        : random(seed * 1000 + thread), thread(thread), alone(alone), gated(seed % 2),
          scratch(map_pages(scratch_bytes)) {
        gates.open_all();
    }

    soft::Random random;
    const size_t thread;
    const bool alone; // no other thread calls the driver
    const bool gated; // streams may have to wait for gates, whose timing cannot be replayed
    char *const scratch;
    Gates gates;
    History history;
    Shape shape;
    bool lost = false;                 // the last call found that its device is lost
    std::atomic<uint64_t> began{0};    // start of the current call in milliseconds; 0: no call
    std::array<uint64_t, 1000> seen{}; // number of calls by status
    Pool mine;                         // addresses of page-locked memory

    bool chance(unsigned percent) { return random.below(100) < percent; }
};

inline thread_local Player *player = nullptr;

} // namespace fuzz
