#pragma once

#include <string>

namespace soft {

// The text as a string of JSON, in quotation marks.
std::string quoted(const std::string &text);

} // namespace soft
