#pragma once

#include "ptx/ast.h"

#include <optional>

namespace soft::ptx {

// Links several modules into one. A declaration in one module becomes the definition from another;
// a declaration without a definition stays.
std::optional<Tree> link(std::vector<Tree> trees, std::vector<Problem> &problems);

} // namespace soft::ptx
