#pragma once

#include "ptx/ast.h"

#include <optional>
#include <string_view>

namespace soft::ptx {

// Parses a PTX module whose version is at most `newest` (95 means 9.5). If the text has an error,
// returns nothing and adds at least one problem. Never throws or crashes, even if the text is not
// PTX.
std::optional<Tree> parse(std::string_view text, std::vector<Problem> &problems,
                          int newest = newest_version);

} // namespace soft::ptx
