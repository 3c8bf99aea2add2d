#include "device/coredump.h"

#include "api/call.h"
#include "base/unsupported.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>

// The settings of coredumps. A program can set and read them, but cannot enable coredumps, because
// software devices have nothing to dump. Errors in kernels are reported in other ways.

namespace soft {
namespace {

enum Setting {
    on_exception = 1,
    trigger_host,
    lightweight,
    user_trigger,
    file_name,
    pipe_name,
    generation_flags,
    end_of_settings
};
constexpr size_t text_bytes = 1024; // including the zero byte at the end

// The settings that the program has set for the whole process. Guarded by the state's mutex. Never
// destroyed, like the state.
CoredumpSettings &of_process() {
    static CoredumpSettings *all = new CoredumpSettings;
    return *all;
}

bool is_text(int setting) { return setting == file_name || setting == pipe_name; }

size_t size_of_value(int setting) {
    return is_text(setting) ? text_bytes : setting == generation_flags ? sizeof(int) : sizeof(bool);
}

// The name of the pipe is empty by default, as on a real driver. cuda.h describes another default.
std::string default_value(int setting) {
    if (!is_text(setting))
        return std::string(size_of_value(setting), setting == trigger_host ? '\1' : '\0');
    if (setting == pipe_name)
        return "";
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    return "core.cuda." + std::string(host) + "." + std::to_string(getpid());
}

// Returns true if the setting exists only for the whole process, not for each context.
bool is_global(int setting) { return setting == user_trigger || setting == pipe_name; }

std::string value_of(const CoredumpSettings &values, int setting) {
    auto found = values.find(setting);
    return found == values.end() ? default_value(setting) : found->second;
}

// Checks the arguments of a call. If `value` is null, the call only asks for the size of the value,
// which is written to `size` here.
CUresult check_setting(int setting, const void *value, size_t *size) {
    if (setting < on_exception || setting >= end_of_settings || !size)
        return CUDA_ERROR_INVALID_VALUE;
    if (!value)
        *size = size_of_value(setting);
    return CUDA_SUCCESS;
}

CUresult read_setting(const CoredumpSettings &values, int setting, void *value, size_t *size) {
    CUresult status = check_setting(setting, value, size);
    if (status || !value)
        return status;
    std::string found = value_of(values, setting);
    if (is_text(setting))
        found += '\0';
    if (*size < found.size())
        return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(value, found.data(), found.size());
    return CUDA_SUCCESS;
}

CUresult write_setting(CoredumpSettings &values, int setting, const void *value, size_t *size) {
    CUresult status = check_setting(setting, value, size);
    if (status || !value)
        return status;
    auto *bytes = static_cast<const char *>(value);
    if (is_text(setting)) {
        size_t length = strnlen(bytes, *size);
        if (length >= text_bytes)
            return CUDA_ERROR_INVALID_VALUE;
        values[setting].assign(bytes, length);
        return CUDA_SUCCESS;
    }
    if (*size < size_of_value(setting))
        return CUDA_ERROR_INVALID_VALUE;
    bool enables = setting == on_exception || setting == user_trigger;
    if (enables && *bytes)
        return not_supported("coredumps cannot be enabled (setting " + std::to_string(setting) +
                             ")");
    values[setting].assign(bytes, size_of_value(setting));
    return CUDA_SUCCESS;
}

} // namespace

const CoredumpSettings &coredumps_of_process() { return of_process(); }

SOFT_API(cuCoredumpGetAttribute, (CUcoredumpSettings setting, void *value, size_t *size),
         (setting, value, size)) {
    const CoredumpSettings &own = call.context->coredumps;
    return read_setting(is_global(int(setting)) ? of_process() : own, int(setting), value, size);
}

SOFT_API(cuCoredumpGetAttributeGlobal, (CUcoredumpSettings setting, void *value, size_t *size),
         (setting, value, size)) {
    return read_setting(of_process(), int(setting), value, size);
}

SOFT_API(cuCoredumpSetAttribute, (CUcoredumpSettings setting, void *value, size_t *size),
         (setting, value, size)) {
    if (is_global(int(setting)))
        return CUDA_ERROR_INVALID_VALUE; // an H200 returns this for user_trigger
    return write_setting(call.context->coredumps, int(setting), value, size);
}

SOFT_API(cuCoredumpSetAttributeGlobal, (CUcoredumpSettings setting, void *value, size_t *size),
         (setting, value, size)) {
    return write_setting(of_process(), int(setting), value, size);
}

} // namespace soft
