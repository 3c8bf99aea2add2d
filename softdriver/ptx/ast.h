#pragma once

#include "ptx/type.h"

#include <memory>
#include <string>
#include <vector>

// The syntax tree of a PTX module, in which all names are resolved. The parser (parser.h) creates
// it, and the decoder (decoder.h) turns it into code.

namespace soft::ptx {

// A variable in memory. It belongs to a module or a function, or is a parameter.
struct Variable {
    // A place in the initial bytes that will hold the address of a variable or function.
    struct Address {
        size_t offset = 0;
        size_t width = 8;
        // For generic(name): the generic address, not that in the variable's space.
        bool generic = false;
        bool function = false;
        // Lowest bit of the part of the address that is stored: 8 for 0xFF00(name).
        unsigned shift = 0;
        int target = 0; // index in Tree::variables or Tree::functions
        int64_t addend = 0;
    };

    std::string name;
    int line = 0;
    Space space = Space::Global;
    Type type = Type::None;
    size_t count = 1;     // number of items; 0 for an extern shared array without a size
    size_t alignment = 1; // alignment in bytes
    size_t offset = 0;    // for a parameter: offset in the function's result or parameter block
    bool visible = false, external = false, weak = false, common = false;
    bool managed = false;
    // Initial bytes; if they are fewer than the variable has, the rest is zero.
    std::vector<uint8_t> initial;
    std::vector<Address> addresses;

    size_t bytes() const { return count * size_of(type); }
};

struct Register {
    std::string name;
    Type type = Type::None;
};

struct Operand {
    enum class Kind : uint8_t {
        Register, // `index` in Function::registers; `negated` for !p; `name` is "b0" for r.b0
        Special,  // a special register with this `name`, such as "%tid.x"
        Integer,  // the value is in `bits`
        Float,    // `bits` is a double or, if `single`, a float (written as 0f...)
        Variable, // the address of a variable (`index`, `scope`) plus `addend`
        Function, // a function: `index` in Tree::functions
        Label,    // index of the labelled instruction in Function::body; its size for the end
        Memory,   // [parts[0] + addend]; parts[0] is a Register, a Variable, or an Integer;
                  // [a, b] has more parts (textures, tensors)
        Vector,   // {a, b, ...}: the items are `parts`
        Pair,     // p | q: the two destinations are `parts`
        Sink,     // _: the result is dropped
    };
    enum class Scope : uint8_t { Module, Function };

    Kind kind = Kind::Sink;
    // For a Variable: index is in Tree::variables or Function::variables.
    Scope scope = Scope::Module;
    bool negated = false;
    bool single = false;
    int index = 0;
    uint64_t bits = 0;
    int64_t addend = 0;
    std::string name;
    std::vector<Operand> parts;
};

// A line of the source from which the PTX was compiled, as .loc says.
struct SourceLine {
    std::shared_ptr<const std::string> file; // null if unknown
    int line = 0;
};

struct Instruction {
    int line = 0;
    SourceLine source;
    // The number that .file gives to the source file; used until all .file directives are read.
    uint64_t source_number = 0;
    int guard = -1; // index of the predicate register; -1 if there is no guard
    bool guard_negated = false;
    std::string opcode; // such as "ld"
    // Everything after the opcode, in order, such as "global", "v4", "f32".
    std::vector<std::string> modifiers;
    // The operands as written. A call has three operands: its results (a Vector, which may be
    // empty), the callee, and the arguments (a Vector, which may be empty). An indirect call has a
    // fourth: a Vector of the Functions that it may call, or the prototype (an Integer, which is an
    // index in Function::prototypes). brx.idx has an index and a Vector of Labels.
    std::vector<Operand> operands;
};

struct Function {
    std::string name;
    int line = 0;
    bool entry = false;
    bool defined = false; // true if the function has a body
    // If this function is an alias, the index of the function for which it stands; else -1.
    // Operands never refer to an alias.
    int alias = -1;
    bool visible = false, external = false, weak = false, noreturn = false;
    // The variables that the function declares. Its results come first, then its parameters, then
    // all others: variables in .local, .shared and so on, and the .param variables that hold
    // results and arguments of its calls.
    std::vector<Variable> variables;
    int results = 0, parameters = 0;
    // Results and parameters that are declared as .reg. The body begins by loading the register of
    // each parameter from its variable, and each return stores the registers of the results.
    struct InRegister {
        int variable, reg;
    };
    std::vector<InRegister> in_registers;
    std::vector<Register> registers; // the registers; of a range only those that are used
    std::vector<Instruction> body;
    // The prototypes that .callprototype declares: functions without a body.
    std::vector<Function> prototypes;
    // Indices in Tree::functions of the functions that it calls, each once.
    std::vector<int> calls;
    // Values of performance directives such as .maxntid; 0 if a directive is missing.
    unsigned max_threads[3] = {}, required_threads[3] = {};
    unsigned max_registers = 0, min_blocks = 0;
    unsigned required_cluster[3] = {}, max_cluster = 0;
};

constexpr int newest_version = 95; // the newest supported PTX version, 9.5

struct Tree {
    int version = 0;         // 83 for version 8.3
    std::string target;      // such as "sm_75"
    int capability = 0;      // 75 for sm_75
    std::string source_name; // from .file 1, for messages; empty if there is none
    std::vector<Variable> variables;
    std::vector<Function> functions;
};

// A reason why a PTX text is refused.
struct Problem {
    int line = 0; // 0 if it concerns no particular line
    std::string text;
    bool version = false; // the text needs a newer PTX version than is supported
    bool target = false;  // the text needs a newer or another device
};

} // namespace soft::ptx
