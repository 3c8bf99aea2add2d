#include "ptx/lz4.h"

#include <cstdint>

namespace soft::ptx {

namespace {

constexpr size_t shortest_match = 4;

class Compressed {
  public:
    explicit Compressed(std::string_view bytes) : bytes_(bytes) {}

    bool done() const { return position_ == bytes_.size(); }

    bool byte(uint8_t &value) {
        if (done())
            return false;
        value = uint8_t(bytes_[position_++]);
        return true;
    }

    // Reads a length. It begins with four bits of the token. If these are 15, more bytes follow
    // and are added to the length. The first byte that is not 255 is the last one.
    bool length(unsigned nibble, size_t &value) {
        value = nibble;
        uint8_t more = nibble == 15 ? 255 : 0;
        while (more == 255) {
            if (!byte(more))
                return false;
            value += more;
        }
        return true;
    }

    bool literals(size_t count, size_t most, std::string &out) {
        if (count > bytes_.size() - position_ || count > most - out.size())
            return false;
        out.append(bytes_.substr(position_, count));
        position_ += count;
        return true;
    }

    // Appends a copy of earlier output. The copy may overlap its source.
    bool match(unsigned nibble, size_t most, std::string &out) {
        uint8_t low, high;
        size_t count;
        if (!byte(low) || !byte(high) || !length(nibble, count))
            return false;
        size_t back = low | size_t(high) << 8;
        count += shortest_match;
        if (!back || back > out.size() || count > most - out.size())
            return false;
        for (size_t from = out.size() - back; count > 0; count--)
            out += out[from++];
        return true;
    }

  private:
    std::string_view bytes_;
    size_t position_ = 0;
};

} // namespace

std::optional<std::string> decompress_lz4(std::string_view bytes, size_t most) {
    Compressed block(bytes);
    std::string out;
    uint8_t token;
    size_t count;
    while (block.byte(token)) {
        if (!block.length(token >> 4, count) || !block.literals(count, most, out))
            return std::nullopt;
        if (block.done()) // the last literals have no match after them
            return out;
        if (!block.match(token & 15, most, out))
            return std::nullopt;
    }
    return std::nullopt;
}

} // namespace soft::ptx
