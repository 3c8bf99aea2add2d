#include "api/call.h"
#include "api/state.h"

#include <dlfcn.h>

namespace soft {
namespace {

// Prevents dlclose() from unloading the library: the worker threads never end, so their code must
// stay mapped.
void stay_loaded() {
    Dl_info self;
    if (dladdr(reinterpret_cast<void *>(&stay_loaded), &self) && self.dli_fname)
        dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

} // namespace

SOFT_API(cuInit, (unsigned flags), (flags)) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    State &driver = state();
    if (!driver.environment_error.empty()) {
        last_error = driver.environment_error;
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (driver.initialised)
        return CUDA_SUCCESS;
    driver.create_devices();
    if (driver.devices.empty())
        return CUDA_ERROR_NO_DEVICE;
    stay_loaded();
    driver.initialised = true;
    forbid_forked_children();
    return CUDA_SUCCESS;
}

SOFT_API(cuDriverGetVersion, (int *version), (version)) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = state().settings.driver;
    return CUDA_SUCCESS;
}

} // namespace soft
