#pragma once

#include "ptx/ast.h"

#include <memory>
#include <string_view>

// What the rest of the driver sees of a module's code.

namespace soft::ptx {

// What a function pointer in a module's memory holds: index in Tree::functions.
constexpr uint64_t function_address(size_t index) {
    return (uint64_t{4} << 56) + 16 * (uint64_t{index} + 1);
}

struct Code; // of one function, decoded: only the machine knows it

struct Kernel {
    std::string name;
    std::vector<Variable> parameters; // with their offsets
    size_t parameter_bytes = 0;
    size_t shared_bytes = 0; // static, and
    size_t local_bytes = 0;  // of one thread, with those of the functions it calls
    size_t const_bytes = 0;
    unsigned registers = 0; // an estimate: what a real compiler would need is not known
    unsigned max_threads[3] = {}, required_threads[3] = {};
    unsigned required_cluster[3] = {};
    bool uses_grid_barrier = false;
    std::shared_ptr<const Code> code;
};

// Decoded once for a module, and never changed.
struct Program {
    int version = 0, capability = 0;
    std::vector<Kernel> kernels;
    std::vector<Variable> variables; // .global and .const of the module, with their initial bytes
    std::vector<std::string> functions; // device functions that are visible
};

// An opcode or a modifier that is not known is a problem, never an approximation in silence.
std::shared_ptr<const Program> compile(std::string_view text, std::vector<Problem> &problems,
                                       int newest = newest_version);
std::shared_ptr<const Program> decode(const Tree &tree, std::vector<Problem> &problems);
// Whether a text can be compiled, as far as can be seen before it is linked with others: they may
// define the functions that it calls.
bool check_part(std::string_view text, std::vector<Problem> &problems, int newest);

} // namespace soft::ptx
