#pragma once

#include "stream/ends.h"
#include "stream/stream.h"

namespace soft {

struct Call;

// An end of a copy; `pitch` and `slice` are the distances of rows and slices in bytes.
struct Place : End {
    size_t pitch = 0;
    size_t slice = 0;
};

// A copy of a box of bytes. `pitch` is unused for a single row, `slice` for a single slice.
struct Transfer {
    Place target, source;
    size_t width; // bytes in a row
    size_t rows = 1;
    size_t slices = 1;

    size_t bytes() const { return width * rows * slices; }
    // The bytes from the first to the last byte of an end.
    size_t span(const Place &place) const {
        return (slices - 1) * place.slice + (rows - 1) * place.pitch + width;
    }
};

// Submit a copy. How long the call blocks, and when it accesses host memory, depends on both ends;
// where the documentation allows several times, the latest is chosen.
CUresult transfer_now(Call &call, const Transfer &transfer);
CUresult transfer_later(Call &call, Stream &stream, const Transfer &transfer);

} // namespace soft
