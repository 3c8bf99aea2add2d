#pragma once

#include "check/hazards.h"
#include "ptx/machine.h"

// What all checks say about the steps and the memory of a kernel.

namespace soft::check {

// Takes each hazard with its key. Called without a lock.
using Report =
    std::function<void(const Hazards::Key &, bool benign, const std::function<Hazard()> &)>;
// Describes memory of the device by an address in it, and says where the memory begins.
using Describe = std::function<std::string(uintptr_t address, uintptr_t &begin)>;

inline const ptx::Effect &effect_of(const ptx::Warp &warp, const ptx::Step &step) {
    const ptx::Code &code = *warp.frame->code;
    return code.effects[size_t(&step - code.body.data())];
}
// Returns the lanes that execute a step: those of the group in which the guard holds.
uint32_t lanes_of(const ptx::Warp &warp, const ptx::Step &step);
// Returns the address that a lane accesses.
uint64_t address_of(const ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect,
                    unsigned lane);

// A step of the program, as a number.
uint32_t place_of(const ptx::Code &code, const ptx::Step &step);
inline uint32_t place_of(const ptx::Warp &warp, const ptx::Step &step) {
    return place_of(*warp.frame->code, step);
}
// Returns the function of a place, and sets `step` to the index of the step in it.
const ptx::Code &code_at(const ptx::Machine &machine, uint32_t place, size_t &step);
// Describes what a thread does at a place. `mode` is for example "write".
HazardAccess access_at(const ptx::Machine &machine, uint32_t place, const std::string &mode,
                       uint64_t block, unsigned thread);

// Returns the name of the variable in shared memory, and sets `begin` to where it begins.
std::string shared_variable(const ptx::Machine &machine, uint64_t address, uintptr_t &begin);

} // namespace soft::check
