#include "device/visible.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <strings.h>

namespace soft {
namespace {

// Returns the index of the device with this number, or whose UUID begins with `name`. Returns -1 if
// there is no such device or more than one.
int named_device(const std::string &name, int devices) {
    char *end = nullptr;
    long number = std::strtol(name.c_str(), &end, 10);
    if (end != name.c_str() && !*end)
        return number >= 0 && number < devices ? static_cast<int>(number) : -1;
    int found = -1;
    for (int place = 0; place < devices; place++) {
        if (name.size() < 5 || strncasecmp(uuid_text(place).c_str(), name.c_str(), name.size()))
            continue;
        if (found >= 0)
            return -1;
        found = place;
    }
    return found;
}

} // namespace

std::string uuid_text(int place) {
    CUuuid uuid = uuid_of(place);
    std::string text = "GPU-";
    for (size_t i = 0; i < sizeof(uuid.bytes); i++) {
        char digits[3];
        std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
        text += (i == 4 || i == 6 || i == 8 || i == 10) ? "-" : "";
        text += digits;
    }
    return text;
}

CUuuid uuid_of(int place) {
    CUuuid uuid;
    std::memcpy(uuid.bytes, "cudadrv-software", sizeof(uuid.bytes));
    uuid.bytes[7] = static_cast<char>(place);
    return uuid;
}

// Like real drivers, ignores the first invalid or repeated entry of the list and all entries after
// it.
std::vector<int> visible_devices(int devices) {
    std::vector<int> visible;
    const char *text = std::getenv("CUDA_VISIBLE_DEVICES");
    if (!text) {
        for (int place = 0; place < devices; place++)
            visible.push_back(place);
        return visible;
    }
    std::string rest = text;
    while (!rest.empty()) {
        size_t comma = rest.find(',');
        int place = named_device(rest.substr(0, comma), devices);
        if (place < 0 || std::count(visible.begin(), visible.end(), place))
            break;
        visible.push_back(place);
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
    return visible;
}

} // namespace soft
