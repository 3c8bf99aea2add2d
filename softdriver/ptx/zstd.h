#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace soft::ptx {

// Decompresses one or more frames of Zstandard (RFC 8878). Returns nothing if they are corrupt or
// need a dictionary, or if the text is longer than `most` bytes. Checksums are not compared: the
// compilers that make fatbins write none.
std::optional<std::string> decompress_zstd(std::string_view frames, size_t most);

} // namespace soft::ptx
