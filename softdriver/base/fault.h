#pragma once

#include "base/functions.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace soft {

// Injected errors, also called faults. Each counts from the moment at which it is added:
//   FUNCTION:NTH:STATUS    the nth call of the function returns the status
//   bytes:SIZE:STATUS      allocations return the status as soon as their sum exceeds SIZE,
//                          until faults are cleared
//   operation:NTH:STATUS   the device is lost when the nth operation that has an action runs;
//                          the call that submitted the operation succeeded
class Faults {
  public:
    // Adds the fault that a text describes, or clears all faults if the text is "none". Returns an
    // error text, which is empty on success.
    std::string add(const std::string &text);
    void clear() { faults_.clear(); }

    // Count a call, an allocation or an operation. Return the status of the fault that is due, or
    // CUDA_SUCCESS if none is.
    CUresult strike_call(Function function);
    CUresult strike_allocation(size_t bytes);
    CUresult strike_operation();

  private:
    enum class What { Call, Bytes, Operation };
    struct Fault {
        What what;
        Function function;
        uint64_t left; // number of calls, operations or bytes that are left until the fault is due
        CUresult status;
    };

    CUresult count_down(What what, Function function);

    std::vector<Fault> faults_;
};

// Returns true for errors after which a device runs no more work.
bool is_sticky(CUresult status);

} // namespace soft
