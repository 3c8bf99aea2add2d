#pragma once

#include "ptx/ast.h"

#include <optional>
#include <string>
#include <vector>

namespace soft::ptx {

// Links several modules into one. A definition in one module replaces the declarations in the
// others. A declaration without a definition stays.
std::optional<Tree> link(std::vector<Tree> trees, std::vector<Problem> &problems);

// A call of a function that no module defines.
struct Missing {
    size_t tree; // the index of the module that calls it
    std::string function;
};
std::vector<Missing> missing_functions(const std::vector<Tree> &trees);

} // namespace soft::ptx
