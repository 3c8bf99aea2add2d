#pragma once

#include "check/control_flow.h"
#include "check/places.h"
#include "check/unfinished.h"
#include "ptx/observer.h"

#include <array>
#include <map>
#include <memory>
#include <optional>

// Finds wrong uses of barriers in a launch: lanes that go elsewhere while others wait for them,
// shuffles that read from lanes that do not take part, wrong numbers of threads, objects that are
// not valid mbarriers, and copies that nothing waits for.

namespace soft::check {

class KernelSync final : public ptx::Observer {
  public:
    KernelSync(ptx::Machine &machine, Report report)
        : machine_(machine), report_(std::move(report)), flow_(machine.code) {}

    void run(ptx::Warp &warp, const ptx::Step &step) override;
    void before(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) override;
    void after(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) override;
    void starts(ptx::ThreadBlock &block) override;
    void ends(const ptx::ThreadBlock &block) override;
    void hangs(const ptx::ThreadBlock &block) override;
    void arrives(const ptx::Warp &warp, const ptx::Arrival &arrival) override;
    void completes(const ptx::ThreadBlock &block, unsigned barrier) override;
    void uses_cluster(const ptx::Warp &warp, const ptx::ClusterUse &use) override;
    void completes_cluster(const ptx::Cluster &cluster) override;
    void uses_mbarrier(const ptx::Warp &warp, const ptx::MbarrierUse &use) override;

  private:
    // Lanes of a warp that wait for others: for those of their mask, or, at an aligned barrier, for
    // all. The others may have ended, but not have gone on without the lanes that wait.
    struct Wait {
        bool barrier = false;
        uint32_t number = 0; // the mask, or the number of the barrier
        uint32_t place = 0;  // where the first of them waits
        // The same as an index in the kernel; inside a called function, the index of the call.
        size_t step = 0;
        uint32_t lanes = 0;    // those that wait
        uint32_t expected = 0; // all that must come
        uint64_t since = 0;    // WarpState::time when the first lane arrived
    };
    // The last operation of a lane on which others may depend.
    struct Last {
        bool known = false;
        uint32_t place = 0;
        size_t step = 0; // as Wait::step
        uint64_t time = 0;
    };
    struct WarpState {
        uint64_t time = 0; // grows with each access
        // A hazard has been reported because lanes have diverged. What follows from that is not
        // reported.
        bool confused = false;
        uint32_t lanes = 0;      // all
        uint32_t at_cluster = 0; // those that have arrived at the cluster's barrier and not waited
        std::vector<Wait> waits;
        // What all lanes did last together, and what each lane did last. The later one counts.
        Last last_of_all, last_of[ptx::warp_size];
        bool apart = false; // the lanes of an access were not all: last_of has been set

        void begin(uint32_t of_warp);
        const Last &last(unsigned lane) const {
            return last_of[lane].time > last_of_all.time ? last_of[lane] : last_of_all;
        }
    };
    // The present phase of a barrier.
    struct Phase {
        unsigned expected;
        bool for_all; // the barrier is for all threads of the block, however many there are
        Done first;
        size_t step; // as Wait::step
    };
    struct Block {
        std::vector<WarpState> warps;
        std::array<std::optional<Phase>, ptx::barriers_of_block> phases;
        Mbarriers mbarriers;
        UnfinishedCopies copies;
    };
    // What a hazard says: "FIRST `middle` SECOND `end`. `remedy`".
    struct Story {
        std::string memory;
        Done first;
        std::string middle;
        const Done *second = nullptr;
        std::string end = {};
        std::string remedy;
        uint64_t start = 0, stop = 0;
    };

    Block &state_of(const ptx::ThreadBlock &block) {
        if (&block != last_) {
            last_ = &block;
            last_block_ = blocks_.at(&block).get();
        }
        return *last_block_;
    }
    WarpState &state_of(const ptx::Warp &warp) { return state_of(warp.block).warps[warp.number]; }
    void report(const ptx::ThreadBlock &block, const Story &story);
    std::string name_at(uint32_t place) const;

    void keep_last(const ptx::Warp &warp, const ptx::Step &step, uint32_t lanes);
    Wait *find(WarpState &state, bool barrier, uint32_t number) const;
    Wait &wait_at(const ptx::Warp &warp, const ptx::Step &step, bool barrier, uint32_t number,
                  uint32_t lanes);
    bool is_behind(size_t step, const Last &last, bool later);
    void look_at_ended(const ptx::Warp &warp, const Wait &wait);
    void left_alone(const ptx::Warp &warp, const Wait &wait, unsigned lane, uint32_t place);

    void meet(ptx::Warp &warp, const ptx::Step &step, uint32_t lanes);
    void meet_in_tile(const ptx::Warp &warp, const ptx::Step &step, uint32_t lanes);
    void look_at_masks(const ptx::Warp &warp, const ptx::Step &step, uint32_t mask, uint32_t lanes);
    void look_at_others(const ptx::Warp &warp, const ptx::Step &step, uint32_t mask);
    void look_at_sources(const ptx::Warp &warp, const ptx::Step &step, uint32_t lanes);

    void look_at_count(const ptx::Warp &warp, const ptx::Arrival &arrival);
    void wait_at_barrier(const ptx::Warp &warp, const ptx::Step &step, unsigned barrier,
                         uint32_t lanes, bool stays);
    void look_at_ended_warps(const ptx::ThreadBlock &block, const Phase &phase, unsigned barrier);
    bool hangs_in_warps(const ptx::ThreadBlock &block);
    bool hangs_in_warp(const ptx::Warp &warp);
    void hangs_at(const ptx::ThreadBlock &block, unsigned barrier);

    ptx::Machine &machine_;
    const Report report_;
    ControlFlow flow_; // of the kernel
    // For each hazard of this launch, the first block and thread that it was found in.
    std::map<Hazards::Key, std::pair<uint64_t, unsigned>> found_;
    std::map<const ptx::ThreadBlock *, std::unique_ptr<Block>> blocks_;
    const ptx::ThreadBlock *last_ = nullptr; // the block that state_of() has found last
    Block *last_block_ = nullptr;
    uint32_t testing_ = 0;                 // the lanes that ask an mbarrier
    uint64_t tested_[ptx::warp_size] = {}; // the mbarrier of each lane
};

} // namespace soft::check
