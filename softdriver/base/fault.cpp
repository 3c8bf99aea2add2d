#include "base/fault.h"

#include "base/parse.h"

namespace soft {

bool is_sticky(CUresult status) {
    return status == CUDA_ERROR_ILLEGAL_ADDRESS || status == CUDA_ERROR_LAUNCH_TIMEOUT ||
           status == CUDA_ERROR_ASSERT || status == CUDA_ERROR_ECC_UNCORRECTABLE ||
           (status >= CUDA_ERROR_HARDWARE_STACK_ERROR && status <= CUDA_ERROR_LAUNCH_FAILED);
}

std::string Faults::add(const std::string &text) {
    if (text == "none") {
        clear();
        return "";
    }
    size_t first = text.find(':');
    size_t second = first == std::string::npos ? first : text.find(':', first + 1);
    if (second == std::string::npos)
        return "fault must be FUNCTION:NTH:STATUS, bytes:SIZE:STATUS, operation:NTH:STATUS or none";
    std::string name = text.substr(0, first), amount = text.substr(first + 1, second - first - 1);
    uint64_t left = 0, number = 0;
    What what = name == "bytes" ? What::Bytes : name == "operation" ? What::Operation : What::Call;
    Function function = what == What::Call ? find_function(name.c_str()) : Function::Count;
    if (what == What::Call && function == Function::Count)
        return "fault names a function that is not implemented: " + name;
    if (what == What::Bytes && !parse_size(amount, left))
        return "fault=bytes needs a size such as 64MiB, not '" + amount + "'";
    if (what != What::Bytes && (!parse_number(amount, left) || left == 0))
        return "fault needs a number, 1 or more, not '" + amount + "'";
    if (!parse_number(text.substr(second + 1), number) || number == 0 || number > 999)
        return "fault needs a CUresult from 1 to 999";
    auto status = static_cast<CUresult>(number);
    if (what == What::Operation && !is_sticky(status))
        return "fault=operation needs a status that loses the device, such as 700 or 719";
    faults_.push_back({what, function, left, status});
    return "";
}

CUresult Faults::count_down(What what, Function function) {
    for (size_t i = 0; i < faults_.size(); i++) {
        Fault &fault = faults_[i];
        if (fault.what != what || fault.function != function || --fault.left)
            continue;
        CUresult status = fault.status;
        faults_.erase(faults_.begin() + i);
        return status;
    }
    return CUDA_SUCCESS;
}

CUresult Faults::strike_call(Function function) { return count_down(What::Call, function); }

CUresult Faults::strike_operation() { return count_down(What::Operation, Function::Count); }

CUresult Faults::strike_allocation(size_t bytes) {
    CUresult status = CUDA_SUCCESS;
    for (Fault &fault : faults_) {
        if (fault.what != What::Bytes)
            continue;
        bool fits = bytes <= fault.left;
        fault.left = fits ? fault.left - bytes : 0;
        if (!fits)
            status = fault.status;
    }
    return status;
}

} // namespace soft
