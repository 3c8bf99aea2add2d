#pragma once

#include "ptx/program.h"

#include <cuda.h>

#include <functional>
#include <string>

// This header lets other folders run the launch of a kernel in pieces.

namespace soft::ptx {

// Memory that a kernel may access: an allocation or a variable of the module.
struct Segment {
    uintptr_t begin = 0;
    size_t bytes = 0;
    char *host = nullptr; // where the driver itself accesses the bytes
    bool writable = true;
    bool of_array = false; // only instructions on textures and surfaces can access it
};

class Heap;
class Observer;
struct Machine;
struct Texture;

// A launch, as another launch sees it that may begin before this one ends (programmatic dependent
// launch).
struct Dependence {
    // All blocks have executed griddepcontrol.launch_dependents or have ended.
    bool allowed = false;
    // A block has allowed dependent launches, or has ended, without waiting for this launch's own
    // prerequisite. So the other launch may begin before that prerequisite ends, too.
    bool runs_ahead = false;
    bool over = false;  // this launch has ended
    bool ended = false; // the other launch need not wait any more
};

struct Launch {
    std::shared_ptr<const Program> program;
    const Kernel *kernel = nullptr;
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
    bool clustered = false;  // the launch or the kernel has set the shape of the clusters
    size_t shared_bytes = 0; // bytes of dynamic shared memory
    // Reads beyond the end of shared memory, up to the next multiple of this number, only cause a
    // warning.
    size_t shared_rounding = 1;
    // Bytes of local memory that a thread can have, including what alloca allocates.
    size_t stack_bytes = size_t{512} << 10;
    bool cooperative = false;
    // Address of the memory in which the blocks of a cooperative launch count arrivals at a barrier
    // of the grid.
    uintptr_t workspace = 0;
    std::vector<uint8_t> parameters;  // the parameter block
    std::vector<uintptr_t> variables; // address of each variable in Program::variables
    uint64_t seed = 1;                // seed of the order in which blocks and warps run
    uint64_t budget = ~uint64_t{0};   // limit of warp instructions that the launch may execute
    uint64_t id = 1;                  // value of %gridid
    unsigned processors = 132;        // value of %nsmid
    unsigned threads = 1;             // how many threads may run blocks at the same time
    // Record the accessed memory, for reads(), writes() and atomics() of Run.
    bool record = false;
    bool checked = false; // the checks inside kernels observe the launch, by `observe`
    // `dependents` is this launch, if another one may begin before it ends; `prerequisite` is the
    // launch before whose end this one may begin.
    std::shared_ptr<Dependence> dependents, prerequisite;
    std::shared_ptr<Heap> heap; // for malloc; null if the kernel does not use it
    // Finds the segment that contains an address. Returns false if there is none. The threads that
    // run the kernel call this without holding a lock.
    std::function<bool(uintptr_t, Segment &)> find;
    // Finds the texture or surface with this handle. Returns null, and says why, if a kernel cannot
    // use the handle. Called like `find`.
    std::function<std::shared_ptr<const Texture>(uint64_t, bool surface, std::string &why)>
        find_texture;
    std::function<void(const std::string &)> print; // prints the output of vprintf
    // Takes warnings. Called like `find`.
    std::function<void(const std::string &)> warn;
    // Makes an observer for a machine that runs the launch, if something is checked.
    std::function<std::unique_ptr<Observer>(Machine &)> observe;
    // Returns whether nothing orders the blocks, so that they can run at the same time. The checks
    // know the order of copies only in one thread.
    bool has_independent_blocks() const {
        return kernel->independent_blocks && !cooperative && !dependents &&
               !(observe && kernel->has_copies);
    }
    // Sets the value of a conditional node of a graph. The thread that runs the kernel calls this
    // without holding a lock.
    std::function<bool(uint64_t, uint32_t)> set_condition; // false if there is none
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

class Run {
  public:
    explicit Run(Launch launch);
    ~Run();
    Run(const Run &) = delete;

    enum class State { More, Done, Failed };
    // Executes about `instructions` warp instructions in each thread. Only one thread at a time may
    // call this.
    State advance(uint64_t instructions);
    // Ends the launch with an error, because its pieces have taken longer than this.
    void end_late(uint64_t milliseconds);
    const Fault &fault() const;
    uint64_t executed() const; // number of warp instructions so far
    // Returns true if all that the last piece did was to wait for the prerequisite.
    bool waits() const;
    // Returns true if blocks have let dependent launches begin without waiting for the
    // prerequisite.
    bool runs_ahead() const;
    // Return the memory that the kernel has accessed in the segments that `find` returned. The
    // ranges are exact to the byte, sorted, and separated by gaps. Atomic accesses are only in
    // atomics(), and not in reads() or writes(). With `late`, the accesses after
    // griddepcontrol.wait, and otherwise those before it, or all if there is no prerequisite.
    std::vector<Accessed> reads(bool late = false) const, writes(bool late = false) const,
        atomics(bool late = false) const;

  private:
    bool begin(uint64_t &instructions);
    State state();
    void end_observers();
    std::vector<Accessed> accessed(int use, bool late) const;

    const Launch launch_;
    unsigned threads_ = 1; // 1 if the order of the blocks matters
    // There is one machine until a launch has run for a while. Then there is one for each thread.
    std::vector<std::unique_ptr<Machine>> machines_;
    bool observers_ended_ = false;
    const Machine *failed_ = nullptr; // the machine whose fault has ended the launch
};

} // namespace soft::ptx
