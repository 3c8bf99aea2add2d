#include "api/counts.h"

#include "api/state.h"

#include <algorithm>
#include <cstring>

namespace soft {
namespace {

uint64_t primary_retains() {
    uint64_t retains = 0;
    for (const auto &device : state().devices)
        retains += device->primary_retains;
    return retains;
}

uint64_t created_contexts() {
    uint64_t created = 0;
    for (const auto &entry : state().contexts)
        created += !entry.second->primary;
    return created;
}

uint64_t created_pools() {
    uint64_t created = 0;
    for (const auto &entry : state().pools)
        created += !entry.second->standard;
    return created;
}

uint64_t loaded_by_libraries() {
    uint64_t loaded = 0;
    for (const auto &entry : state().modules)
        loaded += entry.second->of_library;
    return loaded;
}

} // namespace

uint64_t count_objects(const char *kind) {
    static const char *const memory_kinds[] = {"device", "async", "host", "managed", "registered"};
    State &driver = state();
    for (size_t i = 0; i < std::size(memory_kinds); i++)
        if (!std::strcmp(kind, memory_kinds[i]))
            return driver.live_allocations[i];
    if (!std::strcmp(kind, "streams"))
        return driver.streams.size();
    if (!std::strcmp(kind, "events"))
        return driver.events.size();
    if (!std::strcmp(kind, "graphs"))
        return std::count_if(driver.graphs.begin(), driver.graphs.end(),
                             [](const auto &entry) { return !entry.second->inside; });
    if (!std::strcmp(kind, "execs"))
        return driver.execs.size();
    if (!std::strcmp(kind, "objects"))
        return driver.user_objects.size();
    if (!std::strcmp(kind, "modules"))
        return driver.modules.size() - loaded_by_libraries();
    if (!std::strcmp(kind, "libraries"))
        return driver.libraries.size();
    if (!std::strcmp(kind, "links"))
        return driver.links.size();
    if (!std::strcmp(kind, "pools"))
        return created_pools();
    if (!std::strcmp(kind, "contexts"))
        return created_contexts();
    if (!std::strcmp(kind, "primary"))
        return primary_retains();
    if (!std::strcmp(kind, "bytes"))
        return driver.live_bytes;
    return ~uint64_t(0);
}

} // namespace soft
