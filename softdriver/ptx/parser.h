#pragma once

#include "ptx/ast.h"

#include <optional>
#include <string_view>

namespace soft::ptx {

// Parses the text of a module, in a version of PTX up to `newest` (95 is 9.5). On failure
// `problems` holds at least one; no text is an exception or a crash, whatever it is.
std::optional<Tree> parse(std::string_view text, std::vector<Problem> &problems,
                          int newest = newest_version);

} // namespace soft::ptx
