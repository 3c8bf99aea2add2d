#pragma once

#include "ptx/type.h"

#include <memory>
#include <string>
#include <vector>

// The syntax tree of a PTX module, with all names resolved. The parser creates it (parser.h), and
// the decoder turns it into code.

namespace soft::ptx {

// A variable in memory: of a module or a function, or a parameter.
struct Variable {
    // A place in the initial bytes that will hold the address of a variable or function.
    struct Address {
        size_t offset = 0;
        size_t width = 8;
        bool generic = false; // generic(name); otherwise the address in the variable's own space
        bool function = false;
        unsigned shift = 0; // lowest bit of the stored part of the address: 8 for 0xFF00(name)
        int target = 0;     // index in Tree::variables or Tree::functions
        int64_t addend = 0;
    };

    std::string name;
    int line = 0;
    Space space = Space::Global;
    Type type = Type::None;
    size_t count = 1;     // number of items; 0 for an array without a size (extern shared)
    size_t alignment = 1; // in bytes
    size_t offset = 0;    // of a parameter: offset in the function's result or parameter block
    bool visible = false, external = false, weak = false, common = false;
    bool managed = false;
    std::vector<uint8_t> initial; // may be shorter than the variable; the rest is zero
    std::vector<Address> addresses;

    size_t bytes() const { return count * size_of(type); }
};

struct Register {
    std::string name;
    Type type = Type::None;
};

struct Operand {
    enum class Kind : uint8_t {
        Register, // index in Function::registers; `negated` for !p; name is "b0" for r.b0
        Special,  // name: "%tid.x"
        Integer,  // the value is in `bits`
        Float,    // bits of a double, or of a float with `single` (written as 0f...)
        Variable, // address of a variable: index, `scope`, addend
        Function, // index in Tree::functions
        Label,    // index of the labelled instruction in Function::body; its size for the end
        Memory,   // [parts[0] + addend]; parts[0] is a Register, a Variable, or an Integer;
                  // [a, b] has more parts (textures, tensors)
        Vector,   // {parts...}
        Pair,     // parts[0] | parts[1]
        Sink,     // _
    };
    enum class Scope : uint8_t { Module, Function };

    Kind kind = Kind::Sink;
    Scope scope = Scope::Module; // of a Variable: in Tree::variables or Function::variables
    bool negated = false;
    bool single = false;
    int index = 0;
    uint64_t bits = 0;
    int64_t addend = 0;
    std::string name;
    std::vector<Operand> parts;
};

// A line of the source from which the PTX was compiled: .loc.
struct SourceLine {
    std::shared_ptr<const std::string> file; // null: unknown
    int line = 0;
};

struct Instruction {
    int line = 0;
    SourceLine source;
    uint64_t source_number = 0; // number in .file; used until all .file directives are read
    int guard = -1;             // index of the predicate register; -1: no guard
    bool guard_negated = false;
    std::string opcode; // "ld"
    // "global", "v4", "f32": everything after the opcode, in order.
    std::vector<std::string> modifiers;
    // The operands as written. A call has: the results (one Vector, may be empty), the callee, the
    // arguments (one Vector, may be empty). An indirect call also has either a Vector of the
    // Functions that it may call, or the prototype (an Integer: index in Function::prototypes).
    // brx.idx has an index and a Vector of Labels.
    std::vector<Operand> operands;
};

struct Function {
    std::string name;
    int line = 0;
    bool entry = false;
    bool defined = false; // true if it has a body
    // Index of the function of which this is an alias, or -1; operands never refer to an alias.
    int alias = -1;
    bool visible = false, external = false, weak = false, noreturn = false;
    // The variables that the function declares, in this order: results, parameters, then others:
    // .local, .shared and so on, and the .param variables that hold results and arguments of its
    // calls.
    std::vector<Variable> variables;
    int results = 0, parameters = 0;
    // Results and parameters that are declared as .reg. The body begins by loading the register of
    // each parameter from its variable, and each return stores the registers of the results.
    struct InRegister {
        int variable, reg;
    };
    std::vector<InRegister> in_registers;
    std::vector<Register> registers; // only the registers that are used
    std::vector<Instruction> body;
    std::vector<Function> prototypes; // .callprototype: functions without a body
    std::vector<int> calls;           // called functions: indices in Tree::functions, each once
    // Performance directives; 0: not given.
    unsigned max_threads[3] = {}, required_threads[3] = {};
    unsigned max_registers = 0, min_blocks = 0;
    unsigned required_cluster[3] = {}, max_cluster = 0;
};

constexpr int newest_version = 95; // newest supported PTX version: 9.5

struct Tree {
    int version = 0;         // 83 is 8.3
    std::string target;      // "sm_75"
    int capability = 0;      // 75
    std::string source_name; // from .file 1, for messages; may be empty
    std::vector<Variable> variables;
    std::vector<Function> functions;
};

// Why a PTX text is refused.
struct Problem {
    int line = 0; // 0: no particular line
    std::string text;
    bool version = false; // the text needs a newer PTX version than is supported
    bool target = false;  // the text needs a newer or another device
};

} // namespace soft::ptx
