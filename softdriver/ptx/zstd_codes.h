#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

// The two entropy codes of Zstandard (RFC 8878, section 4): finite state entropy (FSE) and Huffman.

namespace soft::ptx::zstd {

// Reads little-endian numbers from the front of a byte range.
class Bytes {
  public:
    explicit Bytes(std::string_view bytes) : rest(bytes) {}

    // Reads `size` bytes, the lowest first. Returns false if there are fewer.
    bool number(unsigned size, uint64_t &value);
    bool take(size_t size, std::string_view &part);

    std::string_view rest;
};

// Reads bits from the end of some bytes to their beginning. The highest bit that is set marks the
// end and is no part of the bits. Bits before the beginning are zeros.
class BackwardBits {
  public:
    // Returns false if there is no end mark.
    bool open(std::string_view bytes);

    // Returns the next `count` bits, at most 32, and keeps them.
    uint64_t peek(unsigned count) const;
    void skip(unsigned count) { left_ -= count; }
    uint64_t read(unsigned count) {
        uint64_t value = peek(count);
        skip(count);
        return value;
    }

    bool done() const { return left_ == 0; }
    bool overrun() const { return left_ < 0; }

  private:
    std::string_view bytes_;
    int64_t left_ = 0;
};

// A table of states. Each state has a symbol; some bits of the stream then select the next state.
class FseTable {
  public:
    // Makes a table from the frequencies of the symbols, which add up to 1 << log. A frequency of
    // -1 counts as 1, but the symbol's state is one of the last states.
    FseTable(const std::vector<int> &frequencies, unsigned log);
    // Makes a table that has only one symbol.
    explicit FseTable(uint8_t symbol) : states_{{symbol, 0, 0}} {}
    FseTable() = default;

    explicit operator bool() const { return !states_.empty(); }
    size_t first(BackwardBits &bits) const { return bits.read(log_); }
    uint8_t symbol(size_t state) const { return states_[state].symbol; }
    size_t next(size_t state, BackwardBits &bits) const {
        return states_[state].base + bits.read(states_[state].bits);
    }

  private:
    struct State {
        uint8_t symbol, bits;
        uint16_t base;
    };

    unsigned log_ = 0;
    std::vector<State> states_;
};

// Reads the description of a table with at most `symbols` symbols and 1 << log states.
bool read_fse_table(Bytes &from, size_t symbols, unsigned log, FseTable &table);

// A table that maps the next bits of a stream to a symbol.
class HuffmanTable {
  public:
    // Reads the description of a table.
    bool read(Bytes &from);
    explicit operator bool() const { return !entries_.empty(); }
    // Decodes a stream that has exactly `count` symbols, and appends them.
    bool decode(std::string_view stream, size_t count, std::string &out) const;

  private:
    struct Entry {
        uint8_t symbol, bits;
    };

    bool fill(std::vector<unsigned> weights);

    unsigned log_ = 0;
    std::vector<Entry> entries_;
};

} // namespace soft::ptx::zstd
