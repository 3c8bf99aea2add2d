#pragma once

#include "ptx/ast.h"

#include <vector>

namespace soft::ptx {

// The call graph of a module, and the variables that each function uses. All operations take linear
// time, even with cycles.
class CallGraph {
  public:
    explicit CallGraph(const Tree &tree);

    // Returns all functions that a function may call, directly or not, and the function itself
    // first. A call through a pointer may call every function.
    std::vector<int> reachable(int from) const;
    // Returns the module's variables that these functions use, sorted, each once.
    std::vector<int> variables(const std::vector<int> &functions) const;
    // Returns for each function the largest sum of `own` over a chain of calls that begins with the
    // function. All functions of a cycle count once.
    std::vector<size_t> deepest(const std::vector<size_t> &own) const;

  private:
    const Tree &tree_;
    std::vector<std::vector<int>> variables_; // the module's variables that each function uses
    std::vector<bool> calls_pointers_;
};

} // namespace soft::ptx
