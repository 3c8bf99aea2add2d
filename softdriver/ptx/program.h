#pragma once

#include "ptx/ast.h"

#include <memory>
#include <string_view>

// The code of a module, as the rest of the driver uses it.

namespace soft::ptx {

// Returns the value of a pointer to the function with this index in Tree::functions.
constexpr uint64_t function_address(size_t index) {
    return (uint64_t{4} << 56) + 16 * (uint64_t{index} + 1);
}

struct Code; // a decoded function (code.h), which only this folder uses

struct Kernel {
    std::string name;
    std::vector<Variable> parameters; // the parameters, with their offsets
    size_t parameter_bytes = 0;
    size_t shared_bytes = 0; // bytes of static shared memory
    // Bytes of local memory of a thread, including those for called functions.
    size_t local_bytes = 0;
    size_t const_bytes = 0;
    unsigned registers = 0; // number of registers, which is an estimate
    unsigned max_threads[3] = {}, required_threads[3] = {};
    unsigned required_cluster[3] = {};
    bool uses_grid_barrier = false;
    std::shared_ptr<const Code> code;
};

// The decoded code of a module. It never changes.
struct Program {
    int version = 0, capability = 0;
    std::vector<Kernel> kernels;
    std::vector<Variable> variables;    // variables in .global and .const, with initial bytes
    std::vector<std::string> functions; // names of the visible functions that are not kernels
};

// Compiles PTX. An unknown opcode or modifier is reported as a problem, never ignored.
std::shared_ptr<const Program> compile(std::string_view text, std::vector<Problem> &problems,
                                       int newest = newest_version);
std::shared_ptr<const Program> decode(const Tree &tree, std::vector<Problem> &problems);
// Checks a text that will be linked with others, which may define the functions that it calls.
// Returns false if the text cannot be compiled.
bool check_part(std::string_view text, std::vector<Problem> &problems, int newest);

} // namespace soft::ptx
