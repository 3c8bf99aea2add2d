#pragma once

#include "ptx/ast.h"

#include <optional>

namespace soft::ptx {

// Links several modules to one. A declaration in one becomes the definition in another; a
// declaration without a definition stays.
std::optional<Tree> link(std::vector<Tree> trees, std::vector<Problem> &problems);

} // namespace soft::ptx
