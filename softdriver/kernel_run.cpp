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

// What a stream is to free later is still there for what comes before.
bool KernelRun::look_up_freed(uintptr_t address, Known &known) const {
    Freed::EntryPtr freed = state().freed.find(address);
    const Context &context = *function_->owner;
    if (!freed || !freed->there)
        return false;
    if (freed->device != context.device && !(freed->pool && freed->pool->admits(*context.device)))
        return false;
    known.segment = {freed->begin, freed->bytes, freed->host, true};
    known.shadow = freed->shadow;
    return true;
}

bool KernelRun::look_up(uintptr_t address, Known &known) const {
    const Allocation *allocation = find_allocation(address);
    if (!allocation)
        return look_up_freed(address, known);
    if (!reaches(*function_->owner, *allocation))
        return false;
    bool read_only = allocation->read_only || (allocation->kind == MemoryKind::Registered &&
                                               (allocation->flags & CU_MEMHOSTREGISTER_READ_ONLY));
    known.segment = {allocation->begin, allocation->bytes, allocation->host, !read_only};
    return true;
}

CUresult KernelRun::end(Operation &) {
    if (!failed_)
        return CUDA_SUCCESS;
    const ptx::Fault &fault = run_->fault();
    std::string text = fault.text;
    if (fault.address)
        text += "; the address is " + describe_address(fault.address);
    if (state().settings.print_kernel_faults)
        std::fprintf(stderr, "%s\n", text.c_str());
    state().kernel_fault = std::move(text);
    return fault.status;
}

} // namespace soft
