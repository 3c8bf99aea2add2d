#pragma once

#include "ast.h"

#include <optional>
#include <string_view>

namespace soft::ptx {

constexpr int newest_version = 90; // of the PTX language: 9.0

// Parses the text of a module. On failure `problems` holds at least one; no text is an exception
// or a crash, whatever it is.
std::optional<Tree> parse(std::string_view text, std::vector<Problem> &problems);

} // namespace soft::ptx
