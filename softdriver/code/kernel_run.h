#pragma once

#include "code/modules.h"
#include "ptx/run.h"
#include "stream/stream.h"
#include "work/operation.h"

#include <map>

namespace soft {

// Runs a launch of a kernel as an operation of a stream.
class KernelRun : public Piecewise {
  public:
    // `workspace` is null unless the launch is cooperative.
    KernelRun(KernelFunctionPtr function, ptx::Launch launch,
              std::shared_ptr<GridWorkspace> workspace);

    bool advance(uint64_t steps) override;
    Outcome end() override;
    Outcome so_far() override;
    bool lets_next_begin() const override {
        return launch_.dependents && (launch_.dependents->allowed || over_);
    }
    bool waits() const override;
    // Says that the kernel may begin before `other` ends; null if `other` has ended already.
    // `begun`: `other` has begun already, and will not let this one begin early.
    void begin_before_end_of(KernelRun *other, bool begun);

  private:
    void run_piece(uint64_t steps);
    std::string describe(uintptr_t address, uintptr_t &begin) const;
    bool find(uintptr_t address, ptx::Segment &segment);
    bool look_up(uintptr_t address, ptx::Segment &segment) const;
    bool look_up_freed(uintptr_t address, ptx::Segment &segment) const;
    void come_to_use(const ptx::Segment &segment);
    bool same_memory(uintptr_t one, uintptr_t other) const;
    std::vector<Range> ranges(const std::vector<ptx::Accessed> &accessed) const;
    void set_fault() const;

    KernelFunctionPtr function_;
    ptx::Launch launch_;
    std::shared_ptr<GridWorkspace> workspace_;
    std::unique_ptr<ptx::Run> run_; // null until the first piece runs
    // The size of each allocation that the kernel has accessed, by address.
    std::map<uintptr_t, size_t> used_;
    std::vector<uint64_t> conditions_set_; // see Outcome
    bool prints_ = false;
    bool over_ = false, failed_ = false;
    uint64_t milliseconds_; // how long its pieces may take; 0: no limit
    Clock::duration taken_{};
    // What later launches see of this one, if they may begin before it ends.
    std::vector<std::shared_ptr<ptx::Dependence>> followers_;
    bool splits_ = false;  // it pauses where it waits, even if the prerequisite has ended
    int early_pieces_ = 0; // pieces that have run before the prerequisite ended
};

} // namespace soft
