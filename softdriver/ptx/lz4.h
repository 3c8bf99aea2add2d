#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace soft::ptx {

// One block of the LZ4 format; nothing if it is broken or holds more than `most` bytes.
std::optional<std::string> decompress_lz4(std::string_view block, size_t most);

} // namespace soft::ptx
