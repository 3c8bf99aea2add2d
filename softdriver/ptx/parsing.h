#pragma once

#include "ptx/constant.h"
#include "ptx/reader.h"
#include "ptx/symbols.h"

#include <map>
#include <string>
#include <vector>

// The parts of the parser, each of which reads one kind of thing. They tell of problems through the
// reader.

namespace soft::ptx {

// .branchtargets (members are Labels) or .calltargets (Functions).
struct NameList {
    int line = 0;
    std::vector<Operand> members;
};

struct Parsing {
    Parsing(std::string_view text, std::vector<Problem> &problems) : reader(text, problems) {
        spare = 8 * text.size() + (size_t{16} << 20);
    }

    // Takes from `spare`; ends the parsing if there is not so much.
    void spend(size_t bytes);

    Reader reader;
    Tree tree;
    Names names;
    std::vector<NameList> lists;
    std::vector<int> callers; // of each of Tree::functions: the last one that was seen to call it
    int current = -1;         // the function whose body is read
    std::map<uint64_t, std::shared_ptr<const std::string>> files; // .file, by number
    uint64_t source_file = 0; // .loc, of the instructions that follow; 0: not known
    int source_line = 0;
    size_t spare; // bytes that may yet be taken, beyond those that tokens need anyway
    std::vector<Register> no_registers; // of the module
};

struct Linkage {
    bool visible = false, external = false, weak = false, common = false;
};

// parse_variable.cpp
Type read_type(Reader &reader);
bool at_space(const Reader &reader);
// After .attribute: whether it is .managed.
bool read_attributes(Reader &reader);
// .global and its like, to the semicolon, of the module or in the body of a function.
void read_variables(Parsing &parsing, const Linkage &linkage, Function *function);

// Of a function or a prototype; puts out its name as it stands in the text, and whether it is .reg.
Variable read_parameter(Reader &reader, std::string_view &name, bool &in_register);

// parse_initial.cpp: what follows the equals sign. Sizes an array that has no size.
void read_initial(Parsing &parsing, Variable &variable, const std::vector<size_t> &dimensions);

// parse_function.cpp
void read_function(Parsing &parsing, const Linkage &linkage); // from .func or .entry on
Function read_prototype(Parsing &parsing);                    // after .callprototype
void read_alias(Parsing &parsing);                            // after .alias

// parse_remark.cpp: .loc and .file are noted, .pragma and .section are skipped; false if none is
// there.
bool read_remark(Parsing &parsing);
// At the end of the text: the files that instructions come from.
void name_files(Parsing &parsing);

// parse_body.cpp: what stands in the braces, and closes the block of names.
void read_body(Parsing &parsing, Function &function);
// parse_labels.cpp
void note_call(Parsing &parsing, Function &function, int callee);
// Gives labels and lists of labels, which may be used before they are defined,
// their meaning, at the end of the innermost block.
void close_block(Parsing &parsing, Function &function);

// parse_instruction.cpp: from the opcode to the semicolon.
void read_instruction(Parsing &parsing, Function &function);
// What a function hands on in registers goes through .param: at its beginning, and at each end.
void load_parameters(Function &function);
void store_results(Function &function, int line);
// parse_operand.cpp
Operand read_operand(Parsing &parsing, Function &function);
} // namespace soft::ptx
