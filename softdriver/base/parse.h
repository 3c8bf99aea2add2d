#pragma once

#include <cstdint>
#include <string>

namespace soft {

constexpr uint64_t max_size = uint64_t(1) << 40;

// Parse a number in the text of a setting; return false if it is anything else.
bool parse_number(const std::string &text, uint64_t &number, std::string *unit = nullptr);
// Parses a size with an optional unit: 4096, 64KiB, 256MiB, 1GiB.
bool parse_size(const std::string &text, uint64_t &bytes);

} // namespace soft
