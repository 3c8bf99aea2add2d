#pragma once

#include <map>
#include <string>

namespace soft {

// Settings of coredumps that a program has set, by their numbers.
using CoredumpSettings = std::map<int, std::string>;

// Returns what cuCoredumpSetAttributeGlobal has set. Contexts begin with these settings.
const CoredumpSettings &coredumps_of_process();

} // namespace soft
