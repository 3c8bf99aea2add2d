#pragma once

#include <cstddef>
#include <cstdint>

namespace soft {

// Bytes that an operation touches: rows of `bytes` bytes, `pitch` apart.
struct Range {
    uintptr_t begin;
    size_t bytes;
    size_t pitch = 0;
    size_t rows = 1;

    bool contiguous() const { return rows == 1 || pitch <= bytes; }
    // The address after the last byte.
    uintptr_t end() const { return begin + (rows - 1) * pitch + bytes; }
    // True if they share a byte.
    bool overlaps(const Range &other) const;
    // True only if all bytes of the other range are in this one. Exact for contiguous ranges; rows
    // cover only rows of the same begin and pitch.
    bool covers(const Range &other) const;
};

} // namespace soft
