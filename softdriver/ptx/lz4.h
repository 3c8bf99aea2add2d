#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace soft::ptx {

// Decompresses one LZ4 block. Returns nothing if the block is corrupt, or if the text is longer
// than `most` bytes.
std::optional<std::string> decompress_lz4(std::string_view block, size_t most);

} // namespace soft::ptx
