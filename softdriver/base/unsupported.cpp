#include "base/unsupported.h"

#include <utility>

namespace soft {

static thread_local std::string reason;

CUresult not_supported(std::string why) {
    reason = std::move(why);
    return CUDA_ERROR_NOT_SUPPORTED;
}

const std::string &why_not_supported() { return reason; }

} // namespace soft
