#pragma once

#include "ptx/decoder.h"

// This header has the mbarriers, which are 64-bit words in the shared memory of a block.

namespace soft::ptx {

// The fields of an mbarrier. In memory, a mark in the word distinguishes an mbarrier from other
// data.
class Mbarrier {
  public:
    static constexpr uint64_t most_arrivals = (1 << 20) - 1;

    explicit Mbarrier(uint64_t word); // reads a word
    static Mbarrier expecting(uint64_t arrivals);
    uint64_t word() const;
    static bool is(uint64_t word); // whether the word is an mbarrier

    // These functions return the text of an error, which is empty if there is none.
    std::string arrive(uint64_t count);
    std::string drop(uint64_t count);         // arrives, and is not expected in later phases
    std::string expect_bytes(int64_t number); // a negative number counts bytes that have arrived

    bool odd_phase = false;
    uint64_t pending = 0;  // arrivals that this phase still waits for
    uint64_t expected = 0; // arrivals of each phase
    int64_t bytes = 0;     // bytes of asynchronous copies that this phase still waits for

  private:
    Mbarrier() = default;
    void end_phase_if_complete();
};

// Returns the word of the mbarrier to which a lane's address points. If there is no mbarrier at
// this address of shared memory, ends the launch with an error and returns null.
uint64_t *find_mbarrier(Warp &warp, const Step &step, unsigned lane, uint64_t address);
// Tells an mbarrier that these bytes of a copy have arrived. Returns false if this is an error,
// which ends the launch.
bool complete_bytes(Warp &warp, const Step &step, unsigned lane, uint64_t address, uint64_t bytes);

// Decodes the rest of cp.async.mbarrier.
void decode_arrival_of_copies(Decoder &decoder);

} // namespace soft::ptx
