#pragma once

#include "base/functions.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace soft {

// What is made to fail, all counted from when it was asked for:
//   FUNCTION:NTH:STATUS    the nth call of the function returns the status
//   bytes:SIZE:STATUS      allocations of more than so many bytes together return it, from the
//                          first that does not fit until faults are cleared
//   operation:NTH:STATUS   the device is lost when it comes to the nth operation that does
//                          something; the call that submitted it has long returned
class Faults {
  public:
    // Adds what a text describes; "none" clears all. Returns why it could not, or an empty text.
    std::string add(const std::string &text);
    void clear() { faults_.clear(); }

    // The status that a fault imposes, if one does.
    CUresult strike_call(Function function);
    CUresult strike_allocation(size_t bytes);
    CUresult strike_operation();

  private:
    enum class What { Call, Bytes, Operation };
    struct Fault {
        What what;
        Function function;
        uint64_t left; // calls or operations until it strikes, or bytes
        CUresult status;
    };

    CUresult count_down(What what, Function function);

    std::vector<Fault> faults_;
};

// Errors after which a device does nothing any more.
bool is_sticky(CUresult status);

} // namespace soft
