#pragma once

#include "stream/ends.h"
#include "stream/stream.h"

namespace soft {

struct Call;

// An end of a copy of a box. `pitch` and `slice` are the distances in bytes from one row, or slice,
// to the next.
struct Place : End {
    size_t pitch = 0;
    size_t slice = 0;
};

// A copy of a box of bytes. `pitch` of both ends is unused if there is a single row, `slice` if
// there is a single slice.
struct Transfer {
    Place target, source;
    size_t width; // bytes in a row
    size_t rows = 1;
    size_t slices = 1;

    size_t bytes() const { return width * rows * slices; }
    // Returns the number of bytes from the first to the last byte of an end, including gaps.
    size_t span(const Place &place) const {
        return (slices - 1) * place.slice + (rows - 1) * place.pitch + width;
    }
};

// Submit a copy: transfer_now() for synchronous functions, transfer_later() for asynchronous ones.
// How long a call blocks, and when the copy accesses host memory, depends on the memory at both
// ends. Where the documentation allows several times, the latest one is taken.
CUresult transfer_now(Call &call, const Transfer &transfer);
CUresult transfer_later(Call &call, Stream &stream, const Transfer &transfer);

} // namespace soft
