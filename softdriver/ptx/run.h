#pragma once

#include "ptx/program.h"

#include <cuda.h>

#include <functional>
#include <string>

// One launch of a kernel, which can be run piece by piece.

namespace soft::ptx {

// A stretch of memory that kernels may access: an allocation, or a variable of the module.
struct Segment {
    uintptr_t begin = 0;
    size_t bytes = 0;
    char *host = nullptr; // where its bytes really are
    bool writable = true;
};

struct Launch {
    std::shared_ptr<const Program> program;
    const Kernel *kernel = nullptr;
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
    size_t shared_bytes = 0; // dynamic
    bool cooperative = false;
    uintptr_t workspace = 0;          // of a cooperative launch, by which its blocks synchronize
    std::vector<uint8_t> parameters;  // Kernel::parameter_bytes
    std::vector<uintptr_t> variables; // addresses of Program::variables
    uint64_t seed = 1;                // of the order of blocks and warps
    uint64_t budget = ~uint64_t{0};   // instructions of warps, then the kernel is taken to hang
    uint64_t id = 1;                  // %gridid
    unsigned processors = 132;        // %nsmid
    bool record = false;              // keep what was accessed: see Run::reads
    // The segment that an address lies in; false if there is none. Called from whatever thread
    // runs the kernel, without any lock.
    std::function<bool(uintptr_t, Segment &)> find;
    std::function<void(const std::string &)> print; // of vprintf
};

// Why a kernel ended before its end.
struct Fault {
    CUresult status = CUDA_SUCCESS; // CUDA_ERROR_ILLEGAL_ADDRESS, ...
    std::string text;               // what, where (kernel, PTX line), and which thread
    uintptr_t address = 0;          // of an illegal access, or 0
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
    // Executes about so many instructions of warps, and returns earlier if all threads wait for
    // something. Not to be called by two threads at once.
    State advance(uint64_t instructions);
    const Fault &fault() const;
    uint64_t executed() const; // instructions of warps so far
    // What was accessed of memory that `find` knows: sorted, joined, exact to the byte.
    // Atomic accesses are in neither of the first two.
    std::vector<Accessed> reads() const, writes() const, atomics() const;

  private:
    std::unique_ptr<Machine> machine_;
};

} // namespace soft::ptx
