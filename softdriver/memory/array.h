#pragma once

#include "memory/allocation.h"

#include <memory>
#include <vector>

namespace soft {

struct Call;

// An array, or a level of a mipmapped array. Its elements are in rows, and the rows in slices (or
// layers), without gaps. The layout on a real driver is not known to programs, so they can use the
// elements only through copies, textures and surfaces.
struct Array {
    CUarray handle = nullptr;
    Context *owner = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR_v2 descriptor = {};
    size_t element = 0;                // bytes of an element
    uintptr_t address = 0;             // of the first element
    CUmipmappedArray mipmap = nullptr; // the mipmapped array of which this is a level, or null

    size_t row_bytes() const { return descriptor.Width * element; }
    // The number of rows of a slice, and the number of slices. Both are at least 1.
    size_t rows() const { return descriptor.Height ? descriptor.Height : 1; }
    size_t slices() const { return descriptor.Depth ? descriptor.Depth : 1; }
    size_t slice_bytes() const { return row_bytes() * rows(); }
    size_t bytes() const { return slice_bytes() * slices(); }
};

struct Mipmap {
    CUmipmappedArray handle = nullptr;
    Context *owner = nullptr;
    uintptr_t address = 0;
    // The levels. The first one has the size of the mipmapped array.
    std::vector<std::shared_ptr<Array>> levels;
};

using ArrayPtr = std::shared_ptr<Array>;
using MipmapPtr = std::shared_ptr<Mipmap>;

ArrayPtr find_array(CUarray handle);
MipmapPtr find_mipmap(CUmipmappedArray handle);
// Return the error for a handle that find_array or find_mipmap does not find.
CUresult missing_array(CUarray handle);
CUresult missing_mipmap(CUmipmappedArray handle);
// A format whose channels are integers that stand for numbers from 0 (or -1) to 1.
struct FractionFormat {
    unsigned channels;
    size_t bytes; // of a channel
    bool sign;
};
// Describes such a format. Returns false for other formats.
bool read_fractions(CUarray_format format, FractionFormat &fractions);
// Returns the size of an element, or 0 if there is no such format or number of channels.
size_t element_bytes(CUarray_format format, unsigned channels);
// Checks the description of an array. On success `array` is the array without its memory.
CUresult describe_array(const Context &context, const CUDA_ARRAY3D_DESCRIPTOR_v2 &descriptor,
                        Array &array);
// Allocates the memory of an array or mipmapped array.
CUresult allocate_array(Call &call, size_t bytes, uintptr_t &address);
// Gives a handle to an array that has memory.
ArrayPtr enter_array(const Array &array);
// Returns the memory of an array that contains the whole range, or null.
Allocation *find_array_memory(uintptr_t begin, size_t bytes);

} // namespace soft
