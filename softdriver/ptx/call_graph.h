#pragma once

#include "ptx/ast.h"

#include <vector>

namespace soft::ptx {

// Who calls whom in a module, and which of its variables each function names. All of it takes time
// in proportion to the module, however its functions call each other.
class CallGraph {
  public:
    explicit CallGraph(const Tree &tree);

    // The functions that one may call, itself first. Through a pointer it may call all.
    std::vector<int> reachable(int from) const;
    // The variables of the module that these functions name, in order, once each.
    std::vector<int> variables(const std::vector<int> &functions) const;
    // Of what each function needs for itself, the most that it needs with those it calls; of
    // functions that call each other in a circle one turn is counted.
    std::vector<size_t> deepest(const std::vector<size_t> &own) const;

  private:
    const Tree &tree_;
    std::vector<std::vector<int>> variables_; // of each function
    std::vector<bool> calls_pointers_;
};

} // namespace soft::ptx
