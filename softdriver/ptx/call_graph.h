#pragma once

#include "ptx/ast.h"

#include <vector>

namespace soft::ptx {

// The call graph of a module, and the variables that each function uses. All functions here take
// linear time, even if calls form cycles.
class CallGraph {
  public:
    explicit CallGraph(const Tree &tree);

    // Returns the function and all functions that it may call, directly or indirectly. A call
    // through a pointer may call any function.
    std::vector<int> reachable(int from) const;
    // Returns the module's variables that these functions use: sorted indices without repetitions.
    std::vector<int> variables(const std::vector<int> &functions) const;
    // Returns for each function the largest sum of `own` over the functions of any chain of calls
    // that begins with this function. In a cycle of calls, each function counts once.
    std::vector<size_t> deepest(const std::vector<size_t> &own) const;

  private:
    const Tree &tree_;
    // For each function, the module's variables that it uses.
    std::vector<std::vector<int>> variables_;
    std::vector<bool> calls_pointers_;
};

} // namespace soft::ptx
