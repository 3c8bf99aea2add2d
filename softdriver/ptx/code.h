#pragma once

#include "ptx/ast.h"
#include "ptx/program.h"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

// A function as it is run.

namespace soft::ptx {

struct Special;
struct Warp;
struct Step;
using Handler = void (*)(Warp &, const Step &);

constexpr int warp_size = 32;
constexpr size_t most_local_bytes = 512 << 10; // of a thread, as on GPUs

// Where a register's 32 values lie in a frame: in bytes from its beginning. Constants and special
// registers are rows as well, filled when the frame is made, so that a handler sees only rows.
using Row = uint32_t;

// An instruction, decoded.
struct Step {
    Handler run = nullptr;
    Handler guarded = nullptr; // with a guard: what is done where it holds
    Row guard = 0;
    bool guard_negated = false;
    bool is_branch = false; // until all is decoded, `place` counts instructions
    uint16_t detail = 0;    // of the handler's own: a mode, a count, a number of a barrier
    Row rows[10] = {};
    int64_t offset = 0; // of an address
    uint32_t place = 0; // index in Code::body of a branch's target, in Code::calls and so on
    uint32_t site = 0;  // of an access to memory: numbered through the program
};

// What a row holds before the function begins.
struct Filling {
    enum class Kind : uint8_t {
        Value,     // value
        Variable,  // address of Program::variables[value], plus addend
        Shared,    // address of Layout::shared[value], plus addend
        Local,     // value + the begin of the function's local memory
        Parameter, // value + the begin of the kernel's parameters
        Special,   // *special
    };
    Kind kind = Kind::Value;
    uint8_t width = 4;
    bool generic = false; // an address in the generic space
    Row row = 0;
    uint64_t value = 0;
    int64_t addend = 0;
    const Special *special = nullptr;
};

// Copies of bytes between a caller's parameters and a callee's, in local memory or in registers.
struct Transfer {
    bool from_row = false, to_row = false;
    uint32_t from = 0, to = 0, bytes = 0;
};

struct Code;

// Offsets in local memory, and bytes, of a function's results or parameters.
using Places = std::vector<std::pair<uint32_t, uint32_t>>;

struct Call {
    const Code *callee = nullptr; // null: indirect
    Row pointer = 0;              // of an indirect call
    std::vector<Transfer> arguments, results;
};

struct Code {
    std::string name;
    bool entry = false;
    std::vector<Step> body;
    std::vector<int> lines;           // of each step
    std::vector<SourceLine> sources;  // of each step
    std::vector<std::string> written; // opcode with its modifiers, of each step
    std::vector<Filling> constants;   // the same in all calls of a launch
    std::vector<Filling> fresh;       // to be filled at each call, the same in all lanes
    size_t frame_bytes = 0;
    size_t local_bytes = 0; // its variables and parameters, not those of what it calls
    std::vector<Call> calls;
    std::vector<std::vector<uint32_t>> branch_tables;
    Places results, parameters;
    int index = 0; // in Library::codes
    // Of a kernel: where the shared variables of the module lie in a block's shared memory.
    std::unordered_map<uint64_t, size_t> shared_offsets;
    const struct Library *library = nullptr;

    // Of a step, in words: "PTX line 24", or "scale.cu:12 (PTX line 24)".
    std::string where(size_t step) const;
};

// All functions of a module.
struct Library {
    std::vector<std::unique_ptr<Code>> codes; // as Tree::functions; null for a declaration
    uint32_t sites = 0;
};

} // namespace soft::ptx
