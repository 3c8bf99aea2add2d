#include "check/places.h"

#include <cstdlib>
#include <cxxabi.h>
#include <iterator>

namespace soft::check {

namespace {

// This many bits of a place are the step; the others are the function.
constexpr unsigned step_bits = 20;

// Returns the name of a variable as CUDA C has it: "tile" for _ZZ8exchangeE4tile.
std::string source_name(const std::string &name) {
    int status = 0;
    char *found = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
    std::string source = found ? found : name;
    std::free(found);
    size_t scope = source.rfind("::");
    return scope == std::string::npos ? source : source.substr(scope + 2);
}

} // namespace

uint32_t lanes_of(const ptx::Warp &warp, const ptx::Step &step) {
    if (!step.guarded)
        return warp.active;
    uint32_t holds = warp.predicate(step.guard);
    return warp.active & (step.guard_negated ? ~holds : holds);
}

uint64_t address_of(const ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect,
                    unsigned lane) {
    uint64_t base = effect.address_bytes == 4 ? warp.row<uint32_t>(step.rows[9])[lane]
                                              : warp.row<uint64_t>(step.rows[9])[lane];
    return base + uint64_t(step.offset);
}

uint32_t place_of(const ptx::Code &code, const ptx::Step &step) {
    return uint32_t(code.index) << step_bits |
           (uint32_t(&step - code.body.data()) & ((1u << step_bits) - 1));
}

const ptx::Code &code_at(const ptx::Machine &machine, uint32_t place, size_t &step) {
    step = place & ((1u << step_bits) - 1);
    return *machine.library.codes[place >> step_bits];
}

HazardAccess access_at(const ptx::Machine &machine, uint32_t place, const std::string &mode,
                       uint64_t block, unsigned thread) {
    size_t step;
    const ptx::Code &code = code_at(machine, place, step);
    HazardAccess access;
    access.mode = mode;
    access.place = code.where(step);
    access.ptx_line = code.lines[step];
    if (code.sources[step].file) {
        access.file = *code.sources[step].file;
        access.line = code.sources[step].line;
        if (code.sources[step].inner_file)
            access.inner = *code.sources[step].inner_file + ":" +
                           std::to_string(code.sources[step].inner_line);
    }
    ptx::spread(thread, machine.launch.block, access.thread);
    ptx::spread(block, machine.launch.grid, access.block);
    return access;
}

std::string shared_variable(const ptx::Machine &machine, uint64_t address, uintptr_t &begin) {
    if (machine.launch.kernel->uses_reserved_shared && address >= machine.reserved_begin) {
        begin = machine.reserved_begin;
        return "reserved shared memory";
    }
    const auto &names = machine.code.shared_names;
    auto behind = names.upper_bound(address);
    if (behind == names.begin())
        return "shared memory";
    begin = std::prev(behind)->first;
    return "shared memory '" + source_name(std::prev(behind)->second) + "'";
}

} // namespace soft::check
