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

  private:
    std::string describe(uintptr_t address, uintptr_t &begin) const;
    bool find(uintptr_t address, ptx::Segment &segment);
    bool look_up(uintptr_t address, ptx::Segment &segment) const;
    bool look_up_freed(uintptr_t address, ptx::Segment &segment) const;
    void come_to_use(const ptx::Segment &segment);
    bool same_memory(uintptr_t one, uintptr_t other) const;
    std::vector<Range> ranges(const std::vector<ptx::Accessed> &accessed) const;

    KernelFunctionPtr function_;
    ptx::Launch launch_;
    std::shared_ptr<GridWorkspace> workspace_;
    std::unique_ptr<ptx::Run> run_; // null until the first piece runs
    // The size of each allocation that the kernel has accessed, by address.
    std::map<uintptr_t, size_t> used_;
    bool failed_ = false;
};

} // namespace soft
