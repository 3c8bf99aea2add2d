#pragma once

#include <cstdint>
#include <string>

namespace soft {

constexpr uint64_t max_size = uint64_t(1) << 40;

// Parses a decimal or hexadecimal number. If `unit` is given, stores the text after
// the number in it. Returns false if the text is not a number.
bool parse_number(const std::string &text, uint64_t &number, std::string *unit = nullptr);
// Parses a size with an optional unit, such as 4096, 64KiB, 256MiB or 1GiB. Returns false if the
// text is not a size.
bool parse_size(const std::string &text, uint64_t &bytes);

} // namespace soft
