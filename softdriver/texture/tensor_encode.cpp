#include "api/call.h"
#include "base/unsupported.h"
#include "ptx/tensor_map.h"

// This file implements cuTensorMap*.

namespace soft {

// Writes a map if it is right.
static CUresult write_map(const ptx::TensorMap &map, CUtensorMap *target) {
    static_assert(sizeof *target == ptx::TensorMap::bytes);
    if (map.is_unsupported())
        return not_supported("the type " + std::to_string(map.type) + ", interleave " +
                             std::to_string(map.interleave) + ", swizzle " +
                             std::to_string(map.swizzle) + " or fill " + std::to_string(map.fill));
    if (!map.mistake().empty())
        return CUDA_ERROR_INVALID_VALUE;
    map.write(target);
    return CUDA_SUCCESS;
}

static bool is_aligned(const CUtensorMap *map) {
    return reinterpret_cast<uintptr_t>(map) % ptx::TensorMap::alignment == 0;
}

SOFT_API(cuTensorMapEncodeTiled,
         (CUtensorMap * target, CUtensorMapDataType type, cuuint32_t dimensions, void *address,
          const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
          const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
          CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill),
         (target, type, dimensions, address, sizes, strides, box, steps, interleave, swizzle,
          promotion, fill)) {
    // The highest values of CUDA 13.0.
    constexpr unsigned newest_type = 15, newest_swizzle = 6;
    bool known = unsigned(type) <= newest_type && unsigned(swizzle) <= newest_swizzle &&
                 unsigned(interleave) <= CU_TENSOR_MAP_INTERLEAVE_32B &&
                 unsigned(promotion) <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
                 unsigned(fill) <= CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    if (!target || !is_aligned(target) || !known || !dimensions ||
        dimensions > ptx::TensorMap::most_dimensions || !sizes || !box || !steps ||
        (dimensions > 1 && !strides))
        return CUDA_ERROR_INVALID_VALUE;
    ptx::TensorMap map;
    map.address = reinterpret_cast<uintptr_t>(address);
    map.last_dimension = uint8_t(dimensions - 1);
    map.type = uint8_t(type);
    map.interleave = uint8_t(interleave);
    map.swizzle = uint8_t(swizzle);
    map.fill = uint8_t(fill);
    map.mark = ptx::TensorMap::known_mark;
    for (unsigned i = 0; i < dimensions; i++) {
        if (!steps[i] || steps[i] > ptx::TensorMap::most_step)
            return CUDA_ERROR_INVALID_VALUE;
        map.sizes[i] = sizes[i];
        map.box[i] = box[i];
        map.steps[i] = uint8_t(steps[i]);
        if (i)
            map.strides[i - 1] = strides[i - 1];
    }
    return write_map(map, target);
}

SOFT_API(cuTensorMapReplaceAddress, (CUtensorMap * target, void *address), (target, address)) {
    if (!target || !is_aligned(target) || !address)
        return CUDA_ERROR_INVALID_VALUE;
    ptx::TensorMap map = ptx::TensorMap::read(target);
    map.address = reinterpret_cast<uintptr_t>(address);
    return write_map(map, target);
}

} // namespace soft
