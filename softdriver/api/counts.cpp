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

uint64_t graphs_of_programs() {
    const auto &graphs = state().graphs;
    return std::count_if(graphs.begin(), graphs.end(),
                         [](const auto &entry) { return !entry.second->inside; });
}

uint64_t modules_of_programs() {
    const auto &modules = state().modules;
    return std::count_if(modules.begin(), modules.end(),
                         [](const auto &entry) { return !entry.second->of_library; });
}

template <int kind> uint64_t allocations() { return state().live_allocations[kind]; }

constexpr struct {
    const char *name;
    uint64_t (*count)();
} kinds[] = {
    {"device", allocations<0>},
    {"async", allocations<1>},
    {"host", allocations<2>},
    {"managed", allocations<3>},
    {"registered", allocations<4>},
    {"arrays", allocations<5>},
    {"textures", []() -> uint64_t { return state().textures.size(); }},
    {"surfaces", []() -> uint64_t { return state().surfaces.size(); }},
    {"bytes", []() -> uint64_t { return state().live_bytes; }},
    {"reservations", []() -> uint64_t { return state().live_reservations; }},
    {"backings", []() -> uint64_t { return state().backings.size(); }},
    {"streams", []() -> uint64_t { return state().streams.size(); }},
    {"events", []() -> uint64_t { return state().events.size(); }},
    {"graphs", graphs_of_programs},
    {"execs", []() -> uint64_t { return state().execs.size(); }},
    {"objects", []() -> uint64_t { return state().user_objects.size(); }},
    {"modules", modules_of_programs},
    {"libraries", []() -> uint64_t { return state().libraries.size(); }},
    {"links", []() -> uint64_t { return state().links.size(); }},
    {"pools", created_pools},
    {"contexts", created_contexts},
    {"primary", primary_retains},
};

} // namespace

uint64_t count_objects(const char *name) {
    for (const auto &kind : kinds)
        if (!std::strcmp(kind.name, name))
            return kind.count();
    return ~uint64_t(0);
}

uint64_t count_objects(size_t kind) { return kinds[kind].count(); }

const char *kind_of_objects(size_t index) {
    return index < std::size(kinds) ? kinds[index].name : nullptr;
}

} // namespace soft
