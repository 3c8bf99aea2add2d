#pragma once

#include <cstddef>
#include <cstdint>

namespace soft {

// The bytes that an operation uses: `rows` rows of `bytes` bytes each. From the beginning of one
// row to the next there are `pitch` bytes.
struct Range {
    uintptr_t begin;
    size_t bytes;
    size_t pitch = 0;
    size_t rows = 1;

    bool contiguous() const { return rows == 1 || pitch <= bytes; }
    // Returns the address after the last byte.
    uintptr_t end() const { return begin + (rows - 1) * pitch + bytes; }
    // Returns true if the two ranges have a byte in common.
    bool overlaps(const Range &other) const;
    bool operator==(const Range &other) const {
        return begin == other.begin && bytes == other.bytes && pitch == other.pitch &&
               rows == other.rows;
    }
    // Returns true if this range contains all bytes of the other. If this range has several rows,
    // the answer may be a false negative unless both ranges have the same begin and pitch.
    bool covers(const Range &other) const;
};

inline size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

} // namespace soft
