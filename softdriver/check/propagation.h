#pragma once

#include "ptx/warp.h"

#include <array>
#include <vector>

// Which bits of registers are undefined, and how instructions pass that on.

namespace soft::check {

// The undefined bits of a register in each lane. A predicate has one bit.
using Masks = std::array<uint64_t, ptx::warp_size>;

// The registers of one call of a function.
class Registers {
  public:
    explicit Registers(const ptx::Code &code)
        : masks_(code.frame_bytes), origins_(code.frame_bytes / unit) {}

    bool is_clean() const { return !undefined_; }
    bool is_clean(ptx::Part part) const { return !origins_[part.row / unit]; }
    uint64_t mask(ptx::Part part, unsigned lane) const;
    // Returns the lanes in which some bit is undefined.
    uint32_t lanes(ptx::Part part) const;
    // The number of the origin (check/origins.h) of the register's undefined bits.
    uint32_t origin(ptx::Part part) const { return origins_[part.row / unit]; }
    void set(ptx::Part part, uint32_t lanes, const Masks &masks, uint32_t origin);
    void define(ptx::Part part, uint32_t lanes) { set(part, lanes, {}, 0); }
    void clear(); // all registers are defined

  private:
    // No two registers begin in the same four bytes of a frame, so there is one origin for four
    // bytes.
    static constexpr size_t unit = 4;

    std::vector<uint8_t> masks_; // the bits of each row
    // The origin of the register that begins there, or 0 if it is defined.
    std::vector<uint32_t> origins_;
    size_t undefined_ = 0; // registers with an undefined bit
};

// What a step does to one of its results.
struct Result {
    ptx::Part part;
    Masks masks{};
    uint32_t origin = 0; // 0 if it is defined in all lanes
};

constexpr uint64_t all_bits(uint8_t width) {
    return width == 0 ? 1 : ~uint64_t{0} >> (64 - 8 * width);
}

// Extends the highest of the lowest `bits` bits of a mask to all higher bits, as an extension of
// the sign does.
uint64_t sign_extended(uint64_t mask, unsigned bits);

// Computes which bits of the results of a step will be undefined. Call this before the step runs.
void propagate(const ptx::Warp &warp, const ptx::Step &step, const ptx::Flow &flow,
               const Registers &registers, std::vector<Result> &results);

} // namespace soft::check
