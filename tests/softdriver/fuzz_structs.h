#pragma once

#include "fuzz_values.h"

// Random contents for the structures that the driver's functions take, and host functions. A new
// structure needs an overload of fill().

#if CUDA_VERSION < 13010
struct CU_DEV_SM_RESOURCE_GROUP_PARAMS {
    unsigned words[16];
};
#endif

namespace fuzz {

// Every array whose elements are counted has at least this length.
constexpr size_t array_length = 16;

inline size_t any_count() { return player->random.below(player->chance(20) ? array_length : 4); }

inline void fill(CUuuid &) {}
inline void fill(CUdevprop &) {}
inline void fill(CUDA_ARRAY_SPARSE_PROPERTIES &) {}
inline void fill(CUDA_ARRAY_MEMORY_REQUIREMENTS &) {}

inline CUarray_format any_format() {
    static const int formats[] = {1, 2, 3, 8, 9, 10, 16, 32};
    return static_cast<CUarray_format>(
        player->chance(97) ? formats[player->random.below(std::size(formats))] : any_bits() & 0xff);
}

inline unsigned any_channels() {
    return player->chance(97) ? 1u << player->random.below(3) : unsigned(any_bits());
}

inline size_t any_array_extent(bool may_lack) {
    if (may_lack && player->chance(40))
        return 0;
    return player->chance(97) ? 1 + player->random.below(16) : any_size();
}

inline void fill(CUDA_ARRAY_DESCRIPTOR &descriptor) {
    descriptor.Width = any_array_extent(false);
    descriptor.Height = any_array_extent(true);
    descriptor.Format = any_format();
    descriptor.NumChannels = any_channels();
}

inline void fill(CUDA_ARRAY3D_DESCRIPTOR &descriptor) {
    descriptor.Width = any_array_extent(false);
    descriptor.Height = any_array_extent(true);
    descriptor.Depth = any_array_extent(true);
    descriptor.Format = any_format();
    descriptor.NumChannels = any_channels();
    descriptor.Flags = player->chance(60) ? 2 * unsigned(player->random.below(2))
                                          : unsigned(player->random.below(16));
    if (player->chance(10)) {
        descriptor.Height = descriptor.Width;
        descriptor.Depth = 6;
        descriptor.Flags = 4;
    }
    if (player->chance(2))
        descriptor.Flags = unsigned(any_bits());
}

// An array of a correct shape, by its number in TextureCode::geometries.
inline CUDA_ARRAY3D_DESCRIPTOR any_shape(size_t geometry) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    auto extent = [] { return size_t(1 + player->random.below(9)); };
    descriptor.Width = extent();
    if (geometry != 0 && geometry != 3)
        descriptor.Height = extent();
    if (geometry == 2 || geometry == 3 || geometry == 4)
        descriptor.Depth = extent();
    if (geometry >= 5) {
        descriptor.Height = descriptor.Width;
        descriptor.Depth = geometry == 5 ? 6 : 12;
        descriptor.Flags |= CUDA_ARRAY3D_CUBEMAP;
    }
    if (geometry == 3 || geometry == 4 || geometry == 6)
        descriptor.Flags |= CUDA_ARRAY3D_LAYERED;
    descriptor.Format = any_format();
    descriptor.NumChannels = any_channels();
    return descriptor;
}

// An address that is aligned as textures need it (nearly always).
inline CUdeviceptr any_texture_address() {
    CUdeviceptr address = looked_up_address();
    return player->chance(95) ? address & ~CUdeviceptr(511) : address;
}

inline void fill(CUDA_RESOURCE_DESC &resource) {
    resource.resType =
        static_cast<CUresourcetype>(player->random.below(player->chance(97) ? 4 : 9));
    resource.flags = player->chance(98) ? 0 : 1;
    if (resource.resType == CU_RESOURCE_TYPE_ARRAY) {
        resource.res.array.hArray = any_handle<CUarray>();
    } else if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        resource.res.mipmap.hMipmappedArray = any_handle<CUmipmappedArray>();
    } else if (resource.resType == CU_RESOURCE_TYPE_LINEAR) {
        resource.res.linear.devPtr = any_texture_address();
        resource.res.linear.format = any_format();
        resource.res.linear.numChannels = any_channels();
        resource.res.linear.sizeInBytes = any_size();
    } else {
        resource.res.pitch2D.devPtr = any_texture_address();
        resource.res.pitch2D.format = any_format();
        resource.res.pitch2D.numChannels = any_channels();
        resource.res.pitch2D.width = any_array_extent(false);
        resource.res.pitch2D.height = any_array_extent(false);
        resource.res.pitch2D.pitchInBytes = player->chance(90) ? 256 : any_size();
    }
}

// Any number, also an infinite one.
inline float any_float() {
    float number = float(player->random.below(9)) - 4;
    uint32_t bits = uint32_t(any_bits());
    if (player->chance(10))
        std::memcpy(&number, &bits, sizeof number);
    return number;
}

inline void fill(CUDA_TEXTURE_DESC &reading) {
    for (CUaddress_mode &mode : reading.addressMode)
        mode = static_cast<CUaddress_mode>(player->random.below(player->chance(97) ? 4 : 7));
    reading.filterMode = static_cast<CUfilter_mode>(player->random.below(2));
    reading.mipmapFilterMode = static_cast<CUfilter_mode>(player->random.below(2));
    reading.flags = unsigned(player->chance(90) ? player->random.below(4) : any_bits() & 0x7f);
    reading.mipmapLevelBias = any_float();
    reading.minMipmapLevelClamp = any_float();
    reading.maxMipmapLevelClamp = any_float();
    for (float &color : reading.borderColor)
        color = player->chance(50) ? 0 : any_float();
}

inline void fill(CUDA_RESOURCE_VIEW_DESC &view) {
    view.format = static_cast<CUresourceViewFormat>(player->random.below(40));
    view.width = any_array_extent(false);
    view.height = any_array_extent(true);
    view.depth = any_array_extent(true);
    view.lastMipmapLevel = unsigned(player->random.below(3));
    view.lastLayer = unsigned(player->random.below(3));
}

inline void fill(CUmemLocation &location) {
    location.type = static_cast<CUmemLocationType>(player->random.below(6));
    location.id = any_int();
}

inline void fill(CUmemAccessDesc &access) {
    static const int flags[] = {0, 1, 3, 2, 77};
    fill(access.location);
    access.flags = static_cast<CUmemAccess_flags>(flags[player->random.below(std::size(flags))]);
}

inline void fill(CUmemAllocationProp &properties) {
    properties.type =
        static_cast<CUmemAllocationType>(player->chance(95) ? 1 : player->random.below(4));
    properties.requestedHandleTypes =
        static_cast<CUmemAllocationHandleType>(player->chance(90) ? 0 : player->random.below(9));
    fill(properties.location);
    if (player->chance(80))
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.allocFlags.compressionType = static_cast<unsigned char>(player->random.below(3));
    properties.allocFlags.usage = static_cast<unsigned short>(player->chance(95) ? 0 : any_bits());
}

inline void fill(CUmemPoolProps &properties) {
    properties.allocType = static_cast<CUmemAllocationType>(
        player->chance(95) ? 1 + player->chance(30) : player->random.below(4));
    properties.handleTypes =
        static_cast<CUmemAllocationHandleType>(player->chance(85) ? 0 : player->random.below(9));
    fill(properties.location);
    if (player->chance(60))
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
}

// A handle of this process, with some bytes changed: another process, a stale number.
template <class Handle> void damage(Handle &handle) {
    auto *bytes = reinterpret_cast<unsigned char *>(&handle);
    while (player->chance(60))
        bytes[player->random.below(sizeof(handle))] ^= 1u << player->random.below(8);
}

inline void fill(CUipcMemHandle &handle) {
    cuIpcGetMemHandle(&handle, addresses.any(player->random));
    damage(handle);
}

inline void fill(CUipcEventHandle &handle) {
    cuIpcGetEventHandle(&handle, any_handle<CUevent>());
    damage(handle);
}

inline void fill(CUmemPoolPtrExportData &data) {
    cuMemPoolExportPointer(&data, addresses.any(player->random));
    damage(data);
}

// An extent, mostly small: a large grid reaches the limit of instructions, and then the device is
// lost.
inline unsigned any_extent() {
    return player->chance(96) ? 1 + unsigned(player->random.below(3))
                              : static_cast<unsigned>(any_bits());
}

inline void fill(CUlaunchConfig &config) {
    static thread_local CUlaunchAttribute attributes[array_length];
    for (CUlaunchAttribute &attribute : attributes) {
        attribute.id = static_cast<CUlaunchAttributeID>(player->random.below(18));
        unsigned value[3] = {any_extent(), any_extent(), any_extent()};
        std::memcpy(&attribute.value, value, sizeof value);
    }
    config.gridDimX = any_extent();
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = any_extent();
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = player->chance(90) ? 0 : static_cast<unsigned>(any_bits());
    config.hStream = any_handle<CUstream>();
    config.attrs = player->chance(95) ? attributes : nullptr;
    config.numAttrs = player->chance(60) ? 0 : static_cast<unsigned>(any_count());
}

inline void fill(CUexecAffinityParam &) {}
inline void fill(CUstreamAttrValue &attribute) {
    int value = any_int();
    std::memcpy(&attribute, &value, sizeof(value));
}
#if CUDA_VERSION >= 12030
inline void fill(CUgraphEdgeData &) {}
#endif
#if CUDA_VERSION >= 12050
inline void fill(CUctxCreateParams &) {}
#endif

inline void fill(CUstreamBatchMemOpParams &operation) {
    static const int kinds[] = {CU_STREAM_MEM_OP_WAIT_VALUE_32,
                                CU_STREAM_MEM_OP_WRITE_VALUE_32,
                                CU_STREAM_MEM_OP_WAIT_VALUE_64,
                                CU_STREAM_MEM_OP_WRITE_VALUE_64,
                                CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES,
                                6,
                                0,
                                77};
    int kind = kinds[player->random.below(std::size(kinds) + 20) % std::size(kinds)];
    operation.operation = static_cast<CUstreamBatchMemOpType>(kind);
    bool waits = kind == CU_STREAM_MEM_OP_WAIT_VALUE_32 || kind == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    // Wait and write operations have the same layout.
    operation.waitValue.address = waits ? wait_address() : looked_up_address();
    operation.waitValue.value64 = 1;
    operation.waitValue.flags = player->chance(70) ? 0 : static_cast<unsigned>(any_bits());
}

// Copies of rows. With `wild` any number is allowed, because both ends are device addresses.
// Otherwise everything stays inside the caller's own memory, which the driver really accesses.
struct Rows {
    bool wild;
    size_t size(size_t bound) const { return wild ? any_size() : player->random.below(bound); }
};

inline CUmemorytype any_memory_type() {
    static const unsigned types[] = {CU_MEMORYTYPE_HOST,    CU_MEMORYTYPE_DEVICE,
                                     CU_MEMORYTYPE_DEVICE,  CU_MEMORYTYPE_DEVICE,
                                     CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED};
    if (player->chance(4))
        return static_cast<CUmemorytype>(player->random.below(9));
    if (player->chance(25))
        return CU_MEMORYTYPE_ARRAY;
    return static_cast<CUmemorytype>(types[player->random.below(std::size(types))]);
}

inline void any_end(CUmemorytype type, CUdeviceptr &device, void *&host, bool wild) {
    host = player->alone ? reinterpret_cast<void *>(touched_address(player->mine))
                         : reinterpret_cast<void *>(own_memory());
    if (wild || type == CU_MEMORYTYPE_DEVICE)
        device = looked_up_address();
    else
        device = player->alone ? touched_address(addresses) : own_memory();
}

// Reduces a value to a multiple of `unit` that is not above `limit`.
inline size_t fitted(size_t value, size_t unit, size_t limit) {
    return std::min(value, limit) / unit * unit;
}

// Usually changes a copy so that it consists of whole elements, and lies inside the array. `x` is
// its first byte in a row of the array, and `y` its first row.
template <class Copy> void fit_array(Copy &copy, CUarray array, size_t &x, size_t &y) {
    static const size_t bytes[] = {0, 1, 2, 4, 0, 0, 0, 0, 1, 2, 4};
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    if (!player->chance(85) || cuArray3DGetDescriptor_v2(&descriptor, array))
        return;
    unsigned format = unsigned(descriptor.Format);
    size_t channel = format < std::size(bytes) ? bytes[format] : format == 16 ? 2 : 4;
    size_t unit = channel * descriptor.NumChannels, row = descriptor.Width * unit;
    size_t rows = std::max<size_t>(descriptor.Height, 1);
    x = fitted(x, unit, row - unit);
    y = fitted(y, 1, rows - 1);
    copy.WidthInBytes = fitted(copy.WidthInBytes, unit, row - x);
    copy.Height = fitted(copy.Height, 1, rows - y);
}

// Usually changes the slices or layers of a box so that they lie inside the array.
inline void fit_slices(size_t &depth, CUarray array, size_t &z) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    if (!player->chance(85) || cuArray3DGetDescriptor_v2(&descriptor, array))
        return;
    size_t slices = std::max<size_t>(descriptor.Depth, 1);
    z = fitted(z, 1, slices - 1);
    depth = fitted(depth, 1, slices - z);
}

template <class Copy> Rows fill_rows(Copy &copy) {
    copy.srcMemoryType = any_memory_type();
    copy.dstMemoryType = any_memory_type();
    Rows rows{copy.srcMemoryType == CU_MEMORYTYPE_DEVICE &&
              copy.dstMemoryType == CU_MEMORYTYPE_DEVICE && player->chance(40)};
    void *source = nullptr;
    any_end(copy.srcMemoryType, copy.srcDevice, source, rows.wild);
    any_end(copy.dstMemoryType, copy.dstDevice, copy.dstHost, rows.wild);
    copy.srcHost = source;
    copy.srcArray = any_handle<CUarray>();
    copy.dstArray = any_handle<CUarray>();
    copy.WidthInBytes = rows.size(player->chance(50) ? 64 : 2000);
    copy.Height = rows.size(16);
    copy.srcPitch = player->chance(30) ? 0 : rows.size(64) + (rows.wild ? 0 : copy.WidthInBytes);
    copy.dstPitch = player->chance(30) ? 0 : rows.size(64) + (rows.wild ? 0 : copy.WidthInBytes);
    bool offsets = player->chance(40);
    copy.srcXInBytes = offsets ? rows.size(64) : 0;
    copy.srcY = offsets ? rows.size(4) : 0;
    copy.dstXInBytes = offsets ? rows.size(64) : 0;
    copy.dstY = offsets ? rows.size(4) : 0;
    if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY)
        fit_array(copy, copy.srcArray, copy.srcXInBytes, copy.srcY);
    if (copy.dstMemoryType == CU_MEMORYTYPE_ARRAY)
        fit_array(copy, copy.dstArray, copy.dstXInBytes, copy.dstY);
    return rows;
}

template <class Copy> Rows fill_boxes(Copy &copy) {
    Rows rows = fill_rows(copy);
    copy.Depth = rows.size(4);
    copy.srcHeight = player->chance(30) ? 0 : rows.size(24);
    copy.dstHeight = player->chance(30) ? 0 : rows.size(24);
    copy.srcZ = player->chance(20) ? rows.size(3) : 0;
    copy.dstZ = player->chance(20) ? rows.size(3) : 0;
    if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY)
        fit_slices(copy.Depth, copy.srcArray, copy.srcZ);
    if (copy.dstMemoryType == CU_MEMORYTYPE_ARRAY)
        fit_slices(copy.Depth, copy.dstArray, copy.dstZ);
    return rows;
}

inline void fill(CUDA_MEMCPY2D &copy) { fill_rows(copy); }
inline void fill(CUDA_MEMCPY3D &copy) { fill_boxes(copy); }
inline void fill(CUDA_MEMCPY3D_PEER &copy) {
    fill_boxes(copy);
    copy.srcContext = any_handle<CUcontext>();
    copy.dstContext = any_handle<CUcontext>();
}

// Host functions. Some call the driver, which must refuse or answer the call.
inline std::atomic<uint64_t> host_calls{0};

inline void CUDA_CB count_call(void *) { host_calls.fetch_add(1, std::memory_order_relaxed); }
inline void CUDA_CB call_driver(void *data) {
    CUstreamCaptureStatus status;
    cuStreamIsCapturing(static_cast<CUstream>(data), &status);
    cuStreamQuery(static_cast<CUstream>(data));
    cuCtxSynchronize();
    cuMemFree_v2(reinterpret_cast<CUdeviceptr>(data));
    count_call(data);
}
inline void CUDA_CB call_back(CUstream stream, CUresult, void *) { call_driver(stream); }

inline CUhostFn any_host_function() {
    static const CUhostFn functions[] = {count_call, count_call, call_driver};
    return player->chance(97) ? functions[player->random.below(3)] : nullptr;
}
inline void fill(CUDA_KERNEL_NODE_PARAMS_v2 &params) {
    static uint64_t numbers[array_length];
    static thread_local void *pointers[array_length];
    for (size_t i = 0; i < array_length; i++)
        pointers[i] = &numbers[i];
    params.func = player->chance(80) ? any_handle<CUfunction>() : nullptr;
    params.kern = any_handle<CUkernel>();
    params.ctx = player->chance(80) ? nullptr : any_handle<CUcontext>();
    params.gridDimX = any_extent();
    params.blockDimX = any_extent();
    params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.sharedMemBytes = player->chance(90) ? 0 : static_cast<unsigned>(any_bits());
    params.kernelParams = player->chance(95) ? pointers : nullptr;
}
inline void fill(CUDA_KERNEL_NODE_PARAMS_v1 &params) {
    CUDA_KERNEL_NODE_PARAMS_v2 all{};
    fill(all);
    std::memcpy(&params, &all, sizeof params);
}

inline void fill(CUDA_MEMSET_NODE_PARAMS &fill) {
    fill.dst = looked_up_address();
    fill.pitch = any_size();
    fill.value = static_cast<unsigned>(any_bits());
    fill.elementSize = player->chance(90) ? 1u << player->random.below(3) : any_extent();
    fill.width = any_size();
    fill.height = player->chance(60) ? 1 : any_size();
}

inline void fill(CUDA_HOST_NODE_PARAMS &params) {
    params.fn = any_host_function();
    params.userData = any_handle<CUstream>();
}

inline void fill(CUDA_MEM_ALLOC_NODE_PARAMS &params) {
    fill(params.poolProps);
    params.bytesize = any_size();
}

inline void fill(CUDA_BATCH_MEM_OP_NODE_PARAMS &params) {
    static thread_local CUstreamBatchMemOpParams items[array_length];
    for (CUstreamBatchMemOpParams &item : items)
        fill(item);
    params.ctx = any_handle<CUcontext>();
    params.count = static_cast<unsigned>(any_count());
    params.paramArray = player->chance(95) ? items : nullptr;
    params.flags = player->chance(95) ? 0 : 1;
}

inline void fill(CUDA_GRAPH_INSTANTIATE_PARAMS &params) {
    params.flags = player->chance(90) ? player->random.below(9) : any_bits();
    params.hUploadStream = any_handle<CUstream>();
}
inline void fill(CUgraphExecUpdateResultInfo &) {}
inline void fill(CUtensorMap &map) {
    for (auto &word : map.opaque)
        word = any_bits();
}

#if CUDA_VERSION >= 12020
inline void fill(CUgraphNodeParams &params) {
    int type = static_cast<int>(player->random.below(16));
    params.type = static_cast<CUgraphNodeType>(type);
    params.reserved0[0] = player->chance(98) ? 0 : 1;
    // Parameters of all kinds begin at the same place, and have no constructors.
    if (type == CU_GRAPH_NODE_TYPE_KERNEL)
        fill(reinterpret_cast<CUDA_KERNEL_NODE_PARAMS_v2 &>(params.kernel));
    else if (type == CU_GRAPH_NODE_TYPE_MEMCPY)
        fill(params.memcpy.copyParams);
    else if (type == CU_GRAPH_NODE_TYPE_MEMSET)
        fill(reinterpret_cast<CUDA_MEMSET_NODE_PARAMS &>(params.memset));
    else if (type == CU_GRAPH_NODE_TYPE_HOST)
        fill(reinterpret_cast<CUDA_HOST_NODE_PARAMS &>(params.host));
    else if (type == CU_GRAPH_NODE_TYPE_GRAPH)
        params.graph.graph = any_handle<CUgraph>();
    else if (type == CU_GRAPH_NODE_TYPE_WAIT_EVENT || type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        params.eventWait.event = any_handle<CUevent>();
    else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        fill(reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS &>(params.alloc));
    else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        params.free.dptr = looked_up_address();
    else if (type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
        fill(reinterpret_cast<CUDA_BATCH_MEM_OP_NODE_PARAMS &>(params.memOp));
    else if (type == 13) { // a conditional node, of one of the first graphs
        params.conditional.handle = 16 + player->random.below(300);
        params.conditional.size = static_cast<unsigned>(player->random.below(4));
        params.conditional.ctx = any_handle<CUcontext>();
    }
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && player->chance(30))
        params.reserved1[1] = 1; // the graph itself belongs to the node
}
#endif

// The log calls this function for each call that fails, so it makes no call that can fail.
inline void CUDA_CB hear(void *, CUlogLevel, char *message, size_t length) {
    if (std::strlen(message) < length)
        std::abort();
    int version;
    cuDriverGetVersion(&version);
}

inline CUlogsCallback any_listener() { return player->chance(97) ? hear : nullptr; }

#if CUDA_VERSION >= 12080
inline void fill(CUmemcpyAttributes &attributes) {
    attributes.srcAccessOrder = static_cast<CUmemcpySrcAccessOrder>(
        player->chance(97) ? 1 + player->random.below(3) : any_bits());
    fill(attributes.srcLocHint);
    fill(attributes.dstLocHint);
    attributes.flags =
        player->chance(95) ? unsigned(player->random.below(2)) : unsigned(any_bits());
}

// Small boxes: the sizes must fit the memory that any_operand() chooses.
constexpr size_t most_row = 40, most_rows = 6;

inline void fill(CUmemcpy3DOperand &operand) {
    operand.type = static_cast<CUmemcpy3DOperandType>(player->chance(95) ? 1 : any_bits() % 4);
    player->shape.limit = SIZE_MAX;
    if (player->chance(20)) {
        operand.type = static_cast<CUmemcpy3DOperandType>(2);
        operand.op.array.array = any_handle<CUarray>();
        operand.op.array.offset = {player->random.below(8), player->random.below(3), 0};
        return;
    }
    operand.op.ptr.ptr = touched_address(addresses);
    bool fits = player->shape.limit >= most_row * most_rows * 2;
    operand.op.ptr.ptr = fits ? operand.op.ptr.ptr : own_memory();
    operand.op.ptr.rowLength = player->chance(50) ? 0 : player->random.below(most_row + 1);
    operand.op.ptr.layerHeight = player->chance(50) ? 0 : player->random.below(most_rows + 1);
    fill(operand.op.ptr.locHint);
}

inline void fill(CUDA_MEMCPY3D_BATCH_OP &copy) {
    fill(copy.src);
    fill(copy.dst);
    copy.extent.width = player->random.below(most_row);
    copy.extent.height = player->random.below(most_rows);
    copy.extent.depth = player->random.below(3);
    CUmemcpyAttributes attributes;
    fill(attributes);
    copy.srcAccessOrder = attributes.srcAccessOrder;
    copy.flags = attributes.flags;
}
#endif

#if CUDA_VERSION >= 12040
inline void fill(CUdevResource &resource) {
    if (player->chance(70))
        cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM);
    if (player->chance(10))
        reinterpret_cast<unsigned char *>(&resource)[player->random.below(sizeof resource)] ^= 1;
}
#endif

inline void fill(CU_DEV_SM_RESOURCE_GROUP_PARAMS &group) {
    auto *words = reinterpret_cast<unsigned *>(&group); // sizes, and flags
    for (int i = 0; i < 3; i++)
        words[i] = unsigned(player->random.below(player->chance(90) ? 9 : 64));
    words[3] = unsigned(player->random.below(2));
    if (player->chance(5))
        words[player->random.below(sizeof group / sizeof *words)] = unsigned(any_bits());
}

inline CUstreamCallback any_callback() { return player->chance(97) ? call_back : nullptr; }

} // namespace fuzz
