#pragma once

#include "fuzz_pools.h"

#include <cstdio>

// One thread that calls the driver at random, and what it did last.

namespace fuzz {

// The last calls of a thread. Written by the thread, read when something has gone wrong.
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

// What is special about the function that is called.
struct Shape {
    bool touches_pointers = false;  // reads or writes at host pointers that it does not know
    bool touches_addresses = false; // and at device addresses that it does not know
    bool own_buffers = true;        // wants memory of the caller for its data
    bool keeps_memory = false;      // goes on to use the memory that it is given
    bool counted = false;           // some argument counts the elements of an array
    size_t limit = SIZE_MAX;        // of sizes, because of the pointers
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
    const bool gated; // streams may really have to wait; the timing of that cannot be replayed
    char *const scratch;
    Gates gates;
    History history;
    Shape shape;
    std::atomic<uint64_t> began{0};    // milliseconds; 0: in no call
    std::array<uint64_t, 1000> seen{}; // calls by status
    Pool mine;                         // addresses of page-locked memory

    bool chance(unsigned percent) { return random.below(100) < percent; }
};

inline thread_local Player *player = nullptr;

} // namespace fuzz
