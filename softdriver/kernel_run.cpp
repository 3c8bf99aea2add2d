#include "kernel_run.h"

#include "state.h"

#include <cstdio>

// Kernels are interpreted piece by piece. What they touch is looked up when they first touch it:
// it is not known before.

namespace soft {

KernelRun::KernelRun(KernelFunctionPtr function, ptx::Launch launch)
    : function_(std::move(function)), launch_(std::move(launch)) {
    launch_.find = [this](uintptr_t address, ptx::Segment &segment) {
        return find(address, segment);
    };
    launch_.print = [](const std::string &text) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
    };
}

bool KernelRun::advance(uint64_t steps) {
    if (!run_)
        run_ = std::make_unique<ptx::Run>(launch_);
    ptx::Run::State state = run_->advance(steps);
    failed_ = state == ptx::Run::State::Failed;
    return state != ptx::Run::State::More;
}

bool KernelRun::find(uintptr_t address, ptx::Segment &segment) {
    auto next = known_.upper_bound(address);
    if (next != known_.begin()) {
        const ptx::Segment &known = std::prev(next)->second.segment;
        if (address - known.begin < known.bytes) {
            segment = known;
            return true;
        }
    }
    Known found;
    Lock lock(state().mutex);
    if (!look_up(address, found))
        return false;
    segment = found.segment;
    known_.emplace(segment.begin, std::move(found));
    return true;
}

bool KernelRun::look_up(uintptr_t address, Known &known) const {
    const Allocation *allocation = find_allocation(address);
    if (!allocation || !reaches(*function_->owner, *allocation))
        return false;
    known.segment = {allocation->begin, allocation->bytes, allocation->host,
                     !allocation->read_only};
    return true;
}

CUresult KernelRun::end(Operation &) {
    if (!failed_)
        return CUDA_SUCCESS;
    const ptx::Fault &fault = run_->fault();
    std::string text = describe(fault);
    if (state().settings.print_kernel_faults)
        std::fprintf(stderr, "%s\n", text.c_str());
    return fault.status;
}

std::string KernelRun::describe(const ptx::Fault &fault) const { return fault.text; }

} // namespace soft
