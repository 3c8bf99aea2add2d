#pragma once

#include "ptx/ast.h"

#include <vector>

namespace soft::ptx {

// The call graph of a module, and the variables that each function uses. All operations take linear
// time, even with cycles.
class CallGraph {
  public:
    explicit CallGraph(const Tree &tree);

    // All functions that a function may call, itself first. A call through a pointer may call every
    // function.
    std::vector<int> reachable(int from) const;
    // The module's variables that these functions use, sorted, each once.
    std::vector<int> variables(const std::vector<int> &functions) const;
    // For each function the largest sum of `own` along a chain of calls that begins with it. A
    // cycle counts once, with all of its functions.
    std::vector<size_t> deepest(const std::vector<size_t> &own) const;

  private:
    const Tree &tree_;
    std::vector<std::vector<int>> variables_; // the module's variables that each function uses
    std::vector<bool> calls_pointers_;
};

} // namespace soft::ptx
