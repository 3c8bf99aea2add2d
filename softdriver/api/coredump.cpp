#include "api/call.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <unistd.h>

// The settings of coredumps. They are kept and can be read, but there is nothing of a device to
// dump: kernels that fail are reported otherwise. So coredumps cannot be enabled.

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
constexpr size_t text_bytes = 1024; // with the end of the text

// What the program has set, by the number of the setting.
using Values = std::map<int, std::string>;

// Guarded by the state's mutex; never destroyed, as the state. Those of contexts are by id.
struct Coredumps {
    Values global;
    std::map<uint64_t, Values> of_contexts;
};

Coredumps &coredumps() {
    static Coredumps *all = new Coredumps;
    return *all;
}

bool is_text(int setting) { return setting == file_name || setting == pipe_name; }

size_t size_of_value(int setting) {
    return is_text(setting) ? text_bytes : setting == generation_flags ? sizeof(int) : sizeof(bool);
}

std::string default_value(int setting) {
    if (!is_text(setting))
        return std::string(size_of_value(setting), setting == trigger_host ? '\1' : '\0');
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    const char *begin = setting == file_name ? "core.cuda." : "corepipe.cuda.";
    return begin + std::string(host) + "." + std::to_string(getpid());
}

// Looks at the values of a context first, then at those of the process.
std::string value_of(const Values &first, int setting) {
    const Values &second = coredumps().global;
    for (const Values *values : {&first, &second}) {
        auto found = values->find(setting);
        if (found != values->end())
            return found->second;
    }
    return default_value(setting);
}

// Checks a call. Without a value, it only asks for the size.
CUresult check_setting(int setting, const void *value, size_t *size) {
    if (setting < on_exception || setting >= end_of_settings || !size)
        return CUDA_ERROR_INVALID_VALUE;
    if (!value)
        *size = size_of_value(setting);
    return CUDA_SUCCESS;
}

CUresult read_setting(const Values &values, int setting, void *value, size_t *size) {
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

CUresult write_setting(Values &values, int setting, const void *value, size_t *size) {
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
        return CUDA_ERROR_NOT_SUPPORTED;
    values[setting].assign(bytes, size_of_value(setting));
    return CUDA_SUCCESS;
}

} // namespace

SOFT_API(cuCoredumpGetAttribute, (CUcoredumpSettings setting, void *value, size_t *size),
         (setting, value, size)) {
    const auto &all = coredumps().of_contexts; // reading adds no context
    auto found = all.find(call.context->id);
    return read_setting(found == all.end() ? Values() : found->second, int(setting), value, size);
}

SOFT_API(cuCoredumpGetAttributeGlobal, (CUcoredumpSettings setting, void *value, size_t *size),
         (setting, value, size)) {
    return read_setting({}, int(setting), value, size);
}

SOFT_API(cuCoredumpSetAttribute, (CUcoredumpSettings setting, void *value, size_t *size),
         (setting, value, size)) {
    if (int(setting) == user_trigger || int(setting) == pipe_name)
        return CUDA_ERROR_NOT_PERMITTED; // these are of the whole process
    return write_setting(coredumps().of_contexts[call.context->id], int(setting), value, size);
}

SOFT_API(cuCoredumpSetAttributeGlobal, (CUcoredumpSettings setting, void *value, size_t *size),
         (setting, value, size)) {
    return write_setting(coredumps().global, int(setting), value, size);
}

} // namespace soft
