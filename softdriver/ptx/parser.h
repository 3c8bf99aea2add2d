#pragma once

#include "ptx/ast.h"

#include <optional>
#include <string_view>

namespace soft::ptx {

// Parses a PTX module of a version up to `newest` (95 is 9.5). If it fails, returns nothing and
// adds at least one problem. Never throws or crashes, however broken the text is.
std::optional<Tree> parse(std::string_view text, std::vector<Problem> &problems,
                          int newest = newest_version);

} // namespace soft::ptx
