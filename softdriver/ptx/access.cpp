#include "ptx/access.h"

#include "ptx/observer.h"

#include <cstdio>

namespace soft::ptx {

namespace {

std::string hexadecimal(uint64_t number) {
    char text[32];
    snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
    return text;
}

const char *name_of(Space space) {
    switch (space) {
    case Space::Shared:
        return "shared memory";
    case Space::Local:
        return "local memory";
    case Space::Param:
        return "the kernel's parameters";
    case Space::Const:
        return "constant memory";
    default:
        return "memory";
    }
}

} // namespace

Space narrow_generic(uint64_t &address) {
    uint64_t window = address / window_bytes * window_bytes;
    Space space = window == shared_window      ? Space::Shared
                  : window == local_window     ? Space::Local
                  : window == parameter_window ? Space::Param
                                               : Space::Global;
    if (space != Space::Global)
        address -= window;
    return space;
}

char *Access::reach_other(unsigned lane, uint64_t address, size_t bytes) const {
    Machine &machine = warp.machine;
    auto within = [&](size_t size) { return address < size && bytes <= size - address; };
    switch (space == Space::Generic ? narrow_generic(address) : space) {
    case Space::Shared:
        if (!within(machine.shared_bytes)) {
            if (writes(use) || !within(machine.shared_room))
                return nullptr;
            machine.warn(warp, step,
                         "read of " + std::to_string(bytes) + " bytes beyond the " +
                             std::to_string(machine.shared_bytes) + " bytes of shared memory");
        }
        return warp.block.shared.data() + address;
    case Space::Local:
        return within(warp.local_bytes()) ? warp.local(lane) + address : nullptr;
    case Space::Param: {
        const std::vector<uint8_t> &parameters = machine.launch.parameters;
        if (writes(use) || !within(parameters.size()))
            return nullptr;
        return const_cast<char *>(reinterpret_cast<const char *>(parameters.data())) + address;
    }
    default:
        return machine.memory.reach(step.site, address, bytes, use);
    }
}

char *reach_shared(Warp &warp, const Step &step, unsigned lane, uint64_t address, size_t bytes,
                   Use use, bool generic) {
    if (!generic || narrow_generic(address) == Space::Shared)
        return Access{warp, step, Space::Shared, use}.reach_or_fail(lane, address, bytes);
    warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_ADDRESS,
                      "the address does not point to shared memory");
    return nullptr;
}

void Access::note_use(unsigned lane, uint64_t address, size_t bytes) const {
    if (warp.machine.observer->knows_uses)
        return;
    Space where = space == Space::Generic ? narrow_generic(address) : space;
    warp.machine.observer->uses(warp, lane, where, address, bytes, use);
}

void note_move(const Warp &warp, const Step &step, const Move &move) {
    if (warp.machine.observer)
        warp.machine.observer->moves(warp, step, move);
}

void Access::fail(unsigned lane, uint64_t address, size_t bytes, size_t alignment) const {
    uint64_t inside = address;
    Space where = space == Space::Generic ? narrow_generic(inside) : space;
    std::string what = !writes(use) ? "read of " : use == Use::Write ? "write of " : "update of ";
    what += std::to_string(bytes) + " bytes at " + hexadecimal(inside) + " in " + name_of(where);
    Segment segment;
    bool global = where == Space::Global || where == Space::Const;
    if (inside & (alignment - 1))
        return warp.machine.fail(warp, step, lane, CUDA_ERROR_MISALIGNED_ADDRESS,
                                 what + ", which is not aligned", inside);
    if (where == Space::Shared)
        what += ", which has " + std::to_string(warp.machine.shared_bytes) + " bytes";
    else if (where == Space::Local)
        what += ", which has " + std::to_string(warp.local_bytes()) + " bytes";
    else if (where == Space::Param)
        what += !writes(use) ? ", which end before" : ", which cannot be written";
    else if (warp.machine.memory.find(inside, segment))
        what += segment.writable ? ", which ends before that" : ", which cannot be written";
    else
        what += ", which is not allocated";
    warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_ADDRESS, what, global ? inside : 0);
}

} // namespace soft::ptx
