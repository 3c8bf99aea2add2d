#pragma once

#include "ptx/type.h"

#include <memory>
#include <string>
#include <vector>

// A PTX module as it was written, with every name resolved. The parser makes it (parser.h), the
// decoder turns it into what is run.

namespace soft::ptx {

// A variable in memory: of the module, of a function, or one of its parameters.
struct Variable {
    // A place in the initial bytes that is to hold an address of another variable or function.
    struct Address {
        size_t offset = 0;
        size_t width = 8;
        bool generic = false; // generic(name), else the address in the variable's own space
        bool function = false;
        unsigned shift = 0; // the part of the address that begins at this bit: 0xFF00(name) is 8
        int target = 0;     // index in Tree::variables, or in Tree::functions
        int64_t addend = 0;
    };

    std::string name;
    int line = 0;
    Space space = Space::Global;
    Type type = Type::None;
    size_t count = 1;     // of items of the type; 0 for an array without a size (extern shared)
    size_t alignment = 1; // in bytes
    size_t offset = 0;    // of a parameter: in its function's block of results, or of parameters
    bool visible = false, external = false, weak = false, common = false;
    bool managed = false;
    std::vector<uint8_t> initial; // may be shorter than the variable: the rest is zero
    std::vector<Address> addresses;

    size_t bytes() const { return count * size_of(type); }
};

struct Register {
    std::string name;
    Type type = Type::None;
};

struct Operand {
    enum class Kind : uint8_t {
        Register, // index in Function::registers; `negated` for !p; name: "b0" of r.b0
        Special,  // name: "%tid.x"
        Integer,  // bits
        Float,    // bits, of a double; `single` if it was written as 0f...: then of a float
        Variable, // a name as an address: index, `scope`; with `addend`
        Function, // index in Tree::functions
        Label,    // index in Function::body of the instruction that it stands before, or its end
        Memory,   // [parts[0] + addend]; parts[0] is a Register, a Variable, or an Integer;
                  // [a, b] has more parts (textures, tensors)
        Vector,   // {parts...}
        Pair,     // parts[0] | parts[1]
        Sink,     // _
    };
    enum class Scope : uint8_t { Module, Function };

    Kind kind = Kind::Sink;
    Scope scope = Scope::Module; // of a variable: Tree::variables or Function::variables
    bool negated = false;
    bool single = false;
    int index = 0;
    uint64_t bits = 0;
    int64_t addend = 0;
    std::string name;
    std::vector<Operand> parts;
};

// A line of the language that the text was compiled from: .loc.
struct SourceLine {
    std::shared_ptr<const std::string> file; // null: not known
    int line = 0;
};

struct Instruction {
    int line = 0;
    SourceLine source;
    uint64_t source_number = 0; // of .file, until all of these are known
    int guard = -1;             // register of the predicate; -1: none
    bool guard_negated = false;
    std::string opcode;                 // "ld"
    std::vector<std::string> modifiers; // "global", "v4", "f32": all that follows, in order
    // As written. Of a call: results (one Vector, may be empty), callee, arguments (likewise), and
    // for an indirect call a Vector of the Functions that it may call, or the prototype (an
    // Integer: its index in Function::prototypes). Of brx.idx: index, and a Vector of Labels.
    std::vector<Operand> operands;
};

struct Function {
    std::string name;
    int line = 0;
    bool entry = false;
    bool defined = false; // it has a body; else a declaration
    int alias = -1;       // the function that this is another name of; no operand refers to it then
    bool visible = false, external = false, weak = false, noreturn = false;
    // Parameters and variables in .local, .shared and so on that the body declares, and the
    // results and arguments of its calls (.param variables of the body). First the results, then
    // the parameters, then the others.
    std::vector<Variable> variables;
    int results = 0, parameters = 0;
    // Results and parameters that were declared as .reg: their variables, and the registers that
    // instructions of the body load from them and store to them.
    struct InRegister {
        int variable, reg;
    };
    std::vector<InRegister> in_registers;
    std::vector<Register> registers; // those that are used
    std::vector<Instruction> body;
    std::vector<Function> prototypes; // .callprototype: no body
    std::vector<int> calls;           // indices in Tree::functions, once each
    // Directives of performance; 0: not given.
    unsigned max_threads[3] = {}, required_threads[3] = {};
    unsigned max_registers = 0, min_blocks = 0;
    unsigned required_cluster[3] = {}, max_cluster = 0;
};

constexpr int newest_version = 95; // of the PTX language that is read: 9.5

struct Tree {
    int version = 0;         // 83 is 8.3
    std::string target;      // "sm_75"
    int capability = 0;      // 75
    std::string source_name; // from .file 1, for messages; may be empty
    std::vector<Variable> variables;
    std::vector<Function> functions;
};

// Why a text is refused.
struct Problem {
    int line = 0; // 0: none in particular
    std::string text;
    bool version = false; // the text is of a newer version than is known
    bool target = false;  // for a newer or more particular device
};

} // namespace soft::ptx
