#pragma once

#include "base/cuda_api.h"

#include <string>

namespace soft {

// Says why the present call is not supported: which argument, and what is missing. Returns
// CUDA_ERROR_NOT_SUPPORTED. Only this function returns that status, so that every such call is in
// the report with its reason.
CUresult not_supported(std::string why);

// Returns the reason that this thread has last given to not_supported().
const std::string &why_not_supported();

} // namespace soft
