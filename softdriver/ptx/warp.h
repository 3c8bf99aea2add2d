#pragma once

#include "ptx/code.h"

#include <memory>

// A warp: 32 threads whose lanes run in groups.

namespace soft::ptx {

struct Machine;
struct ThreadBlock;

// The registers of one call of a function, in the lanes that made the call.
struct Frame {
    const Code *code = nullptr;
    Frame *caller = nullptr;
    const Step *call = nullptr; // the step that made the call
    uint32_t lanes = 0;         // the lanes that are in this call, or in calls made from it
    unsigned depth = 0;
    uint64_t local_begin = 0; // offset in local memory of the part that belongs to the call
    std::unique_ptr<char[]> memory;
    char *rows = nullptr; // the rows in `memory`, aligned to a cache line
};

// A group of lanes that are at the same step. In a warp one group runs. The other groups wait until
// it is their turn, or for other lanes.
struct Group {
    enum class Wait : uint8_t {
        None,
        Barrier, // waits for barrier `number` of the block
        Lanes,   // waits for the lanes in the mask `number`
        Met,     // the awaited lanes have arrived, so the step can run
    };
    Frame *frame = nullptr;
    const Step *next = nullptr;
    uint32_t mask = 0;
    Wait wait = Wait::None;
    uint32_t number = 0;
    uint64_t turn = 0; // groups with lower numbers run first
};

// Returns those of `lanes` that have this mask.
inline uint32_t lanes_with(const uint32_t *masks, uint32_t mask, uint32_t lanes) {
    uint32_t found = 0;
    for (; lanes; lanes &= lanes - 1)
        found |= masks[__builtin_ctz(lanes)] == mask ? lanes & -lanes : 0;
    return found;
}

struct Warp {
    // The following members are the state of the running group.
    const Step *next = nullptr;
    const Step *limit = nullptr; // the group stops here, so that another group can run
    char *rows = nullptr;
    uint32_t active = 0; // lanes of the group that execute the current step
    uint32_t mask = 0;   // lanes of the group
    uint32_t live = 0;   // lanes of the warp that have not ended
    Frame *frame = nullptr;

    Machine &machine;
    ThreadBlock &block;
    unsigned number = 0; // index of the warp in its block
    // Lanes have executed griddepcontrol.wait, or have learned that others have.
    bool waited = false;

    Warp(Machine &machine, ThreadBlock &block) : machine(machine), block(block) {}
    Warp(const Warp &) = delete;

    template <class T> T *row(Row offset) const { return reinterpret_cast<T *>(rows + offset); }
    uint32_t predicate(Row offset) const { return *row<uint32_t>(offset); }
    void set_predicate(Row offset, uint32_t value) const {
        uint32_t *mask = row<uint32_t>(offset);
        *mask = (*mask & ~active) | (value & active);
    }

    void start(unsigned number, uint32_t lanes);
    // Runs about `steps` steps and returns how many it has run. It runs fewer if the warp ends,
    // waits or yields.
    uint64_t run(uint64_t steps);
    std::string what_it_waits_for() const;
    void release(unsigned barrier);
    // Returns the step at which all lanes wait for this barrier, or null.
    const Step *waits_at(unsigned barrier) const;

    // The functions up to exit() change the running group. Steps call them.
    void jump(const Step *target);                 // all lanes jump
    void split(const Step *target);                // only the active lanes jump
    void send(const Step *target, uint32_t lanes); // the lanes in `lanes` jump
    void enter(const Step &step, const Code &code, const Call &call);
    void leave();
    void exit();
    void wait_barrier(unsigned barrier);
    // Waits for the lanes in `members`. Returns false if some of them have not arrived. The step
    // must then do nothing, and runs again later.
    bool meet(const Step &step, uint32_t members);
    // Each lane waits for the lanes that it names in `members`. When all lanes of a tile have
    // arrived, calls `exchange`, with only these lanes active.
    template <class Exchange>
    void meet_named(const Step &step, const uint32_t *members, Exchange exchange);
    // The same wait, for steps that need no exchange between lanes. Afterwards only the lanes whose
    // members have arrived are active. Returns false if there are none.
    bool meet_all_named(const Step &step, const uint32_t *members);
    // Returns the lanes that meet together with the first one of `lanes`. Other tiles of the warp
    // meet apart: they name none of these lanes, and these lanes name none of them. So lanes that
    // give different masks by mistake meet together.
    static uint32_t first_tile(const uint32_t *members, uint32_t lanes);
    // Returns whether meet() would return true for these lanes.
    bool has_met(uint32_t members, uint32_t lanes) const {
        return met_ || !(members & live & ~lanes);
    }
    const std::vector<Group> &waiting() const { return waiting_; }
    void interrupt() { limit = nullptr; }
    void yield(); // ends the warp's slice, so that other warps run

    // Makes at least `bytes` bytes of local memory available to each lane.
    void make_room(size_t bytes);
    char *local(unsigned lane) { return local_.data() + lane * local_stride_; }
    size_t local_bytes() const { return local_bytes_; }
    // Returns how far the warp's access at this place of the program is from the previous access at
    // this place, which was in an earlier round of a loop or in an earlier block. The next access
    // will probably be as far from this one.
    uintptr_t moved(uint32_t site, const char *now) {
        uintptr_t before = last_[site];
        return (last_[site] = reinterpret_cast<uintptr_t>(now)) - before;
    }
    unsigned lane_of_fault() const { return unsigned(__builtin_ctz(active)); }

  private:
    template <class Execute> uint64_t run_steps(uint64_t steps, Execute execute);
    bool select();
    void run_group(const Group &group);
    void wait(const Group &group);
    void merge();
    void resolve_meetings();
    void jumped_back();
    // The following functions are in frame.cpp.
    Frame *make_frame(const Code &code, Frame *caller, const Step *call, uint32_t lanes);
    void drop_lanes(Frame *frame, uint32_t lanes);
    uint64_t local_end(const Frame &frame, uint32_t lanes) const;
    void fill(const Frame &frame, const std::vector<Filling> &fillings);
    void refill(const Frame &frame);
    uint64_t value_of(const Filling &filling, const Frame &frame, unsigned lane) const;
    void transfer_predicate(const Frame &from, const Frame &to, const Transfer &part);
    void transfer(const Frame &from, const Frame &to, const std::vector<Transfer> &transfers);

    std::vector<uintptr_t> last_; // for each access of the program, see moved()
    std::vector<Group> waiting_;
    bool met_ = false; // the lanes that the next step waits for have arrived
    bool yielded_ = false;
    bool behind_ = false; // another group of lanes is at this step or at an earlier one
    unsigned jumps_back_ = 0;
    uint64_t turn_ = 0, turns_ = 0;
    std::vector<char> local_;
    size_t local_bytes_ = 0, local_stride_ = 0;
    std::vector<std::unique_ptr<Frame>> frames_; // all frames that were ever created
    // For each function, by Code::index, the frames that are not in use.
    std::vector<std::vector<Frame *>> idle_;
};

template <class Exchange>
void Warp::meet_named(const Step &step, const uint32_t *members, Exchange exchange) {
    const uint32_t all = active;
    for (uint32_t left = all; left;) {
        active = met_ ? left : first_tile(members, left);
        left &= ~active;
        if (meet(step, members[lane_of_fault()]))
            exchange();
    }
    active = all & mask;
}

} // namespace soft::ptx
