#pragma once

#include "ptx/program.h"

#include <cuda.h>

#include <functional>
#include <string>

// A launch of a kernel that runs in pieces.

namespace soft::ptx {

// Memory that kernels may access: an allocation, or a variable of the module.
struct Segment {
    uintptr_t begin = 0;
    size_t bytes = 0;
    char *host = nullptr; // where the driver accesses its bytes
    bool writable = true;
};

struct Launch {
    std::shared_ptr<const Program> program;
    const Kernel *kernel = nullptr;
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
    size_t shared_bytes = 0; // dynamic shared memory
    bool cooperative = false;
    uintptr_t workspace = 0; // address of the memory with which a cooperative launch synchronizes
    std::vector<uint8_t> parameters;  // the parameter block
    std::vector<uintptr_t> variables; // addresses of Program::variables
    uint64_t seed = 1;                // for the order of blocks and warps
    uint64_t budget = ~uint64_t{0};   // limit of warp instructions
    uint64_t id = 1;                  // %gridid
    unsigned processors = 132;        // %nsmid
    bool record = false;              // record accesses: see Run::reads
    // Finds the segment that contains an address; false if there is none. Called by the thread that
    // runs the kernel, without any lock.
    std::function<bool(uintptr_t, Segment &)> find;
    std::function<void(const std::string &)> print; // prints the output of vprintf
};

// The error that ended a kernel.
struct Fault {
    CUresult status = CUDA_SUCCESS; // CUDA_ERROR_ILLEGAL_ADDRESS, ...
    std::string text;               // what happened, where (kernel, PTX line), and in which thread
    uintptr_t address = 0;          // address of an illegal access, or 0
};

struct Accessed {
    uintptr_t begin;
    size_t bytes;
};

struct Machine;

class Run {
  public:
    explicit Run(Launch launch);
    ~Run();
    Run(const Run &) = delete;

    enum class State { More, Done, Failed };
    // Executes about this many warp instructions. Must not be called by two threads at once.
    State advance(uint64_t instructions);
    const Fault &fault() const;
    uint64_t executed() const; // warp instructions so far
    // Accessed memory, of the segments that `find` returned: sorted, joined, exact to the byte.
    // Atomic accesses are neither in reads() nor in writes().
    std::vector<Accessed> reads() const, writes() const, atomics() const;

  private:
    std::unique_ptr<Machine> machine_;
};

} // namespace soft::ptx
