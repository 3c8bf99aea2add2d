#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace soft {

// The choices of a run under the schedule `replay`: for each place with several options, the index
// of the option that is taken.
using Script = std::vector<uint32_t>;

// The first number of a script that lets calls wait wherever a driver may wait: a free, or a copy
// from memory that is not page-locked.
constexpr uint32_t strongest = UINT32_MAX;

// Scripts as texts. A text begins with "x", or with "s" if the script begins with `strongest`. Then
// comes an item for each choice that is not the first option, with "-" between the items. An item
// is the choice, or "N:choice" if N first options come before it. So "x3:2-1" takes three first
// options, then option 2, then option 1, and from there on the first.
std::string text_of(const Script &script);
bool parse_script(const std::string &text, Script &script);

} // namespace soft
