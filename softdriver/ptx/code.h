#pragma once

#include "ptx/ast.h"
#include "ptx/program.h"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

// A decoded function.

namespace soft::ptx {

struct Special;
struct Warp;
struct Step;
using Handler = void (*)(Warp &, const Step &);

constexpr int warp_size = 32;
constexpr size_t most_local_bytes = 512 << 10; // limit for each thread, as on GPUs

// The offset of a register's 32 values in a frame, in bytes. Constants and special registers are
// rows too, filled when the frame is created, so that handlers only see rows.
using Row = uint32_t;

// A decoded instruction, or a part of one.
struct Step {
    Handler run = nullptr;
    Handler guarded = nullptr; // with a guard: the handler for the lanes in which it holds
    Row guard = 0;
    bool guard_negated = false;
    bool is_branch = false; // until the end of decoding, `place` is an index of instructions
    uint16_t detail = 0;    // defined by the handler: a mode, a count, a barrier number
    Row rows[10] = {};
    int64_t offset = 0; // added to addresses
    uint32_t place = 0; // index: of a branch target in Code::body, or in Code::calls and so on
    uint32_t site = 0;  // number of a memory access, unique in the program
};

// The initial value of a row.
struct Filling {
    enum class Kind : uint8_t {
        Value,     // the number `value`
        Variable,  // address of Program::variables[value] + addend
        Shared,    // address of the shared variable with number `value`, + addend
        Local,     // start of the function's local memory + value
        Parameter, // start of the kernel's parameters + value
        Special,   // the special register `special`
    };
    Kind kind = Kind::Value;
    uint8_t width = 4;
    bool generic = false; // convert the address to the generic space
    Row row = 0;
    uint64_t value = 0;
    int64_t addend = 0;
    const Special *special = nullptr;
};

// A copy between parameters of a caller and a callee, which are in local memory or in rows.
struct Transfer {
    bool from_row = false, to_row = false;
    uint32_t from = 0, to = 0, bytes = 0;
};

struct Code;

// Offset in local memory and size of each result or parameter of a function.
using Places = std::vector<std::pair<uint32_t, uint32_t>>;

struct Call {
    const Code *callee = nullptr; // null: indirect call
    Row pointer = 0;              // row of the function pointers of an indirect call
    std::vector<Transfer> arguments, results;
};

struct Code {
    std::string name;
    bool entry = false;
    std::vector<Step> body;
    std::vector<int> lines;           // PTX line of each step
    std::vector<SourceLine> sources;  // source line of each step
    std::vector<std::string> written; // opcode with its modifiers, for each step
    std::vector<Filling> constants;   // rows filled once for each launch
    std::vector<Filling> fresh;       // rows filled at each call
    size_t frame_bytes = 0;
    size_t local_bytes = 0; // for its variables and parameters, without called functions
    std::vector<Call> calls;
    std::vector<std::vector<uint32_t>> branch_tables;
    Places results, parameters;
    int index = 0; // index in Library::codes
    // For a kernel: the offsets of its shared variables in a block's shared memory.
    std::unordered_map<uint64_t, size_t> shared_offsets;
    const struct Library *library = nullptr;

    // The source position of a step as text: "PTX line 24", or "scale.cu:12 (PTX line 24)".
    std::string where(size_t step) const;
};

// The decoded functions of a module.
struct Library {
    // Indexed like Tree::functions; null for a declaration.
    std::vector<std::unique_ptr<Code>> codes;
    uint32_t sites = 0;
};

} // namespace soft::ptx
