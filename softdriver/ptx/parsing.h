#pragma once

#include "ptx/constant.h"
#include "ptx/reader.h"
#include "ptx/symbols.h"

#include <map>
#include <string>
#include <tuple>
#include <vector>

// This header has the functions that the parser files call in each other. They report problems
// through the reader.

namespace soft::ptx {

// The names in a .branchtargets list (Labels) or a .calltargets list (Functions).
struct NameList {
    int line = 0;
    std::vector<Operand> members;
};

struct Parsing {
    Parsing(std::string_view text, std::vector<Problem> &problems) : reader(text, problems) {
        spare = 8 * text.size() + (size_t{16} << 20);
    }

    // Subtracts bytes from `spare`. Stops the parser if `spare` is too small.
    void spend(size_t bytes);

    Reader reader;
    Tree tree;
    Names names;
    std::vector<NameList> lists;
    // For each of Tree::functions, the last function in which a call of it was found.
    std::vector<int> callers;
    int current = -1; // index of the function whose body is being read
    // The names of source files, by the numbers that .file gives them.
    std::map<uint64_t, std::shared_ptr<const std::string>> files;
    // The position that the last .loc specified; 0 if there was none.
    // The number of a file, a line and a column.
    using Location = std::tuple<uint64_t, uint64_t, uint64_t>;
    Location source, inner_source; // as in SourceLine; the file is 0 if there is none
    // For each place in an inlined function, where this function was called last.
    std::map<Location, Location> inlined_into;
    // For each register of the module, the index in Tree::variables of the variable that has its
    // value while other functions run; -1 if no function uses the register.
    std::vector<int> homes;
    // The number of bytes of memory that lists, initial values and file names may still use.
    size_t spare;
    std::vector<Register> no_registers; // always empty; used for expressions outside of functions
};

constexpr int first_version_with_abi = 30;    // PTX 3.0
constexpr int first_version_without_tex = 15; // PTX 1.5

struct Linkage {
    bool visible = false, external = false, weak = false, common = false;
};

// The functions from read_type() to read_parameter() are in parse_variable.cpp.
Type read_type(Reader &reader);
bool at_space(const Reader &reader);
// Returns whether the declaration of variables begins here.
bool at_variable(const Reader &reader);
// Reads the attributes that follow .attribute. Returns true if one of them is .managed.
bool read_attributes(Reader &reader);
// Reads a declaration of variables in .global, .shared and so on, including the semicolon.
// `function` is null for variables of the module.
void read_variables(Parsing &parsing, const Linkage &linkage, Function *function);

// Reads a parameter of a function or a prototype. Sets `name` to its name, and `in_register` to
// whether it is declared as .reg.
Variable read_parameter(Reader &reader, std::string_view &name, bool &in_register);

// parse_initial.cpp: reads an initial value after `=`. If the variable is an array without a size,
// sets its size.
void read_initial(Parsing &parsing, Variable &variable, const std::vector<size_t> &dimensions);

// These functions are in parse_function.cpp.
void read_function(Parsing &parsing, const Linkage &linkage); // begins at .func or .entry
Function read_prototype(Parsing &parsing);                    // reads what follows .callprototype
void read_alias(Parsing &parsing);                            // reads what follows .alias

// parse_remark.cpp: reads .loc and .file, and skips .pragma and .section. Returns false if the next
// token is none of these directives.
bool read_remark(Parsing &parsing);
// Sets the source file of every instruction. Called at the end of the text.
void name_files(Parsing &parsing);

// parse_body.cpp: reads the body of a function, in braces. Then closes the block that has the names
// of the function's parameters.
void read_body(Parsing &parsing, Function &function);
// parse_labels.cpp: notes that `function` calls `callee`.
void note_call(Parsing &parsing, Function &function, int callee);
// Closes the innermost block. Only now resolves the references to its labels and lists, because
// they may be used before they are defined.
void close_block(Parsing &parsing, Function &function);

// parse_instruction.cpp: reads an instruction, from its guard to the semicolon.
void read_instruction(Parsing &parsing, Function &function);

// These functions are in parse_registers.cpp.
// Reads what follows .reg. `function` is null for registers of the module.
void read_registers(Parsing &parsing, Function *function);
// Notes that the module has registers or local memory, which makes its functions leave the ABI.
void leave_abi(Parsing &parsing, const Linkage &linkage);
// Results and parameters that are declared as .reg are passed in .param variables.
// load_parameters() begins the body with loads of the parameters. store_results() adds stores of
// the results at each end of the body.
void load_parameters(Function &function);
void store_results(Function &function, int line);
// Adds loads and stores of the module's registers to a body that uses them. Such a register is in a
// variable while other functions run: it is loaded at the begin of the body and after each call,
// and stored before each call and at each end of the body.
void share_registers(Parsing &parsing, Function &function);

// parse_operand.cpp: reads an operand of an instruction.
Operand read_operand(Parsing &parsing, Function &function);
} // namespace soft::ptx
