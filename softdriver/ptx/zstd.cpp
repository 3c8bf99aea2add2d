#include "ptx/zstd.h"

#include "ptx/zstd_codes.h"

#include <cstdint>
#include <vector>

namespace soft::ptx {

namespace zstd {
namespace {

constexpr uint64_t frame_magic = 0xFD2FB528, skippable_magic = 0x184D2A50;
constexpr size_t largest_block = 128 << 10;
constexpr unsigned offset_symbols = 32;

// A code for lengths. The first symbols stand for one length each. Each other symbol stands for a
// range of lengths, of which some more bits choose one.
struct LengthCode {
    unsigned smallest, single;
    std::vector<unsigned> extra; // how many bits follow each of the other symbols

    unsigned symbols() const { return single + unsigned(extra.size()); }
    size_t read(unsigned symbol, BackwardBits &bits) const {
        if (symbol < single)
            return smallest + symbol;
        size_t base = smallest + single;
        for (unsigned i = 0; i < symbol - single; i++)
            base += size_t{1} << extra[i];
        return base + bits.read(extra[symbol - single]);
    }
};

// What the format defines (RFC 8878, section 3.1.1.3.2).
struct Constants {
    LengthCode literals{0, 16, {1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
    LengthCode matches{
        3, 32, {1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
    FseTable literal_table{{4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1,  1,  2,  2,
                            2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1},
                           6};
    FseTable match_table{{1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1,  1,  1,  1,  1,  1,  1, 1,
                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1, 1,
                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1},
                         6};
    FseTable offset_table{{1, 1, 1, 1, 1, 1, 2, 2, 2, 1,  1,  1,  1,  1, 1,
                           1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1},
                          5};
};

const Constants &constants() {
    static const Constants &all = *new Constants; // never destroyed: any thread may be using it
    return all;
}

// What a block uses from earlier blocks of its frame.
struct Memory {
    HuffmanTable literals;
    FseTable literal_lengths, offsets, match_lengths;
    size_t recent[3] = {1, 4, 8}; // the offsets of the last matches
};

// The decompressed text of all frames so far, with a limit.
struct Text {
    std::string text;
    size_t most;
    size_t frame = 0; // where the present frame begins: matches do not reach before it

    bool append(std::string_view part) {
        if (part.size() > most - text.size())
            return false;
        text += part;
        return true;
    }
    bool repeat(char byte, size_t count) {
        if (count > most - text.size())
            return false;
        text.append(count, byte);
        return true;
    }
    // Appends a copy of earlier text, which may overlap the copy.
    bool match(size_t back, size_t count) {
        if (!back || back > text.size() - frame || count > most - text.size())
            return false;
        for (size_t from = text.size() - back; count > 0; count--)
            text += text[from++];
        return true;
    }
};

// Literals

struct LiteralsHeader {
    unsigned type;     // 0: plain; 1: one byte, repeated; 2: compressed; 3: with the last table
    bool four = false; // there are four streams
    size_t bytes, packed = 0;
};

bool read_literals_header(Bytes &from, LiteralsHeader &header) {
    if (from.rest.empty())
        return false;
    auto first = uint8_t(from.rest[0]);
    unsigned format = first >> 2 & 3;
    header.type = first & 3;
    uint64_t all;
    if (header.type < 2) {
        unsigned size = format == 1 ? 2 : format == 3 ? 3 : 1;
        if (!from.number(size, all))
            return false;
        header.bytes = all >> (size == 1 ? 3 : 4);
        return true;
    }
    unsigned size = format < 2 ? 3 : format + 2, width = format < 2 ? 10 : format * 4 + 6;
    if (!from.number(size, all))
        return false;
    header.four = format > 0;
    header.bytes = all >> 4 & ((size_t{1} << width) - 1);
    header.packed = all >> (4 + width);
    return true;
}

// Decodes four streams, of which the first three have the same number of symbols.
bool decode_four(const HuffmanTable &table, std::string_view packed, size_t count,
                 std::string &literals) {
    Bytes from(packed);
    uint64_t sizes[3];
    for (uint64_t &size : sizes)
        if (!from.number(2, size))
            return false;
    size_t quarter = (count + 3) / 4;
    if (3 * quarter > count)
        return false;
    for (uint64_t size : sizes) {
        std::string_view stream;
        if (!from.take(size, stream) || !table.decode(stream, quarter, literals))
            return false;
    }
    return table.decode(from.rest, count - 3 * quarter, literals);
}

bool read_literals(Bytes &from, Memory &memory, std::string &literals) {
    LiteralsHeader header;
    std::string_view part;
    if (!read_literals_header(from, header) || header.bytes > largest_block)
        return false;
    if (header.type < 2) {
        if (!from.take(header.type ? 1 : header.bytes, part))
            return false;
        literals = header.type ? std::string(header.bytes, part[0]) : std::string(part);
        return true;
    }
    if (!from.take(header.packed, part))
        return false;
    Bytes packed(part);
    if (header.type == 2 && !memory.literals.read(packed))
        return false;
    if (!memory.literals)
        return false;
    return header.four ? decode_four(memory.literals, packed.rest, header.bytes, literals)
                       : memory.literals.decode(packed.rest, header.bytes, literals);
}

// Sequences: some literals and a match each.

bool read_table(unsigned mode, Bytes &from, const FseTable &standard, unsigned symbols,
                unsigned log, FseTable &table) {
    uint64_t symbol;
    switch (mode) {
    case 0:
        table = standard;
        return true;
    case 1:
        if (!from.number(1, symbol) || symbol >= symbols)
            return false;
        table = FseTable(uint8_t(symbol));
        return true;
    case 2:
        return read_fse_table(from, symbols, log, table);
    default:
        return bool(table); // `table` still has the table of an earlier block
    }
}

bool read_count(Bytes &from, size_t &count) {
    uint64_t first, more = 0;
    if (!from.number(1, first) || (first > 127 && !from.number(first == 255 ? 2 : 1, more)))
        return false;
    count = first < 128 ? first : first < 255 ? (first - 128) << 8 | more : more + 0x7F00;
    return true;
}

// Turns the number that stands for an offset into the offset, and remembers it as the last one. The
// numbers 1 to 3 stand for the recent offsets. In a sequence without literals, each of them stands
// for what comes next: 1 for the second recent offset, and 3 for the first one minus 1.
size_t offset_of(uint64_t number, bool no_literals, size_t (&recent)[3]) {
    size_t place = number - 1 + no_literals;
    size_t offset = number > 3 ? number - 3 : place == 3 ? recent[0] - 1 : recent[place];
    if (number > 3 || place > 1)
        recent[2] = recent[1];
    if (number > 3 || place > 0)
        recent[1] = recent[0];
    recent[0] = offset;
    return offset;
}

bool run_sequences(size_t count, std::string_view stream, Memory &memory, std::string_view literals,
                   Text &out) {
    const Constants &format = constants();
    BackwardBits bits;
    if (!bits.open(stream))
        return false;
    Bytes unused(literals);
    size_t length_state = memory.literal_lengths.first(bits);
    size_t offset_state = memory.offsets.first(bits);
    size_t match_state = memory.match_lengths.first(bits);
    while (count-- > 0) {
        unsigned offset_bits = memory.offsets.symbol(offset_state);
        uint64_t number = (uint64_t{1} << offset_bits) + bits.read(offset_bits);
        size_t match = format.matches.read(memory.match_lengths.symbol(match_state), bits);
        size_t length = format.literals.read(memory.literal_lengths.symbol(length_state), bits);
        std::string_view part;
        if (bits.overrun() || !unused.take(length, part) || !out.append(part) ||
            !out.match(offset_of(number, !length, memory.recent), match))
            return false;
        if (!count)
            break; // no state follows the last sequence
        length_state = memory.literal_lengths.next(length_state, bits);
        match_state = memory.match_lengths.next(match_state, bits);
        offset_state = memory.offsets.next(offset_state, bits);
    }
    return bits.done() && out.append(unused.rest);
}

bool read_compressed_block(std::string_view content, Memory &memory, Text &out) {
    const Constants &format = constants();
    Bytes from(content);
    std::string literals;
    size_t count;
    uint64_t modes;
    if (!read_literals(from, memory, literals) || !read_count(from, count))
        return false;
    if (!count)
        return from.rest.empty() && out.append(literals);
    return from.number(1, modes) && !(modes & 3) &&
           read_table(modes >> 6, from, format.literal_table, format.literals.symbols(), 9,
                      memory.literal_lengths) &&
           read_table(modes >> 4 & 3, from, format.offset_table, offset_symbols, 8,
                      memory.offsets) &&
           read_table(modes >> 2 & 3, from, format.match_table, format.matches.symbols(), 9,
                      memory.match_lengths) &&
           run_sequences(count, from.rest, memory, literals, out);
}

// Frames

bool read_block(Bytes &from, Memory &memory, Text &out, bool &last) {
    uint64_t header;
    std::string_view content;
    if (!from.number(3, header))
        return false;
    last = header & 1;
    unsigned type = header >> 1 & 3;
    size_t size = header >> 3, before = out.text.size();
    if (size > largest_block || type == 3 || !from.take(type == 1 ? 1 : size, content))
        return false;
    bool good = type == 0   ? out.append(content)
                : type == 1 ? out.repeat(content[0], size)
                            : read_compressed_block(content, memory, out);
    return good && out.text.size() - before <= largest_block;
}

struct FrameHeader {
    bool checksum = false, sized = false;
    uint64_t size = 0; // of the text, if it is known
};

bool read_frame_header(Bytes &from, FrameHeader &header) {
    uint64_t flags, window, dictionary = 0;
    if (!from.number(1, flags) || flags & 8)
        return false;
    bool single = flags & 0x20; // the window is the whole text: only the text's size is given
    unsigned sizes[] = {single ? 1u : 0u, 2, 4, 8}, names[] = {0, 1, 2, 4};
    unsigned size = sizes[flags >> 6];
    if ((!single && !from.number(1, window)) || !from.number(names[flags & 3], dictionary) ||
        dictionary || !from.number(size, header.size))
        return false;
    header.checksum = flags & 4;
    header.sized = size > 0;
    header.size += size == 2 ? 256 : 0;
    return true;
}

bool read_frame(Bytes &from, Text &out) {
    FrameHeader header;
    Memory memory;
    std::string_view checksum;
    out.frame = out.text.size();
    if (!read_frame_header(from, header))
        return false;
    for (bool last = false; !last;)
        if (!read_block(from, memory, out, last))
            return false;
    return (!header.checksum || from.take(4, checksum)) &&
           (!header.sized || header.size == out.text.size() - out.frame);
}

bool skip_frame(Bytes &from) {
    uint64_t size;
    std::string_view content;
    return from.number(4, size) && from.take(size, content);
}

} // namespace
} // namespace zstd

std::optional<std::string> decompress_zstd(std::string_view frames, size_t most) {
    using namespace zstd;
    Bytes from(frames);
    Text out{{}, most};
    do {
        uint64_t magic;
        if (!from.number(4, magic))
            return std::nullopt;
        bool skipped = (magic & ~uint64_t{15}) == skippable_magic;
        if (!skipped && magic != frame_magic)
            return std::nullopt;
        if (!(skipped ? skip_frame(from) : read_frame(from, out)))
            return std::nullopt;
    } while (!from.rest.empty());
    return std::move(out.text);
}

} // namespace soft::ptx
