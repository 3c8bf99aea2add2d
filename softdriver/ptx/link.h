#pragma once

#include "ptx/ast.h"

#include <optional>

namespace soft::ptx {

// One module of several: what one declares and another defines becomes the same. What nobody
// defines stays a declaration.
std::optional<Tree> link(std::vector<Tree> trees, std::vector<Problem> &problems);

} // namespace soft::ptx
