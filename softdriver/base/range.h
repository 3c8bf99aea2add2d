#pragma once

#include <cstddef>
#include <cstdint>

namespace soft {

// Bytes that an operation uses: `rows` rows of `bytes` bytes each, whose beginnings are `pitch`
// bytes apart.
struct Range {
    uintptr_t begin;
    size_t bytes;
    size_t pitch = 0;
    size_t rows = 1;

    bool contiguous() const { return rows == 1 || pitch <= bytes; }
    // Returns the address after the last byte.
    uintptr_t end() const { return begin + (rows - 1) * pitch + bytes; }
    // Returns true if both ranges contain some byte.
    bool overlaps(const Range &other) const;
    // Returns true if all bytes of the other range are in this one. May return false although they
    // are: a range of several rows is only compared with ranges of the same begin and pitch.
    bool covers(const Range &other) const;
};

} // namespace soft
