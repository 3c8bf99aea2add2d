#pragma once

#include "ptx/ast.h"
#include "ptx/program.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

// This header has the decoded functions, as the warps run them.

namespace soft::ptx {

struct Special;
struct Fragment; // a part of a matrix in registers (matrix.h)
struct Warp;
struct Step;
using Handler = void (*)(Warp &, const Step &);

constexpr int warp_size = 32;
constexpr size_t most_local_bytes = 512 << 10; // limit of local memory for each thread, as on GPUs

// A row holds the 32 values that a register has in the lanes of a warp. Its number is its offset in
// a frame, in bytes. Constants and special registers have rows too, so that handlers only read
// rows. These rows are filled when the frame is created.
using Row = uint32_t;

// A decoded instruction. An instruction may also become several steps.
struct Step {
    Handler run = nullptr;
    // If the instruction has a guard: the handler that `run` calls for the lanes in which the guard
    // holds.
    Handler guarded = nullptr;
    Row guard = 0;
    bool guard_negated = false;
    // True if `place` is a branch target. During decoding, `place` is then the index of an
    // instruction, and afterwards the index of a step.
    bool is_branch = false;
    uint16_t detail = 0; // its meaning depends on the handler: a mode, a count, a barrier number
    Row rows[10] = {};
    int64_t offset = 0; // number that is added to the addresses of a memory access
    // The target of a branch (an index in Code::body), the call (an index in Code::calls), the
    // first operand (an index in Code::fragments), and so on.
    uint32_t place = 0;
    uint32_t site = 0; // number of the memory access, which is unique in the program
};

// What the checks inside kernels (check/) need to know about a step.
struct Effect {
    enum class Kind : uint8_t {
        None,
        Read,
        Write,
        Update,  // reads and writes at once: atom and red
        Other,   // accesses memory that only its handler knows: see Observer::uses()
        Fence,   // a fence or membar
        Proxy,   // fence.proxy.async for `space`
        Arrive,  // changes an mbarrier, so that what comes before it is ordered
        Test,    // asks an mbarrier; if the predicate in rows[0] is true, its phase has ended
        Meet,    // waits for the lanes in the mask rows[9], or for none if Step::offset is 0
        Barrier, // a barrier; see `aligned` and `whole_block`
        Commit,  // ends the current group of the actor's operations
        Await,   // waits for all groups except the last `count`
        Return,  // ends a call, or the thread
        Exit,    // ends the thread
    };
    // Who does the accesses of a step.
    enum class Actor : uint8_t {
        Thread,
        Warp,  // all lanes of the warp together: ldmatrix and wmma
        Copy,  // a copy by cp.async
        Bulk,  // a copy by cp.async.bulk or cp.reduce.async.bulk
        Group, // a product by wgmma
    };
    // The threads among which a strong access or a fence can order accesses.
    enum class Scope : uint8_t { Block, Cluster, Device, System };
    Kind kind = Kind::None;
    Space space = Space::Generic;
    uint8_t item_bytes = 0, count = 1; // of an access, for each lane; the items are neighbours
    // The widths of rows[9], which has the addresses, and of the rows of the values, from rows[0]
    // on.
    uint8_t address_bytes = 8, value_bytes = 0;
    uint32_t lanes = ~uint32_t{0}; // the only lanes whose addresses count
    bool strong = false, acquires = false, releases = false;
    bool blind = false; // an Update, and nothing uses the value that was read
    // The barrier is for whole warps; it is barrier 0 of all threads.
    bool aligned = false, whole_block = false;
    // Copies by cp.async: makes one, arrives at an mbarrier for them, or waits for all of them.
    bool copies = false;
    Actor actor = Actor::Thread;
    bool only_reads = false;  // Await: waits only until the sources have been read
    bool noncoherent = false; // a read that may miss what the launch has written
    Scope scope = Scope::Device;

    // Whether each lane accesses memory by itself, so that the effect says all about the accesses.
    bool says_all() const {
        return kind >= Kind::Read && kind <= Kind::Update && actor == Actor::Thread;
    }
};

// A register in a frame: its row, and how many bytes the row has for each lane (0 for a predicate,
// which has a bit).
struct Part {
    Row row = 0;
    uint8_t width = 0;
};

// How the results of a step depend on its sources, for the check of undefined values (check/).
struct Flow {
    enum class Rule : uint8_t {
        Whole,     // an undefined bit of a source makes all results undefined
        Hidden,    // the results count as defined
        Bits,      // a bit depends on the same bits of the sources
        And,       // as Bits, but a defined 0 makes the bit defined
        Or,        // as Bits, but a defined 1 makes the bit defined
        Lookup,    // lop3
        Low,       // a bit depends on the same and lower bits: sums and products
        Left,      // shl
        Right,     // shr
        Extract,   // bfe
        Insert,    // bfi
        Permute,   // prmt
        Select,    // selp
        Compare,   // setp and set
        Pack,      // the sources become parts of the result
        Unpack,    // the parts of the source become results
        Each,      // each source becomes one result
        Extend,    // a conversion between integers
        Product,   // of matrices, in fragments: mma
        Transpose, // movmatrix
        Shuffle,   // a value of another lane
        Warp,      // the values of all lanes
        Ballot,
    };
    // How the step accesses memory. What other instructions write to memory counts as defined.
    enum class Memory : uint8_t {
        None,
        Load,
        Store,
        Update,
        Exchange,
        Copy,          // cp.async
        Bulk,          // cp.async.bulk and cp.reduce.async.bulk
        LoadRows,      // ldmatrix
        StoreRows,     // stmatrix
        LoadFragment,  // wmma.load
        StoreFragment, // wmma.store
        Product,       // wgmma.mma_async
    };
    Rule rule = Rule::Whole;
    Memory memory = Memory::None;
    // For Extend: the bytes of the source. For Compare: whether equality can be decided by some
    // bits.
    uint8_t detail = 0;
    bool is_signed = false; // the sign is extended
    // Whether a guard of the step decides what other threads or the host can see, or which step is
    // next.
    bool decides = false;
    // All sources must be defined: set for barriers, branches and bulk copies. For instructions on
    // matrices it means all sources except the registers with items, which come last.
    bool needs_all = false;
    uint8_t results = 0, sources = 0; // how many registers the step writes and reads
    uint32_t begin = 0;               // index in Code::parts: the results, then the sources
};

// Says which value a row of a frame receives when the frame is created or entered.
struct Filling {
    enum class Kind : uint8_t {
        Value,     // the number `value`
        Variable,  // the address of Program::variables[value], plus `addend`
        Shared,    // the address of the shared variable number `value`, plus `addend`
        Local,     // the start of the function's local memory, plus `value`
        Parameter, // the start of the kernel's parameters, plus `value`
        Argument,  // the bytes at `value` in the kernel's parameters
        Special,   // the special register `special`
    };
    Kind kind = Kind::Value;
    uint8_t width = 4;
    bool generic = false; // the row receives the address in the generic address space
    Row row = 0;
    uint64_t value = 0;
    int64_t addend = 0;
    const Special *special = nullptr;
};

// A copy of an argument or a result between a caller and a callee. Each end of the copy is in local
// memory or in a row. A row may be a row of predicates, which are 0 or 1 in memory.
struct Transfer {
    bool from_row = false, to_row = false;
    bool predicate = false;
    uint32_t from = 0, to = 0, bytes = 0;
};

struct Code;

// The place in local memory of a result or a parameter of a function.
struct Place {
    uint32_t offset, bytes;
    bool is_predicate;
};
using Places = std::vector<Place>;

struct Call {
    const Code *callee = nullptr; // null for an indirect call
    Row pointer = 0;              // for an indirect call: the row with the function pointers
    std::vector<Transfer> arguments, results;
};

struct Code {
    std::string name;
    bool entry = false;
    // True if the function has an instruction with which blocks communicate, or whose effect
    // depends on their order: atomics on global memory, fences, signals, output.
    bool communicates = false;
    // The function has asynchronous copies, mbarriers, or accesses with Effect::Kind::Other. Only
    // the handlers of such accesses know their addresses.
    bool has_copies = false;
    bool uses_cluster_barrier = false;
    bool uses_reserved_shared = false; // reads %reserved_smem_offset_begin or similar
    bool reads_time = false;           // reads %globaltimer
    std::vector<Step> body;
    std::vector<int> lines;           // PTX line of each step
    std::vector<SourceLine> sources;  // position of each step in the source code
    std::vector<std::string> written; // opcode with its modifiers, for each step
    std::vector<Effect> effects;      // the effect of each step
    std::vector<Flow> flows;          // the flow of each step
    std::vector<Part> parts;          // the registers of all flows
    std::vector<Filling> constants;   // the rows that are filled when a frame is created
    std::vector<Filling> fresh;       // the rows that are filled at each call
    size_t frame_bytes = 0;
    // Bytes of local memory for the function's variables and parameters, without those of its
    // callees.
    size_t local_bytes = 0;
    std::vector<Call> calls;
    std::vector<std::vector<uint32_t>> branch_tables;
    // The operands of instructions on matrices, which have more registers than a step has rows.
    std::vector<std::shared_ptr<const Fragment>> fragments;
    Places results, parameters;
    int index = 0; // index in Library::codes
    // If the function has alloca: the row with the end of the call's local memory in each lane.
    static constexpr Row no_row = ~Row{0};
    Row stack_pointer = no_row;
    // For a kernel: the offsets of its shared variables in the shared memory of a block.
    std::unordered_map<uint64_t, size_t> shared_offsets;
    std::map<size_t, std::string> shared_names; // of the variables, by their offsets
    const struct Library *library = nullptr;

    // Returns the position of a step in the source code as text, such as "PTX line 24",
    // "scale.cu:12 (PTX line 24)" or "scale.cu:12 (inlined.h:3, PTX line 24)".
    std::string where(size_t step) const;
};

// The decoded functions of a module.
struct Library {
    // The functions, indexed like Tree::functions. The entry of a declaration is null.
    std::vector<std::unique_ptr<Code>> codes;
    uint32_t sites = 0;
    // Bytes of local memory for the module's variables in .local, which come first in the local
    // memory of a thread.
    size_t local_bytes = 0;
};

} // namespace soft::ptx
