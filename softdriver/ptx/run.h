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
    char *host = nullptr; // the address at which the driver accesses the bytes
    bool writable = true;
};

struct Launch {
    std::shared_ptr<const Program> program;
    const Kernel *kernel = nullptr;
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
    size_t shared_bytes = 0; // bytes of dynamic shared memory
    bool cooperative = false;
    // Address of the memory in which a cooperative launch counts arrivals at its barrier.
    uintptr_t workspace = 0;
    std::vector<uint8_t> parameters;  // the parameter block
    std::vector<uintptr_t> variables; // addresses of Program::variables
    uint64_t seed = 1;                // decides the order of blocks and warps
    uint64_t budget = ~uint64_t{0};   // most warp instructions that the launch may execute
    uint64_t id = 1;                  // value of %gridid
    unsigned processors = 132;        // value of %nsmid
    // If true, Run::reads() and the like return the accessed memory.
    bool record = false;
    // A function that finds the segment that contains an address, and returns false if there is
    // none. It is called by the thread that runs the kernel, without any lock.
    std::function<bool(uintptr_t, Segment &)> find;
    std::function<void(const std::string &)> print; // a function that prints the output of vprintf
};

// The error that ended a kernel.
struct Fault {
    CUresult status = CUDA_SUCCESS; // e.g. CUDA_ERROR_ILLEGAL_ADDRESS
    std::string text;               // what happened, in which kernel, line and thread
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
    // Executes about `instructions` warp instructions. Two threads must not call it at the same
    // time.
    State advance(uint64_t instructions);
    const Fault &fault() const;
    uint64_t executed() const; // number of warp instructions so far
    // Return the memory that the kernel has accessed, exact to the byte, as sorted ranges that do
    // not touch. Only segments that `find` returned count. Atomic accesses are only in atomics(),
    // not in reads() or writes().
    std::vector<Accessed> reads() const, writes() const, atomics() const;

  private:
    std::unique_ptr<Machine> machine_;
};

} // namespace soft::ptx
