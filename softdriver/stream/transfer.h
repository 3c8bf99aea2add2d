#pragma once

#include "stream/ends.h"
#include "stream/stream.h"

namespace soft {

struct Call;

// One end of a copy of a box. `pitch` is the number of bytes from one row to the next, and `slice`
// from one slice to the next.
struct Place : End {
    size_t pitch = 0;
    size_t slice = 0;
};

// A copy of a box of bytes. With a single row, `pitch` of both ends is unused; with a single slice,
// `slice` of both ends.
struct Transfer {
    Place target, source;
    size_t width; // bytes in a row
    size_t rows = 1;
    size_t slices = 1;

    size_t bytes() const { return width * rows * slices; }
    // Returns the number of bytes from the first to the last byte of an end, with the gaps between
    // rows.
    size_t span(const Place &place) const {
        return (slices - 1) * place.slice + (rows - 1) * place.pitch + width;
    }
};

// Converts a copy of a box, as the program specified it. Addresses of a box without bytes are not
// checked.
CUresult read_box(const CUDA_MEMCPY3D_v2 &box, Transfer &transfer);
// Returns a transfer in the form in which a program specifies a copy of a box.
CUDA_MEMCPY3D_v2 box_of(const Transfer &transfer);
// How an asynchronous copy accesses the host's memory.
struct Manner {
    bool snapshot; // it reads its source during the call
    bool blocks;   // the call returns when the copy is done
    bool promised; // the documentation says that it blocks
};
Manner manner_of(const Transfer &transfer);
// Takes undefined bytes (base/undefined.h) that a copy gives to the host: their addresses, and the
// number of the origin. Called without the state lock.
using TakeUndefined = void (*)(const Operation &copy, uintptr_t begin, uintptr_t end,
                               uint32_t origin);
void take_undefined_copies(TakeUndefined take);
// Makes the operation of a copy. With `snapshot`, the operation copies the present contents of the
// source.
OperationPtr copy_operation(const Transfer &transfer, bool snapshot);
// Makes the two operations of a copy that may read its source before it is its turn. Returns the
// one that reads it. `writing` waits for it, and writes the target.
OperationPtr copy_in_two(const Transfer &transfer, OperationPtr &writing);
// Waits for a copy that blocks.
CUresult finish_copy(Call &call, Stream &stream, const OperationPtr &operation, bool promised);

// Submit a copy: transfer_now() for synchronous functions, transfer_later() for asynchronous
// functions. The memory at both ends decides how long the call blocks, and when the copy accesses
// host memory. Where the documentation allows several times, the driver takes the latest.
CUresult transfer_now(Call &call, const Transfer &transfer);
CUresult transfer_later(Call &call, Stream &stream, const Transfer &transfer);

} // namespace soft
