#pragma once

#include "ptx/constant.h"
#include "ptx/reader.h"
#include "ptx/symbols.h"

#include <map>
#include <string>
#include <vector>

// The interfaces between the parts of the parser. They report problems through the reader.

namespace soft::ptx {

// The members of .branchtargets (Labels) or .calltargets (Functions).
struct NameList {
    int line = 0;
    std::vector<Operand> members;
};

struct Parsing {
    Parsing(std::string_view text, std::vector<Problem> &problems) : reader(text, problems) {
        spare = 8 * text.size() + (size_t{16} << 20);
    }

    // Takes bytes from `spare`. Stops the parser if there are not enough.
    void spend(size_t bytes);

    Reader reader;
    Tree tree;
    Names names;
    std::vector<NameList> lists;
    std::vector<int> callers; // for each of Tree::functions the last function seen to call it
    int current = -1;         // index of the function whose body is being read
    std::map<uint64_t, std::shared_ptr<const std::string>> files; // names from .file, by number
    uint64_t source_file = 0;                                     // from the last .loc; 0: unknown
    int source_line = 0;
    size_t spare; // bytes that lists, initial values and file names may still use
    std::vector<Register> no_registers; // a module has no registers
};

struct Linkage {
    bool visible = false, external = false, weak = false, common = false;
};

// parse_variable.cpp
Type read_type(Reader &reader);
bool at_space(const Reader &reader);
// Reads the attributes after .attribute. Returns true if one is .managed.
bool read_attributes(Reader &reader);
// Reads the variables of .global, .shared and so on, up to the semicolon, in a module or in a body.
void read_variables(Parsing &parsing, const Linkage &linkage, Function *function);

// Reads a parameter of a function or a prototype. Returns its name in the text, and whether it is
// .reg.
Variable read_parameter(Reader &reader, std::string_view &name, bool &in_register);

// parse_initial.cpp: reads an initial value after `=`. Sets the size of an array that has none.
void read_initial(Parsing &parsing, Variable &variable, const std::vector<size_t> &dimensions);

// parse_function.cpp
void read_function(Parsing &parsing, const Linkage &linkage); // from .func or .entry
Function read_prototype(Parsing &parsing);                    // after .callprototype
void read_alias(Parsing &parsing);                            // after .alias

// parse_remark.cpp: reads .loc and .file, and skips .pragma and .section. False if there is none of
// them.
bool read_remark(Parsing &parsing);
// Called at the end of the text: sets the source files of instructions.
void name_files(Parsing &parsing);

// parse_body.cpp: reads a body in braces, and closes the block of the parameters.
void read_body(Parsing &parsing, Function &function);
// parse_labels.cpp
void note_call(Parsing &parsing, Function &function, int callee);
// Closes the innermost block: resolves references to labels and lists of labels, which may be used
// before they are defined.
void close_block(Parsing &parsing, Function &function);

// parse_instruction.cpp: reads an instruction, from its guard to the semicolon.
void read_instruction(Parsing &parsing, Function &function);
// Results and parameters that are declared as .reg are passed in .param variables: parameters are
// loaded when the function begins, results are stored at each of its ends.
void load_parameters(Function &function);
void store_results(Function &function, int line);
// parse_operand.cpp
Operand read_operand(Parsing &parsing, Function &function);
} // namespace soft::ptx
