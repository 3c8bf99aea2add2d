#pragma once

#include "modules.h"
#include "operation.h"
#include "ptx/run.h"

#include <map>

namespace soft {

class RaceShadow;

// A launch of a kernel as work of a stream.
class KernelRun : public Piecewise, public std::enable_shared_from_this<KernelRun> {
  public:
    KernelRun(KernelFunctionPtr function, ptx::Launch launch);

    bool advance(uint64_t steps) override;
    CUresult end(Operation &operation) override;

  private:
    // Memory that the kernel has come to use.
    struct Known {
        ptx::Segment segment;
        std::shared_ptr<RaceShadow> shadow;
    };

    bool find(uintptr_t address, ptx::Segment &segment);
    bool look_up(uintptr_t address, Known &known) const;
    bool look_up_freed(uintptr_t address, Known &known) const;

    KernelFunctionPtr function_;
    ptx::Launch launch_;
    std::unique_ptr<ptx::Run> run_; // from the first piece on
    std::map<uintptr_t, Known> known_;
    bool failed_ = false;
};

} // namespace soft
