#pragma once

#include "check/places.h"
#include "ptx/observer.h"

#include <deque>
#include <functional>
#include <map>

// The mbarriers of a block, and its asynchronous copies into shared memory.

namespace soft::check {

// The thread that did something, and its place in the code.
struct Done {
    uint32_t place = 0;
    unsigned thread = 0;
};

class Mbarriers {
  public:
    struct State {
        bool valid = false;
        Done last;          // what made it valid or invalid
        uint64_t phase = 0; // the number of phases that have ended
        bool odd = false;
    };
    // Returns the mbarrier at this address, or null if there never was one.
    const State *find(uint64_t address) const;
    void set(uint64_t address, bool valid, const Done &done);
    // Counts the phases of an mbarrier. `odd` is the parity of its present phase.
    void look(uint64_t address, bool odd);

  private:
    std::map<uint64_t, State> states_;
};

// The copies that nothing has waited for.
class UnfinishedCopies {
  public:
    // The next functions are about cp.async copies, which belong to the thread.
    void begin(const Done &copy);
    void commit(unsigned thread);
    void await(unsigned thread, size_t groups_left, bool also_open);
    // An arrival at an mbarrier that waits for the thread's copies.
    void hand_over(unsigned thread, uint64_t mbarrier, uint64_t phase);
    // A copy that tells an mbarrier when it is done.
    void begin(const Done &copy, uint64_t mbarrier, uint64_t phase);
    // A thread has seen the end of the mbarrier's phases before this one.
    void ended(uint64_t mbarrier, uint64_t phase);
    void for_each(const std::function<void(const Done &)> &take) const;

  private:
    struct Thread {
        std::vector<Done> open;
        std::deque<std::vector<Done>> groups;
    };
    struct Handed {
        Done copy;
        uint64_t phase;
    };
    std::map<unsigned, Thread> threads_;             // those that have made copies
    std::map<uint64_t, std::vector<Handed>> handed_; // by the address of the mbarrier
};

} // namespace soft::check
