#pragma once

#include "ptx/atomic.h"
#include "ptx/decoder.h"

#include <cstdint>
#include <string>

// This header has tensor maps. A tensor map says how a tensor is in global memory, and which box of
// it an instruction copies.

namespace soft::ptx {

// The content of a CUtensorMap. On real devices, a CUtensorMap has another content, which is not
// documented.
struct TensorMap {
    static constexpr unsigned most_dimensions = 5, most_box = 256, most_step = 8;
    static constexpr size_t bytes = 128, alignment = 64;
    static constexpr uint32_t known_mark = 0x74656e73;

    uint64_t address = 0;
    uint64_t sizes[most_dimensions] = {};
    uint64_t strides[most_dimensions - 1] = {}; // in bytes, from the second dimension on
    uint32_t box[most_dimensions] = {};
    uint8_t steps[most_dimensions] = {}; // distance of the elements that are copied
    uint8_t last_dimension = 0;
    uint8_t type = 0; // a CUtensorMapDataType
    uint8_t interleave = 0, swizzle = 0, fill = 0;
    uint32_t mark = 0; // distinguishes a tensor map from other data

    // Read and write the 128 bytes of a map.
    static TensorMap read(const void *from);
    void write(void *to) const;

    unsigned dimensions() const { return last_dimension + 1u; }
    size_t element_bytes() const; // 0 if the type is not supported
    // Loads round floats of some types to tf32. On an H200, no load flushes subnormal numbers.
    bool rounds() const;
    bool is_converted() const;
    // The type of the items in an instruction that updates them. None if they cannot be updated.
    Type type_for(Operation operation) const;
    size_t row_bytes() const { return box[0] * element_bytes(); }
    // The distance in shared memory of the rows of a box, and how many chunks of 16 bytes a
    // swizzled row has (1: no swizzling).
    unsigned swizzled_chunks() const { return 1u << swizzle; }
    size_t pitch() const { return swizzle ? swizzled_chunks() * size_t{16} : row_bytes(); }
    // How many elements of the box are copied in a dimension.
    unsigned count(unsigned dimension) const;
    // Returns why no instruction can use the map. An empty text means that it is fine.
    std::string mistake() const;
    // Returns whether the map is right, but the driver does not support it.
    bool is_unsupported() const;
};
static_assert(sizeof(TensorMap) <= TensorMap::bytes);

// Decode the rest of cp.async.bulk.tensor, cp.reduce.async.bulk.tensor and
// cp.async.bulk.prefetch.tensor.
void decode_tensor_copy(Decoder &decoder);
void decode_tensor_reduction(Decoder &decoder, Operation operation);
void decode_tensor_prefetch(Decoder &decoder);

} // namespace soft::ptx
