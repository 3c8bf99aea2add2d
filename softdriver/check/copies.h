#pragma once

#include "check/clocks.h"
#include "ptx/machine.h"

#include <deque>
#include <map>

// What a thread does not wait for: copies by hardware, and products by wgmma. Each is an access of
// an actor (clocks.h). The operations of an actor are in groups, and the number of the group is the
// time of its operations. A thread that knows this time of the actor knows that the operations are
// complete.

namespace soft::check {

// Which actors the blocks of a launch have.
class Roles {
  public:
    Roles() = default;
    explicit Roles(const ptx::Machine &machine); // looks at the code

    // The actors of a thread: its copies by cp.async, and the reads and writes of its bulk copies
    // that belong to groups.
    unsigned copies(unsigned thread) const { return actors.stride * copies_ + thread; }
    unsigned bulk_reads(unsigned thread) const { return actors.stride * bulk_ + thread; }
    unsigned bulk_writes(unsigned thread) const { return actors.stride * (bulk_ + 1) + thread; }
    // The actor of a warp: its products by wgmma.
    unsigned products(unsigned warp) const { return actors.first_of_warps() + warp; }
    // The actor for the bulk copies that signal an mbarrier, by the number of the mbarrier. Returns
    // the number of all actors if there are too many mbarriers.
    unsigned of_mbarrier(unsigned number) const {
        return number < actors.others ? actors.first_other() + number : actors.count();
    }

    enum class Role { Thread, Copies, BulkReads, BulkWrites, Products, Mbarrier };
    Role role(unsigned actor) const;
    unsigned owner(unsigned actor) const; // the thread of an actor, except of an mbarrier's
    // Returns whether the actor's accesses are in the async proxy.
    bool is_async(unsigned actor) const {
        return actor >= actors.stride && role(actor) != Role::Copies;
    }
    // Returns whether there are actors that are no threads.
    bool any() const { return actors.count() > actors.stride; }
    bool any_async() const { return actors.of_warps || actors.others; }

    Actors actors;

  private:
    unsigned copies_ = 0, bulk_ = 0; // the planes
};

// The groups of operations of each actor.
class Groups {
  public:
    // Begins an operation. Returns its time.
    uint32_t begin(unsigned actor);
    // The same for an actor whose operations are counted in the groups of another actor.
    void begin_with(unsigned actor, uint32_t time) { groups_[actor].last = time; }
    void commit(unsigned actor);
    // Returns the time up to which operations are complete after a wait for all groups except the
    // last `left`.
    uint32_t waited(unsigned actor, size_t left) const;
    // Ends the group that is open, without a commit. Returns its time.
    uint32_t close(unsigned actor);
    // Returns whether an operation is not known to be complete to all threads of the block.
    bool any_pending(const Clocks &clocks) const;

  private:
    struct Group {
        uint32_t open = first_time_of_actors; // the time of operations that begin now
        uint32_t last = 0;                    // that of the last one
        std::deque<uint32_t> ends;            // the time of each group that was committed
    };
    std::map<unsigned, Group> groups_; // by actor
};

// What arriving threads and copies pass on to the threads that wait for a phase of an mbarrier.
class Phases {
  public:
    struct Phase {
        Told arriving; // told in this phase
        Told over;     // told in the phases that have ended
        bool odd = false;
        uint32_t time = first_time_of_actors; // of the copies that belong to this phase
        uint32_t last_copy = 0;               // the time of the last copy
        unsigned actor = 0;                   // the one that makes the copies
    };
    // Counts the phases of an mbarrier. `odd` is the parity of its present phase.
    Phase &look(uint64_t address, bool odd, const Roles &roles, const Clocks &clocks);
    Phase *find(uint64_t address);
    void forget(uint64_t address);

  private:
    std::map<uint64_t, Phase> phases_;
    unsigned made_ = 0; // numbers of mbarriers
};

} // namespace soft::check
