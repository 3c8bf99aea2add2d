#pragma once

#include "stream/ends.h"
#include "stream/stream.h"

namespace soft {

struct Call;

// An end whose rows are `pitch` and whose slices are `slice` bytes apart.
struct Place : End {
    size_t pitch = 0;
    size_t slice = 0;
};

// A copy of a box of bytes. Copies of one row need no pitch, those of one slice no slice.
struct Transfer {
    Place target, source;
    size_t width; // bytes in a row
    size_t rows = 1;
    size_t slices = 1;

    size_t bytes() const { return width * rows * slices; }
    // From the first byte of an end past its last.
    size_t span(const Place &place) const {
        return (slices - 1) * place.slice + (rows - 1) * place.pitch + width;
    }
};

// Copies. How long a call blocks and when it reads and writes host memory depends on what its two
// ends are; where the documentation leaves that open, the latest moment is taken.
CUresult transfer_now(Call &call, const Transfer &transfer);
CUresult transfer_later(Call &call, Stream &stream, const Transfer &transfer);

} // namespace soft
