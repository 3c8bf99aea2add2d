#include "graph/works.h"

namespace soft {
namespace {

struct Failing : Piecewise {
    explicit Failing(CUresult status) : status(status) {}
    bool advance(uint64_t) override { return true; }
    Outcome end() override { return {status, {}, {}, {}}; }
    const CUresult status;
};

} // namespace

OperationPtr failing_operation(CUresult status) {
    auto operation = std::make_shared<Operation>();
    operation->pieces = std::make_shared<Failing>(status);
    return operation;
}

} // namespace soft
