#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace soft::ptx {

// Decompresses one LZ4 block. Nothing if it is corrupt or longer than `most` bytes.
std::optional<std::string> decompress_lz4(std::string_view block, size_t most);

} // namespace soft::ptx
