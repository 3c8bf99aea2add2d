#pragma once

#include "ptx/ast.h"

#include <memory>
#include <string_view>

// This header has the compiled code of a module, as the other folders of the driver use it.

namespace soft::ptx {

// Returns the value of a pointer to a function, from its index in Tree::functions.
constexpr uint64_t function_address(size_t index) {
    return (uint64_t{4} << 56) + 16 * (uint64_t{index} + 1);
}

struct Code; // a decoded function (code.h), which only this folder uses

struct Kernel {
    std::string name;
    std::vector<Variable> parameters; // the parameters, with their offsets
    size_t parameter_bytes = 0;
    size_t shared_bytes = 0; // bytes of static shared memory
    // Bytes of local memory that a thread needs, with the local memory of called functions.
    size_t local_bytes = 0;
    size_t const_bytes = 0;
    unsigned registers = 0; // estimated number of registers
    unsigned max_threads[3] = {}, required_threads[3] = {};
    unsigned required_cluster[3] = {}, max_cluster = 0;
    bool explicit_cluster = false; // a launch without clusters is an error
    bool uses_heap = false;        // calls malloc or free
    // True if the order in which blocks run makes no difference, except by data races: the code has
    // no instruction with which blocks communicate.
    bool independent_blocks = false;
    bool has_copies = false; // see Code::has_copies
    bool uses_reserved_shared = false, uses_cluster_barrier = false;
    bool reads_time = false; // see Code::reads_time
    std::shared_ptr<const Code> code;
};

// The decoded code of a module. It does not change after its creation.
struct Program {
    int version = 0, capability = 0;
    std::string target; // such as "sm_90a"
    std::vector<Kernel> kernels;
    std::vector<Variable> variables;    // in .global and .const, with their initial values
    std::vector<std::string> functions; // names of the visible functions that are not kernels
};

// Compiles PTX. An unknown opcode or modifier is a problem and is never ignored.
std::shared_ptr<const Program> compile(std::string_view text, std::vector<Problem> &problems,
                                       int newest = newest_version);
std::shared_ptr<const Program> decode(const Tree &tree, std::vector<Problem> &problems);
// Checks a text that is one part of a link. Other parts may define the functions that it calls.
// Returns false if the text cannot be compiled.
bool check_part(std::string_view text, std::vector<Problem> &problems, int newest);

} // namespace soft::ptx
