#pragma once

#include "ptx/address_set.h"
#include "ptx/run.h"

#include <array>
#include <map>
#include <memory>
#include <utility>

namespace soft::ptx {

// The parts of the generic address space that are shared memory, local memory and parameters. All
// other generic addresses are global. No processor has such high addresses.
constexpr uint64_t window_bytes = uint64_t{1} << 56;
constexpr uint64_t shared_window = 1 * window_bytes;
constexpr uint64_t local_window = 2 * window_bytes;
constexpr uint64_t parameter_window = 3 * window_bytes;

// A Signal is a volatile or ordered read, which the race detector treats as an atomic access.
// Volatile and ordered writes are Atomic.
enum class Use : uint8_t { Read, Write, Atomic, Signal };

inline bool writes(Use use) { return use == Use::Write || use == Use::Atomic; }

// The global memory that a launch accesses. It caches the locations of allocations.
class Memory {
  public:
    Memory(const Launch &launch, uint32_t sites) : launch_(launch), sites_(sites) {}

    // Records an access and returns the host address of the bytes. Returns null if the access is
    // not allowed. `of_texture` is true for instructions on textures or surfaces.
    char *reach(uint32_t site, uintptr_t address, size_t bytes, Use use, bool of_texture = false) {
        Segment &known = sites_[site];
        uintptr_t offset = address - known.begin;
        if (offset >= known.bytes || bytes > known.bytes - offset) {
            if (!look_up(known, address, bytes, of_texture))
                return nullptr;
            offset = address - known.begin;
        }
        if (writes(use) && !known.writable)
            return nullptr;
        record(address, bytes, use);
        return known.host + offset;
    }
    // The segment that an instruction has accessed last, for checks of many accesses at once.
    const Segment &last_segment(uint32_t site) const { return sites_[site]; }
    // Records an access that has been checked already.
    void record(uintptr_t address, size_t bytes, Use use) {
        if (launch_.record)
            accessed_[size_t(use == Use::Signal ? Use::Atomic : use)].add(address, bytes);
    }
    // Drops all cached segments, because the program may have freed this memory.
    void drop_segments();
    // Finds the segment that contains the address. Returns false if there is none, or if it is the
    // memory of an array.
    bool find(uintptr_t address, Segment &segment) const {
        return launch_.find(address, segment) && !segment.of_array;
    }
    const AddressSet &accessed(Use use, bool late) const {
        static const AddressSet none;
        return late == late_ ? accessed_[size_t(use)] : others_ ? (*others_)[size_t(use)] : none;
    }
    // Says whether the next accesses come after griddepcontrol.wait.
    void select(bool late) {
        if (late == late_)
            return;
        if (!others_)
            others_ = std::make_unique<Accesses>();
        std::swap(accessed_, *others_);
        late_ = late;
    }

  private:
    bool look_up(Segment &known, uintptr_t address, size_t bytes, bool of_texture);

    const Launch &launch_;
    std::vector<Segment> sites_; // for each access of the program, what it has accessed last
    std::map<uintptr_t, Segment> segments_;
    using Accesses = std::array<AddressSet, 3>; // by Use
    Accesses accessed_;
    std::unique_ptr<Accesses> others_; // the accesses on the other side of griddepcontrol.wait
    bool late_ = false;
};

} // namespace soft::ptx
