#pragma once

#include "ptx/ast.h"

#include <optional>

namespace soft::ptx {

// Links several modules into one. A declaration in one module is replaced by the definition in
// another. If there is no definition, the declaration stays.
std::optional<Tree> link(std::vector<Tree> trees, std::vector<Problem> &problems);

} // namespace soft::ptx
