#include "api/call.h"

namespace soft {
namespace {

struct ErrorText {
    int value;
    const char *name;
    const char *text;
};

constexpr ErrorText errors[] = {
#define SOFT_ERROR(value, name, text) {value, #name, text},
#include "api/errors.def"
#undef SOFT_ERROR
};

const ErrorText *find_error(CUresult value) {
    for (const ErrorText &error : errors)
        if (error.value == static_cast<int>(value))
            return &error;
    return nullptr;
}

} // namespace

const char *error_name(int status) {
    const ErrorText *found = find_error(static_cast<CUresult>(status));
    return found ? found->name : nullptr;
}

SOFT_API(cuGetErrorName, (CUresult error, const char **text), (error, text)) {
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    const ErrorText *found = find_error(error);
    *text = found ? found->name : nullptr;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFT_API(cuGetErrorString, (CUresult error, const char **text), (error, text)) {
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    const ErrorText *found = find_error(error);
    *text = found ? found->text : nullptr;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

} // namespace soft
