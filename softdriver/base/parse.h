#pragma once

#include <cstdint>
#include <string>

namespace soft {

constexpr uint64_t max_size = uint64_t(1) << 40;

// Numbers and sizes in the text of settings; false if the text is something else.
bool parse_number(const std::string &text, uint64_t &number, std::string *unit = nullptr);
// With a unit: 4096, 64KiB, 256MiB, 1GiB.
bool parse_size(const std::string &text, uint64_t &bytes);

} // namespace soft
