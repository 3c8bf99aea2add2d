#pragma once

#include "ptx/ast.h"

#include <optional>

namespace soft::ptx {

// Links several modules into one. A definition in one module replaces the declarations in the
// others. A declaration without a definition stays.
std::optional<Tree> link(std::vector<Tree> trees, std::vector<Problem> &problems);

} // namespace soft::ptx
