#pragma once

#include "ptx/code.h"

#include <memory>

// 32 threads that run together.

namespace soft::ptx {

struct Machine;
struct ThreadBlock;

// The registers of a function's call, for the lanes that are in it.
struct Frame {
    const Code *code = nullptr;
    Frame *caller = nullptr;
    const Step *call = nullptr; // in the caller
    uint32_t lanes = 0;         // that are in it, or in what it called
    unsigned depth = 0;
    uint64_t local_begin = 0; // of its part of the local memory
    std::unique_ptr<char[]> memory;
    char *rows = nullptr; // aligned
};

// Lanes at the same place. All but one of a warp's groups wait: for their turn, or for others.
struct Group {
    enum class Wait : uint8_t {
        None,
        Barrier, // of the block, `number`; released by it
        Lanes,   // until the lanes in `number` are here as well
        Met,     // they are: the step that waited is to be run
    };
    Frame *frame = nullptr;
    const Step *next = nullptr;
    uint32_t mask = 0;
    Wait wait = Wait::None;
    uint32_t number = 0;
    uint64_t turn = 0; // those that have not had their turn for longest go first
};

struct Warp {
    // Of the group that runs.
    const Step *next = nullptr;
    const Step *limit = nullptr; // here, or behind, something else is to be done first
    char *rows = nullptr;
    uint32_t active = 0; // lanes for which the step is executed
    uint32_t mask = 0;   // lanes of the group
    uint32_t live = 0;   // lanes of the warp that have not ended
    Frame *frame = nullptr;

    Machine &machine;
    ThreadBlock &block;
    unsigned number = 0; // in its block

    Warp(Machine &machine, ThreadBlock &block) : machine(machine), block(block) {}
    Warp(const Warp &) = delete;

    template <class T> T *row(Row offset) const { return reinterpret_cast<T *>(rows + offset); }
    uint32_t predicate(Row offset) const { return *row<uint32_t>(offset); }
    void set_predicate(Row offset, uint32_t value) const {
        uint32_t *mask = row<uint32_t>(offset);
        *mask = (*mask & ~active) | (value & active);
    }

    void start(unsigned number, uint32_t lanes);
    // Runs about so many steps; returns how many it did. Less: it ended, waits or has yielded.
    uint64_t run(uint64_t steps);
    std::string what_it_waits_for() const;
    void release(unsigned barrier);

    // What steps do with the group that runs.
    void jump(const Step *target);                 // of all its lanes
    void split(const Step *target);                // of its active lanes
    void send(const Step *target, uint32_t lanes); // some of its lanes
    void enter(const Step &step, const Code &code, const Call &call);
    void leave();
    void exit();
    void wait_barrier(unsigned barrier);
    // False if the step cannot be run until other lanes have come to it: nothing is to be done.
    bool meet(const Step &step, uint32_t members);
    void interrupt() { limit = nullptr; }
    void yield(); // ends the slice

    char *local(unsigned lane) { return local_.data() + lane * local_stride_; }
    size_t local_bytes() const { return local_bytes_; }
    unsigned lane_of_fault() const { return unsigned(__builtin_ctz(active)); }

  private:
    bool select();
    void run_group(const Group &group);
    void wait(const Group &group);
    void merge();
    void resolve_meetings();
    void jumped_back();
    // frame.cpp
    Frame *make_frame(const Code &code, Frame *caller, const Step *call, uint32_t lanes);
    void drop_lanes(Frame *frame, uint32_t lanes);
    void make_room(size_t local_bytes);
    void fill(const Frame &frame, const std::vector<Filling> &fillings);
    void refill(const Frame &frame);
    uint64_t value_of(const Filling &filling, const Frame &frame, unsigned lane) const;
    void transfer(const Frame &from, const Frame &to, const std::vector<Transfer> &transfers);

    std::vector<Group> waiting_;
    bool met_ = false; // the group was released from a meeting
    bool yielded_ = false;
    bool behind_ = false; // a group waits before this one's place
    unsigned jumps_back_ = 0;
    uint64_t turn_ = 0, turns_ = 0;
    std::vector<char> local_;
    size_t local_bytes_ = 0, local_stride_ = 0;
    std::vector<std::unique_ptr<Frame>> frames_; // all that were ever made
    std::vector<std::vector<Frame *>> idle_;     // by Code::index
};

} // namespace soft::ptx
