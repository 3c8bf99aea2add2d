#pragma once

#include <cstdint>
#include <string>

namespace soft {

constexpr uint64_t max_size = uint64_t(1) << 40;

// Parses a number in the text of a setting. Returns false if the text is anything else.
bool parse_number(const std::string &text, uint64_t &number, std::string *unit = nullptr);
// Parses a size with an optional unit, such as 4096, 64KiB, 256MiB or 1GiB. Returns false if the
// text is anything else.
bool parse_size(const std::string &text, uint64_t &bytes);

} // namespace soft
