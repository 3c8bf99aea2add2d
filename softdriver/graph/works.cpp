#include "graph/works.h"

#include "memory/allocation.h"

namespace soft {
namespace {

struct Failing : Piecewise {
    explicit Failing(CUresult status) : status(status) {}
    bool advance(uint64_t) override { return true; }
    Outcome end() override { return {status, {}, {}, {}}; }
    const CUresult status;
};

} // namespace

CUcontext home_of(uintptr_t address, const Context &context) {
    const Allocation *memory = find_allocation(address);
    bool bound = memory && !memory->pool && memory->context;
    return bound ? memory->context : context.handle;
}

OperationPtr failing_operation(CUresult status) {
    auto operation = std::make_shared<Operation>();
    operation->pieces = std::make_shared<Failing>(status);
    return operation;
}

} // namespace soft
