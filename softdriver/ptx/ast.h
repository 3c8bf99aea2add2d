#pragma once

#include "ptx/type.h"

#include <memory>
#include <string>
#include <vector>

// This header has the syntax tree of a PTX module, in which all names are resolved. The parser
// (parser.h) creates it, and the decoder (decoder.h) turns it into code.

namespace soft::ptx {

// A variable in memory. It is a variable of a module or of a function, or a parameter.
struct Variable {
    // A place in the initial bytes of a variable that will hold an address of a variable or
    // function.
    struct Address {
        size_t offset = 0;
        size_t width = 8;
        // True for generic(name), whose value is the generic address instead of the address in the
        // variable's state space.
        bool generic = false;
        bool function = false;
        // The stored bytes are the address, shifted right by this number of bits: 8 for
        // 0xFF00(name).
        unsigned shift = 0;
        int target = 0; // index in Tree::variables or Tree::functions
        int64_t addend = 0;
    };

    // What a variable of an opaque type refers to. The address of the variable is the handle with
    // which instructions find the texture or surface that the program has bound to it.
    enum class Reference : uint8_t { None, Texture, Surface };

    std::string name;
    int line = 0;
    Space space = Space::Global;
    Type type = Type::None;
    Reference reference = Reference::None;
    size_t count = 1;      // number of items; 0 for an extern shared array of unknown size
    bool is_array = false; // declared with brackets
    size_t alignment = 1;  // alignment in bytes
    size_t offset = 0;     // for a parameter: offset in the block of results or of parameters
    bool visible = false, external = false, weak = false, common = false;
    bool managed = false;
    // True for a parameter that is declared as a predicate. Its variable holds 0 or 1.
    bool is_predicate = false;
    // The first bytes of the initial value. The bytes after them are zero.
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
        // `index` in Function::registers; `negated` for !p; `name` is "b0" for r.b0. The value is
        // the register's, plus `addend`.
        Register,
        Special,  // a special register with this `name`, such as "%tid.x"
        Integer,  // the value is in `bits`
        Float,    // `bits` has the bits of a double, or of a float (0f...) if `single` is set
        Variable, // the address of a variable (`index`, `scope`), plus `addend`
        Function, // a function: `index` in Tree::functions
        Label,    // `index` in Function::body of the labelled instruction; body.size() at the end
        // The address parts[0] + addend, where parts[0] is a Register, a Variable or an Integer. An
        // operand [a, b] of a texture or tensor has more parts.
        Memory,
        // array[index], an item of the array parts[0] (a Variable). Its distance from the begin of
        // the array is parts[1] * bits + addend bytes, where parts[1], which may be missing, is the
        // Register in the index, and `bits` the size of an item.
        Element,
        Vector, // {a, b, ...}: the items are `parts`
        Pair,   // p | q: the two destinations are `parts`
        Sink,   // _: the result is dropped
    };
    enum class Scope : uint8_t { Module, Function };

    Kind kind = Kind::Sink;
    // For a Variable, says whether `index` is an index in Tree::variables or Function::variables.
    Scope scope = Scope::Module;
    bool negated = false;
    bool single = false;
    int index = 0;
    uint64_t bits = 0;
    int64_t addend = 0;
    std::string name;
    std::vector<Operand> parts;
};

// The line of the source code from which an instruction was compiled, which .loc specifies. If the
// instruction is part of an inlined function, `file` and `line` are those of the outermost call.
struct SourceLine {
    std::shared_ptr<const std::string> file; // null if the file is unknown
    int line = 0;
    std::shared_ptr<const std::string> inner_file; // null if the instruction is not inlined
    int inner_line = 0;
};

struct Instruction {
    int line = 0;
    SourceLine source;
    // The numbers of the source files in .file. Only used until all .file directives are read.
    uint64_t source_number = 0, inner_number = 0;
    int guard = -1; // index of the predicate register; -1 if the instruction has no guard
    bool guard_negated = false;
    std::string opcode; // such as "ld"
    // The parts of the instruction's name after the opcode, such as "global", "v4", "f32".
    std::vector<std::string> modifiers;
    // The operands as written. A call has three: its results (a Vector), the callee, and the
    // arguments (a Vector); the Vectors may be empty. An indirect call has a fourth operand: a
    // Vector of the Functions that it may call, or an Integer, which is the index of the prototype
    // in Function::prototypes. brx.idx has an index and a Vector of Labels.
    std::vector<Operand> operands;
};

struct Function {
    std::string name;
    int line = 0;
    bool entry = false;
    bool defined = false; // true if the function has a body
    // For an alias: the index of the real function, which replaces the alias in all operands; else
    // -1.
    int alias = -1;
    bool visible = false, external = false, weak = false, noreturn = false;
    // The variables that the function declares: its results, its parameters, and then all others.
    // The others are variables in .local, .shared and so on, and .param variables for results and
    // arguments of calls.
    std::vector<Variable> variables;
    int results = 0, parameters = 0;
    // Results and parameters that are declared as .reg also have a variable. The body begins with
    // loads of the parameters' registers from their variables. Each return stores the results'
    // registers to their variables. A vector has an item for each component, at its offset in
    // bytes.
    struct InRegister {
        int variable, reg;
        size_t offset;
    };
    std::vector<InRegister> in_registers;
    // The declared registers. Of a range such as %r<100>, the list has only the registers that the
    // body uses.
    std::vector<Register> registers;
    std::vector<Instruction> body;
    // The prototypes that .callprototype declares, as functions without a body.
    std::vector<Function> prototypes;
    // The indices in Tree::functions of the functions that the body calls, each once.
    std::vector<int> calls;
    // Values of performance directives such as .maxntid; 0 if a directive is missing.
    unsigned max_threads[3] = {}, required_threads[3] = {};
    unsigned max_registers = 0, min_blocks = 0;
    unsigned required_cluster[3] = {}, max_cluster = 0;
    bool explicit_cluster = false;
};

constexpr int newest_version = 95; // the newest supported PTX version, 9.5

struct Tree {
    int version = 0;    // 83 for version 8.3
    std::string target; // such as "sm_75"
    // True if functions do not follow the ABI, so that they may have parameters in predicates and
    // in registers of 16 bits, and so that the module may have registers and local memory.
    bool without_abi = false;
    int capability = 0;      // 75 for sm_75
    std::string source_name; // the name in .file 1, for messages; empty if there is none
    std::vector<Variable> variables;
    std::vector<Function> functions;
};

// A reason why a PTX text cannot be compiled.
struct Problem {
    int line = 0; // line of the text; 0 if the problem has no line
    std::string text;
    bool version = false; // true if the text needs a newer PTX version than is supported
    bool target = false;  // true if the text needs a newer or another device
    bool whole = false;   // true if logs show only `text`, without its place in the PTX
    bool nowhere = false; // true if the text is correct, but NVIDIA's driver cannot run it either
};

} // namespace soft::ptx
