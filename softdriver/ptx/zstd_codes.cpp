#include "ptx/zstd_codes.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

namespace soft::ptx::zstd {

namespace {

constexpr unsigned largest_huffman_log = 11, largest_weight_log = 6, lowest_log = 5;
constexpr size_t most_weights = 255; // the weight of the last symbol follows from the others

// Returns the position of the highest bit that is set. The value is not 0.
unsigned highest_bit(uint64_t value) { return 63 - unsigned(__builtin_clzll(value)); }

// Reads bits from the beginning of some bytes. Bits past the end are zeros.
class ForwardBits {
  public:
    explicit ForwardBits(std::string_view bytes) : bytes_(bytes) {}

    uint64_t peek(unsigned count) const {
        uint64_t value = 0;
        for (size_t i = position_ / 8; i < bytes_.size() && i < position_ / 8 + 4; i++)
            value |= uint64_t(uint8_t(bytes_[i])) << (i - position_ / 8) * 8;
        return value >> position_ % 8 & ((uint64_t{1} << count) - 1);
    }
    void skip(unsigned count) { position_ += count; }
    uint64_t read(unsigned count) {
        uint64_t value = peek(count);
        skip(count);
        return value;
    }
    // The number of bytes of which bits were read.
    size_t bytes() const { return (position_ + 7) / 8; }

  private:
    std::string_view bytes_;
    size_t position_ = 0;
};

// Reads a number from 0 to `most`. As there are fewer numbers than codes, the lowest `shorter`
// numbers have codes that are one bit shorter.
unsigned read_up_to(unsigned most, ForwardBits &bits) {
    unsigned length = highest_bit(most) + 1, half = 1u << (length - 1);
    unsigned shorter = 2 * half - 1 - most; // how many numbers are one bit shorter
    auto value = unsigned(bits.peek(length));
    if (value % half < shorter) {
        bits.skip(length - 1);
        return value % half;
    }
    bits.skip(length);
    return value < half ? value : value - shorter;
}

// Reads the frequencies of symbols, which add up to 1 << log.
bool read_frequencies(ForwardBits &bits, size_t symbols, unsigned log,
                      std::vector<int> &frequencies) {
    unsigned rest = 1u << log;
    while (rest > 0) {
        if (frequencies.size() >= symbols)
            return false;
        int frequency = int(read_up_to(rest + 1, bits)) - 1;
        frequencies.push_back(frequency);
        rest -= unsigned(std::abs(frequency));
        // After a frequency of 0, two bits say how many more zeros follow. If they say 3, two more
        // bits follow, and so on.
        uint64_t more = frequency ? 0 : 3;
        while (more == 3) {
            more = bits.read(2);
            frequencies.insert(frequencies.end(), more, 0);
            if (frequencies.size() > symbols)
                return false;
        }
    }
    return true;
}

} // namespace

bool Bytes::take(size_t size, std::string_view &part) {
    if (size > rest.size())
        return false;
    part = rest.substr(0, size);
    rest.remove_prefix(size);
    return true;
}

bool Bytes::number(unsigned size, uint64_t &value) {
    std::string_view part;
    if (!take(size, part))
        return false;
    value = 0;
    for (unsigned i = 0; i < size; i++)
        value |= uint64_t(uint8_t(part[i])) << 8 * i;
    return true;
}

bool BackwardBits::open(std::string_view bytes) {
    if (bytes.empty() || !bytes.back())
        return false;
    bytes_ = bytes;
    left_ = int64_t(bytes.size() - 1) * 8 + highest_bit(uint8_t(bytes.back()));
    return true;
}

uint64_t BackwardBits::peek(unsigned count) const {
    int64_t from = left_ - int64_t(count);
    if (left_ <= 0)
        return 0;
    if (from < 0)
        return peek(unsigned(left_)) << -from;
    uint64_t value = 0;
    size_t first = size_t(from) / 8;
    std::memcpy(&value, bytes_.data() + first, std::min(sizeof value, bytes_.size() - first));
    return value >> from % 8 & ((uint64_t{1} << count) - 1);
}

FseTable::FseTable(const std::vector<int> &frequencies, unsigned log)
    : log_(log), states_(size_t{1} << log) {
    size_t size = states_.size(), end = size, at = 0, step = size / 2 + size / 8 + 3;
    for (size_t i = 0; i < frequencies.size(); i++)
        if (frequencies[i] < 0)
            states_[--end].symbol = uint8_t(i);
    // The other symbols are spread over the states before `end`.
    for (size_t i = 0; i < frequencies.size(); i++)
        for (int n = 0; n < frequencies[i]; n++) {
            states_[at].symbol = uint8_t(i);
            do
                at = (at + step) % size;
            while (at >= end);
        }
    // The k-th state of a symbol with frequency f stands for the number f + k.
    std::vector<unsigned> numbers;
    for (int frequency : frequencies)
        numbers.push_back(unsigned(std::abs(frequency)));
    for (State &state : states_) {
        unsigned number = numbers[state.symbol]++;
        state.bits = uint8_t(log - highest_bit(number));
        state.base = uint16_t((number << state.bits) - size);
    }
}

bool read_fse_table(Bytes &from, size_t symbols, unsigned log, FseTable &table) {
    ForwardBits bits(from.rest);
    auto given = unsigned(bits.read(4)) + lowest_log;
    std::vector<int> frequencies;
    std::string_view used;
    if (given > log || !read_frequencies(bits, symbols, given, frequencies) ||
        !from.take(bits.bytes(), used))
        return false;
    table = FseTable(frequencies, given);
    return true;
}

// Reads weights that two interleaved states encode. The end of the stream shows how many weights
// there are.
static bool read_fse_weights(std::string_view part, std::vector<unsigned> &weights) {
    FseTable table;
    BackwardBits bits;
    Bytes from(part);
    if (!read_fse_table(from, largest_huffman_log + 1, largest_weight_log, table) ||
        !bits.open(from.rest))
        return false;
    size_t states[2] = {table.first(bits), table.first(bits)};
    for (int turn = 0; !bits.overrun(); turn ^= 1) {
        if (weights.size() >= most_weights)
            return false;
        weights.push_back(table.symbol(states[turn]));
        states[turn] = table.next(states[turn], bits);
        if (bits.overrun())
            weights.push_back(table.symbol(states[turn ^ 1]));
    }
    return weights.size() <= most_weights;
}

bool HuffmanTable::read(Bytes &from) {
    constexpr unsigned direct = 128; // from this first byte on: 127 + the number of plain weights
    uint64_t first;
    std::string_view part;
    std::vector<unsigned> weights;
    if (!from.number(1, first))
        return false;
    if (first < direct)
        return from.take(first, part) && read_fse_weights(part, weights) && fill(weights);
    size_t count = first - direct + 1;
    if (!from.take((count + 1) / 2, part))
        return false;
    for (size_t i = 0; i < count; i++)
        weights.push_back(uint8_t(part[i / 2]) >> (i % 2 ? 0 : 4) & 15);
    return fill(weights);
}

// A symbol with weight w has 1 << (w - 1) entries. All entries together are a power of two.
bool HuffmanTable::fill(std::vector<unsigned> weights) {
    size_t sum = 0;
    for (unsigned weight : weights) {
        if (weight > largest_huffman_log)
            return false;
        sum += weight ? size_t{1} << (weight - 1) : 0;
    }
    if (!sum || sum >= size_t{1} << largest_huffman_log)
        return false;
    log_ = highest_bit(sum) + 1;
    size_t left = (size_t{1} << log_) - sum;
    if (left & (left - 1))
        return false;
    weights.push_back(highest_bit(left) + 1);
    entries_.clear();
    for (unsigned weight = 1; weight <= log_; weight++)
        for (size_t i = 0; i < weights.size(); i++)
            if (weights[i] == weight)
                entries_.insert(entries_.end(), size_t{1} << (weight - 1),
                                {uint8_t(i), uint8_t(log_ + 1 - weight)});
    return true;
}

bool HuffmanTable::decode(std::string_view stream, size_t count, std::string &out) const {
    BackwardBits bits;
    if (!bits.open(stream))
        return false;
    for (; count > 0 && !bits.overrun(); count--) {
        const Entry &entry = entries_[bits.peek(log_)];
        out += char(entry.symbol);
        bits.skip(entry.bits);
    }
    return bits.done() && !count;
}

} // namespace soft::ptx::zstd
