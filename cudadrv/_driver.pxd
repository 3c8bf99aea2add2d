"""Raw driver functions: `noexcept nogil`, and they return a CUresult.

Call them as `with nogil: check(cuStreamCreate(...))` with `check` from `cudadrv._errors`. In
modules of other projects they return CUDA_ERROR_NOT_INITIALIZED.
"""

from cpython.object cimport PyObject


cdef extern from "cudadrv/driver.h" nogil:
    ctypedef enum CUresult:
        CUDA_SUCCESS
        CUDA_ERROR_INVALID_VALUE
        CUDA_ERROR_OUT_OF_MEMORY
        CUDA_ERROR_NOT_INITIALIZED
        CUDA_ERROR_DEINITIALIZED
        CUDA_ERROR_NO_DEVICE
        CUDA_ERROR_INVALID_CONTEXT
        CUDA_ERROR_ECC_UNCORRECTABLE
        CUDA_ERROR_FILE_NOT_FOUND
        CUDA_ERROR_SHARED_OBJECT_INIT_FAILED
        CUDA_ERROR_INVALID_HANDLE
        CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
        CUDA_ERROR_PEER_ACCESS_NOT_ENABLED
        CUDA_ERROR_NOT_FOUND
        CUDA_ERROR_NOT_READY
        CUDA_ERROR_ILLEGAL_ADDRESS
        CUDA_ERROR_LAUNCH_TIMEOUT
        CUDA_ERROR_CONTEXT_IS_DESTROYED
        CUDA_ERROR_ASSERT
        CUDA_ERROR_HARDWARE_STACK_ERROR
        CUDA_ERROR_ILLEGAL_INSTRUCTION
        CUDA_ERROR_MISALIGNED_ADDRESS
        CUDA_ERROR_INVALID_ADDRESS_SPACE
        CUDA_ERROR_INVALID_PC
        CUDA_ERROR_LAUNCH_FAILED
        CUDA_ERROR_NOT_SUPPORTED
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
        CUDA_ERROR_UNKNOWN

    ctypedef int CUdevice
    ctypedef unsigned long long CUdeviceptr
    ctypedef struct CUctx_st:
        pass
    ctypedef CUctx_st *CUcontext
    ctypedef struct CUstream_st:
        pass
    ctypedef CUstream_st *CUstream
    ctypedef struct CUevent_st:
        pass
    ctypedef CUevent_st *CUevent
    ctypedef struct CUmod_st:
        pass
    ctypedef CUmod_st *CUmodule
    ctypedef struct CUgraph_st:
        pass
    ctypedef CUgraph_st *CUgraph
    ctypedef struct CUgraphNode_st:
        pass
    ctypedef CUgraphNode_st *CUgraphNode
    ctypedef struct CUgraphExec_st:
        pass
    ctypedef CUgraphExec_st *CUgraphExec
    ctypedef struct CUfunc_st:
        pass
    ctypedef CUfunc_st *CUfunction
    ctypedef struct CUuuid:
        char bytes[16]
    ctypedef struct CUipcMemHandle:
        char reserved[64]
    ctypedef struct CUipcEventHandle:
        char reserved[64]
    ctypedef enum CUdevice_attribute:
        CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
        CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
        CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE
        CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE
        CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT
        CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT
        CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT
        CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
        CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
    ctypedef enum CUpointer_attribute:
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        CU_POINTER_ATTRIBUTE_CONTEXT
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        CU_POINTER_ATTRIBUTE_IS_MANAGED
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    ctypedef enum CUdevice_P2PAttribute:
        CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
        CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
    ctypedef enum CUfunction_attribute:
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
        CU_FUNC_ATTRIBUTE_NUM_REGS
        CU_FUNC_ATTRIBUTE_PTX_VERSION
        CU_FUNC_ATTRIBUTE_BINARY_VERSION
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    ctypedef enum CUfunc_cache:
        CU_FUNC_CACHE_PREFER_NONE
    ctypedef enum CUjit_option:
        CU_JIT_MAX_REGISTERS
        CU_JIT_INFO_LOG_BUFFER
        CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES
        CU_JIT_ERROR_LOG_BUFFER
        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
        CU_JIT_OPTIMIZATION_LEVEL
        CU_JIT_TARGET
        CU_JIT_GENERATE_DEBUG_INFO
        CU_JIT_LOG_VERBOSE
        CU_JIT_GENERATE_LINE_INFO
    ctypedef enum CUjitInputType:
        CU_JIT_INPUT_CUBIN
        CU_JIT_INPUT_PTX
        CU_JIT_INPUT_FATBINARY
    ctypedef struct CUlinkState_st:
        pass
    ctypedef CUlinkState_st *CUlinkState
    ctypedef enum CUlimit:
        CU_LIMIT_STACK_SIZE
        CU_LIMIT_PRINTF_FIFO_SIZE
        CU_LIMIT_MALLOC_HEAP_SIZE
        CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    ctypedef size_t (*CUoccupancyB2DSize)(int block_size)
    ctypedef void (*CUhostFn)(void *argument) noexcept nogil
    unsigned int CU_STREAM_WAIT_VALUE_GEQ
    ctypedef enum CUlaunchAttributeID:
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        CU_LAUNCH_ATTRIBUTE_PRIORITY
        CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
        CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    ctypedef enum CUaccessProperty:
        CU_ACCESS_PROPERTY_NORMAL
        CU_ACCESS_PROPERTY_STREAMING
        CU_ACCESS_PROPERTY_PERSISTING
    ctypedef struct CUaccessPolicyWindow:
        void *base_ptr
        size_t num_bytes
        float hitRatio
        CUaccessProperty hitProp
        CUaccessProperty missProp
    ctypedef enum CUlaunchMemSyncDomain:
        CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT
        CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE
    ctypedef union CUlaunchAttributeValue:
        int cooperative
        int priority
        int programmaticStreamSerializationAllowed
        CUaccessPolicyWindow accessPolicyWindow
        CUlaunchMemSyncDomain memSyncDomain
    ctypedef struct CUlaunchAttribute:
        CUlaunchAttributeID id
        CUlaunchAttributeValue value
    void *CU_LAUNCH_PARAM_BUFFER_POINTER
    void *CU_LAUNCH_PARAM_BUFFER_SIZE
    void *CU_LAUNCH_PARAM_END
    ctypedef struct CUlaunchConfig:
        unsigned int gridDimX
        unsigned int gridDimY
        unsigned int gridDimZ
        unsigned int blockDimX
        unsigned int blockDimY
        unsigned int blockDimZ
        unsigned int sharedMemBytes
        CUstream hStream
        CUlaunchAttribute *attrs
        unsigned int numAttrs
    ctypedef unsigned long long cuuint64_t
    ctypedef enum CUmemorytype:
        CU_MEMORYTYPE_HOST
        CU_MEMORYTYPE_DEVICE
        CU_MEMORYTYPE_UNIFIED
        CU_MEMORYTYPE_ARRAY
    ctypedef struct CUarray_st:
        pass
    ctypedef CUarray_st *CUarray
    ctypedef struct CUmipmappedArray_st:
        pass
    ctypedef CUmipmappedArray_st *CUmipmappedArray
    ctypedef unsigned long long CUtexObject
    ctypedef unsigned long long CUsurfObject
    ctypedef enum CUarray_format:
        CU_AD_FORMAT_UNSIGNED_INT8
        CU_AD_FORMAT_UNSIGNED_INT16
        CU_AD_FORMAT_UNSIGNED_INT32
        CU_AD_FORMAT_SIGNED_INT8
        CU_AD_FORMAT_SIGNED_INT16
        CU_AD_FORMAT_SIGNED_INT32
        CU_AD_FORMAT_HALF
        CU_AD_FORMAT_FLOAT
    enum:
        CUDA_ARRAY3D_LAYERED
        CUDA_ARRAY3D_SURFACE_LDST
        CUDA_ARRAY3D_CUBEMAP
        CUDA_ARRAY3D_TEXTURE_GATHER
        CU_TRSF_READ_AS_INTEGER
        CU_TRSF_NORMALIZED_COORDINATES
        CU_TRSF_SRGB
        CU_TRSF_SEAMLESS_CUBEMAP
    ctypedef struct CUDA_ARRAY3D_DESCRIPTOR:
        size_t Width
        size_t Height
        size_t Depth
        CUarray_format Format
        unsigned int NumChannels
        unsigned int Flags
    ctypedef enum CUaddress_mode:
        CU_TR_ADDRESS_MODE_WRAP
        CU_TR_ADDRESS_MODE_CLAMP
        CU_TR_ADDRESS_MODE_MIRROR
        CU_TR_ADDRESS_MODE_BORDER
    ctypedef enum CUfilter_mode:
        CU_TR_FILTER_MODE_POINT
        CU_TR_FILTER_MODE_LINEAR
    ctypedef struct CUDA_RESOURCE_DESC:
        pass
    ctypedef struct CUDA_TEXTURE_DESC:
        CUaddress_mode addressMode[3]
        CUfilter_mode filterMode
        unsigned int flags
        unsigned int maxAnisotropy
        CUfilter_mode mipmapFilterMode
        float mipmapLevelBias
        float minMipmapLevelClamp
        float maxMipmapLevelClamp
        float borderColor[4]
    ctypedef struct CUDA_RESOURCE_VIEW_DESC:
        pass
    ctypedef struct CUDA_KERNEL_NODE_PARAMS:
        CUfunction func
        unsigned int gridDimX
        unsigned int gridDimY
        unsigned int gridDimZ
        unsigned int blockDimX
        unsigned int blockDimY
        unsigned int blockDimZ
        unsigned int sharedMemBytes
        void **kernelParams
    ctypedef struct CUDA_MEMCPY2D:
        CUmemorytype srcMemoryType
        const void *srcHost
        CUdeviceptr srcDevice
        size_t srcPitch
        CUmemorytype dstMemoryType
        void *dstHost
        CUdeviceptr dstDevice
        size_t dstPitch
        size_t WidthInBytes
        size_t Height
    ctypedef struct CUDA_MEMCPY3D:
        size_t srcXInBytes
        size_t srcY
        size_t srcZ
        CUmemorytype srcMemoryType
        const void *srcHost
        CUdeviceptr srcDevice
        CUarray srcArray
        size_t srcPitch
        size_t srcHeight
        size_t dstXInBytes
        size_t dstY
        size_t dstZ
        CUmemorytype dstMemoryType
        void *dstHost
        CUdeviceptr dstDevice
        CUarray dstArray
        size_t dstPitch
        size_t dstHeight
        size_t WidthInBytes
        size_t Height
        size_t Depth
    ctypedef struct CUDA_MEMCPY3D_PEER:
        size_t srcXInBytes
        size_t srcY
        size_t srcZ
        CUmemorytype srcMemoryType
        CUdeviceptr srcDevice
        CUarray srcArray
        CUcontext srcContext
        size_t srcPitch
        size_t srcHeight
        size_t dstXInBytes
        size_t dstY
        size_t dstZ
        CUmemorytype dstMemoryType
        CUdeviceptr dstDevice
        CUarray dstArray
        CUcontext dstContext
        size_t dstPitch
        size_t dstHeight
        size_t WidthInBytes
        size_t Height
        size_t Depth
    ctypedef struct CUDA_HOST_NODE_PARAMS:
        CUhostFn fn
        void *userData
    ctypedef enum CUstreamBatchMemOpType:
        CU_STREAM_MEM_OP_WAIT_VALUE_64
        CU_STREAM_MEM_OP_WRITE_VALUE_64
    ctypedef struct WaitValueParams "struct CUstreamMemOpWaitValueParams_st":
        CUstreamBatchMemOpType operation
        CUdeviceptr address
        cuuint64_t value64
        unsigned int flags
    ctypedef struct WriteValueParams "struct CUstreamMemOpWriteValueParams_st":
        CUstreamBatchMemOpType operation
        CUdeviceptr address
        cuuint64_t value64
        unsigned int flags
    ctypedef union CUstreamBatchMemOpParams:
        CUstreamBatchMemOpType operation
        WaitValueParams waitValue
        WriteValueParams writeValue
    ctypedef struct CUDA_BATCH_MEM_OP_NODE_PARAMS:
        CUcontext ctx
        unsigned int count
        CUstreamBatchMemOpParams *paramArray
        unsigned int flags
    ctypedef enum CUgraphNodeType:
        CU_GRAPH_NODE_TYPE_HOST
        CU_GRAPH_NODE_TYPE_GRAPH
    ctypedef struct CUDA_MEMSET_NODE_PARAMS:
        CUdeviceptr dst
        size_t pitch
        unsigned int value
        unsigned int elementSize
        size_t width
        size_t height
    ctypedef enum CUgraphExecUpdateResult:
        CU_GRAPH_EXEC_UPDATE_ERROR
        CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
        CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED
        CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED
        CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED
        CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED
        CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE
        CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED
    ctypedef struct CUgraphExecUpdateResultInfo:
        CUgraphExecUpdateResult result
        CUgraphNode errorNode
        CUgraphNode errorFromNode
    ctypedef enum CUmem_advise:
        CU_MEM_ADVISE_SET_READ_MOSTLY
        CU_MEM_ADVISE_UNSET_READ_MOSTLY
        CU_MEM_ADVISE_SET_PREFERRED_LOCATION
        CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION
        CU_MEM_ADVISE_SET_ACCESSED_BY
        CU_MEM_ADVISE_UNSET_ACCESSED_BY
    ctypedef enum CUmem_range_attribute:
        CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION
        CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY
        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
    ctypedef enum CUmemLocationType:
        CU_MEM_LOCATION_TYPE_DEVICE
    ctypedef struct CUmemLocation:
        CUmemLocationType type
        int id
    ctypedef struct CUmemPoolHandle_st:
        pass
    ctypedef CUmemPoolHandle_st *CUmemoryPool
    ctypedef struct CUmemPoolProps:
        pass
    ctypedef enum CUmemPool_attribute:
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT
        CU_MEMPOOL_ATTR_USED_MEM_HIGH
    ctypedef enum CUmemAccess_flags:
        CU_MEM_ACCESS_FLAGS_PROT_NONE
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ctypedef enum CUmemAllocationType:
        CU_MEM_ALLOCATION_TYPE_PINNED
    ctypedef enum CUmemAllocationGranularity_flags:
        CU_MEM_ALLOC_GRANULARITY_MINIMUM
    ctypedef unsigned long long CUmemGenericAllocationHandle
    ctypedef struct CUmemAllocationProp:
        CUmemAllocationType type
        CUmemLocation location
    ctypedef struct CUmemAccessDesc:
        CUmemLocation location
        CUmemAccess_flags flags
    ctypedef enum CUstreamCaptureStatus:
        CU_STREAM_CAPTURE_STATUS_ACTIVE
        CU_STREAM_CAPTURE_STATUS_NONE
    ctypedef enum CUstreamCaptureMode:
        CU_STREAM_CAPTURE_MODE_RELAXED

    enum:
        CUDA_VERSION
        CU_STREAM_DEFAULT
        CU_STREAM_NON_BLOCKING
        CU_EVENT_DEFAULT
        CU_EVENT_BLOCKING_SYNC
        CU_EVENT_DISABLE_TIMING
        CU_EVENT_INTERPROCESS
        CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        CU_MEMHOSTREGISTER_PORTABLE
        CU_MEMHOSTREGISTER_DEVICEMAP
        CU_MEMHOSTREGISTER_READ_ONLY
        CU_MEMHOSTALLOC_PORTABLE
        CU_MEMHOSTALLOC_DEVICEMAP
        CU_MEMHOSTALLOC_WRITECOMBINED
        CU_MEM_ATTACH_GLOBAL
        CU_MEM_ATTACH_HOST
        CU_MEM_ATTACH_SINGLE
        CU_DEVICE_CPU
        CU_DEVICE_INVALID

    CUstream CU_STREAM_LEGACY
    CUstream CU_STREAM_PER_THREAD

    ctypedef struct cudadrv_driver:
        void (*note_failure)(const char *call) noexcept nogil
        bint forked
        int attention
        bint ending
        int slowly
        int (*tag_stream)(CUcontext context, CUstream stream, unsigned long long tag) noexcept nogil
        int (*renew_memory)(CUdeviceptr address, size_t bytes) noexcept nogil
        void (*asks)(int purpose) noexcept nogil
        bint (*repeats)() noexcept nogil
        void (*uses)(unsigned long long address, size_t nbytes, int writes) noexcept nogil
        void (*map_twice)(bint on) noexcept nogil
        bint (*is_mapped_twice)(unsigned long long address) noexcept nogil
    cudadrv_driver *cudadrv_table
    enum:
        CUDADRV_ENDS
        CUDADRV_HAS_RANGES
        CUDADRV_TRACES
        CUDADRV_GUARDS
    enum:
        CUDADRV_LOANS_HAVE_ENDED
        CUDADRV_FUNCTION_RUNS
    void cudadrv_set_attention(int bit) noexcept
    void cudadrv_clear_attention(int bit) noexcept

    # library
    CUresult cuInit "cudadrv_cuInit"(unsigned int flags)
    CUresult cuDriverGetVersion "cudadrv_cuDriverGetVersion"(int *version)
    CUresult cuGetErrorName "cudadrv_cuGetErrorName"(CUresult status, const char **text)
    CUresult cuGetErrorString "cudadrv_cuGetErrorString"(CUresult status, const char **text)
    CUresult cuLogsRegisterCallback "cudadrv_cuLogsRegisterCallback"(
        void (*function)(void *, int, char *, size_t) noexcept nogil, void *data, void **handle)

    # devices
    CUresult cuDeviceGet "cudadrv_cuDeviceGet"(CUdevice *device, int ordinal)
    CUresult cuDeviceGetCount "cudadrv_cuDeviceGetCount"(int *count)
    CUresult cuDeviceGetName "cudadrv_cuDeviceGetName"(char *name, int size, CUdevice device)
    CUresult cuDeviceGetUuid "cudadrv_cuDeviceGetUuid"(CUuuid *uuid, CUdevice device)
    CUresult cuDeviceTotalMem "cudadrv_cuDeviceTotalMem"(size_t *bytes, CUdevice device)
    CUresult cuDeviceGetAttribute "cudadrv_cuDeviceGetAttribute"(
        int *value, CUdevice_attribute attribute, CUdevice device)
    CUresult cuDeviceGetPCIBusId "cudadrv_cuDeviceGetPCIBusId"(
        char *text, int size, CUdevice device)
    CUresult cuDeviceCanAccessPeer "cudadrv_cuDeviceCanAccessPeer"(
        int *can, CUdevice device, CUdevice peer)
    CUresult cuDeviceGetP2PAttribute "cudadrv_cuDeviceGetP2PAttribute"(
        int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
    CUresult cuDevicePrimaryCtxGetState "cudadrv_cuDevicePrimaryCtxGetState"(
        CUdevice device, unsigned int *flags, int *active)
    CUresult cuDevicePrimaryCtxRetain "cudadrv_cuDevicePrimaryCtxRetain"(
        CUcontext *context, CUdevice device)
    CUresult cuDevicePrimaryCtxRelease "cudadrv_cuDevicePrimaryCtxRelease"(CUdevice device)

    # contexts
    CUresult cuCtxCreate "cudadrv_cuCtxCreate"(
        CUcontext *context, unsigned int flags, CUdevice device)
    CUresult cuCtxDestroy "cudadrv_cuCtxDestroy"(CUcontext context)
    CUresult cuCtxGetCurrent "cudadrv_cuCtxGetCurrent"(CUcontext *context)
    CUresult cuCtxSetCurrent "cudadrv_cuCtxSetCurrent"(CUcontext context)
    CUresult cuCtxPushCurrent "cudadrv_cuCtxPushCurrent"(CUcontext context)
    CUresult cuCtxPopCurrent "cudadrv_cuCtxPopCurrent"(CUcontext *context)
    CUresult cuCtxSynchronize "cudadrv_cuCtxSynchronize"()
    CUresult cuCtxGetLimit "cudadrv_cuCtxGetLimit"(size_t *value, CUlimit limit)
    CUresult cuCtxSetLimit "cudadrv_cuCtxSetLimit"(CUlimit limit, size_t value)
    CUresult cuProfilerStart "cudadrv_cuProfilerStart"()
    CUresult cuProfilerStop "cudadrv_cuProfilerStop"()
    CUresult cuCtxGetStreamPriorityRange "cudadrv_cuCtxGetStreamPriorityRange"(
        int *least, int *greatest)
    CUresult cuCtxEnablePeerAccess "cudadrv_cuCtxEnablePeerAccess"(
        CUcontext peer, unsigned int flags)
    CUresult cuCtxDisablePeerAccess "cudadrv_cuCtxDisablePeerAccess"(CUcontext peer)
    CUresult cuThreadExchangeStreamCaptureMode "cudadrv_cuThreadExchangeStreamCaptureMode"(
        CUstreamCaptureMode *mode)

    # streams
    CUresult cuStreamCreateWithPriority "cudadrv_cuStreamCreateWithPriority"(
        CUstream *stream, unsigned int flags, int priority)
    CUresult cuStreamDestroy "cudadrv_cuStreamDestroy"(CUstream stream)
    CUresult cuStreamSynchronize "cudadrv_cuStreamSynchronize"(CUstream stream)
    CUresult cuStreamQuery "cudadrv_cuStreamQuery"(CUstream stream)
    CUresult cuStreamWaitEvent "cudadrv_cuStreamWaitEvent"(
        CUstream stream, CUevent event, unsigned int flags)
    CUresult cuStreamGetFlags "cudadrv_cuStreamGetFlags"(CUstream stream, unsigned int *flags)
    CUresult cuStreamGetPriority "cudadrv_cuStreamGetPriority"(CUstream stream, int *priority)
    CUresult cuStreamGetCtx "cudadrv_cuStreamGetCtx"(CUstream stream, CUcontext *context)
    CUresult cuStreamGetId "cudadrv_cuStreamGetId"(CUstream stream, unsigned long long *id)
    CUresult cuStreamIsCapturing "cudadrv_cuStreamIsCapturing"(
        CUstream stream, CUstreamCaptureStatus *status)
    CUresult cuLaunchHostFunc "cudadrv_cuLaunchHostFunc"(
        CUstream stream, CUhostFn function, void *argument)
    CUresult cuStreamWaitValue64 "cudadrv_cuStreamWaitValue64"(
        CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
    CUresult cuStreamWriteValue64 "cudadrv_cuStreamWriteValue64"(
        CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)

    # events
    CUresult cuEventCreate "cudadrv_cuEventCreate"(CUevent *event, unsigned int flags)
    CUresult cuEventDestroy "cudadrv_cuEventDestroy"(CUevent event)
    CUresult cuEventRecord "cudadrv_cuEventRecord"(CUevent event, CUstream stream)
    CUresult cuEventQuery "cudadrv_cuEventQuery"(CUevent event)
    CUresult cuEventElapsedTime "cudadrv_cuEventElapsedTime"(
        float *milliseconds, CUevent start, CUevent end)

    # memory
    CUresult cuMemGetInfo "cudadrv_cuMemGetInfo"(size_t *available, size_t *total)
    CUresult cuMemAlloc "cudadrv_cuMemAlloc"(CUdeviceptr *address, size_t nbytes)
    CUresult cuMemFree "cudadrv_cuMemFree"(CUdeviceptr address)
    CUresult cuMemAllocAsync "cudadrv_cuMemAllocAsync"(
        CUdeviceptr *address, size_t nbytes, CUstream stream)
    CUresult cuMemFreeAsync "cudadrv_cuMemFreeAsync"(CUdeviceptr address, CUstream stream)
    CUresult cuMemAllocFromPoolAsync "cudadrv_cuMemAllocFromPoolAsync"(
        CUdeviceptr *address, size_t nbytes, CUmemoryPool pool, CUstream stream)
    CUresult cuMemPoolCreate "cudadrv_cuMemPoolCreate"(
        CUmemoryPool *pool, const CUmemPoolProps *properties)
    CUresult cuMemPoolDestroy "cudadrv_cuMemPoolDestroy"(CUmemoryPool pool)
    CUresult cuMemPoolTrimTo "cudadrv_cuMemPoolTrimTo"(CUmemoryPool pool, size_t keep)
    CUresult cuMemPoolSetAttribute "cudadrv_cuMemPoolSetAttribute"(
        CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
    CUresult cuMemPoolGetAttribute "cudadrv_cuMemPoolGetAttribute"(
        CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
    CUresult cuMemPoolSetAccess "cudadrv_cuMemPoolSetAccess"(
        CUmemoryPool pool, const CUmemAccessDesc *changes, size_t count)
    CUresult cuMemPoolGetAccess "cudadrv_cuMemPoolGetAccess"(
        CUmemAccess_flags *access, CUmemoryPool pool, CUmemLocation *place)
    CUresult cuDeviceGetDefaultMemPool "cudadrv_cuDeviceGetDefaultMemPool"(
        CUmemoryPool *pool, CUdevice device)
    CUresult cuMemGetDefaultMemPool "cudadrv_cuMemGetDefaultMemPool"(
        CUmemoryPool *pool, CUmemLocation *place, int type)
    CUresult cuMemGetAllocationGranularity "cudadrv_cuMemGetAllocationGranularity"(
        size_t *granularity, const CUmemAllocationProp *properties,
        CUmemAllocationGranularity_flags option)
    CUresult cuMemAddressReserve "cudadrv_cuMemAddressReserve"(
        CUdeviceptr *address, size_t nbytes, size_t alignment, CUdeviceptr wanted,
        unsigned long long flags)
    CUresult cuMemAddressFree "cudadrv_cuMemAddressFree"(CUdeviceptr address, size_t nbytes)
    CUresult cuMemCreate "cudadrv_cuMemCreate"(
        CUmemGenericAllocationHandle *handle, size_t nbytes,
        const CUmemAllocationProp *properties, unsigned long long flags)
    CUresult cuMemRelease "cudadrv_cuMemRelease"(CUmemGenericAllocationHandle handle)
    CUresult cuMemMap "cudadrv_cuMemMap"(
        CUdeviceptr address, size_t nbytes, size_t offset, CUmemGenericAllocationHandle handle,
        unsigned long long flags)
    CUresult cuMemUnmap "cudadrv_cuMemUnmap"(CUdeviceptr address, size_t nbytes)
    CUresult cuMemSetAccess "cudadrv_cuMemSetAccess"(
        CUdeviceptr address, size_t nbytes, const CUmemAccessDesc *changes, size_t count)
    CUresult cuMemHostAlloc "cudadrv_cuMemHostAlloc"(
        void **address, size_t nbytes, unsigned int flags)
    CUresult cuMemFreeHost "cudadrv_cuMemFreeHost"(void *address)
    CUresult cuMemHostRegister "cudadrv_cuMemHostRegister"(
        void *address, size_t bytes, unsigned int flags)
    CUresult cuMemHostUnregister "cudadrv_cuMemHostUnregister"(void *address)
    CUresult cuIpcGetMemHandle "cudadrv_cuIpcGetMemHandle"(
        CUipcMemHandle *handle, CUdeviceptr address)
    CUresult cuIpcOpenMemHandle "cudadrv_cuIpcOpenMemHandle"(
        CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
    CUresult cuIpcCloseMemHandle "cudadrv_cuIpcCloseMemHandle"(CUdeviceptr address)
    CUresult cuIpcGetEventHandle "cudadrv_cuIpcGetEventHandle"(
        CUipcEventHandle *handle, CUevent event)
    CUresult cuIpcOpenEventHandle "cudadrv_cuIpcOpenEventHandle"(
        CUevent *event, CUipcEventHandle handle)
    CUresult cuMemAllocManaged "cudadrv_cuMemAllocManaged"(
        CUdeviceptr *address, size_t nbytes, unsigned int flags)
    CUresult cuMemPrefetchAsync "cudadrv_cuMemPrefetchAsync"(
        CUdeviceptr address, size_t nbytes, CUdevice place, CUstream stream)
    CUresult cuMemPrefetchBatchAsync "cudadrv_cuMemPrefetchBatchAsync"(
        CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *places,
        size_t *firsts, size_t place_count, unsigned long long flags, CUstream stream)
    CUresult cuMemDiscardBatchAsync "cudadrv_cuMemDiscardBatchAsync"(
        CUdeviceptr *addresses, size_t *sizes, size_t count, unsigned long long flags,
        CUstream stream)
    CUresult cuMemDiscardAndPrefetchBatchAsync "cudadrv_cuMemDiscardAndPrefetchBatchAsync"(
        CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *places,
        size_t *firsts, size_t place_count, unsigned long long flags, CUstream stream)
    CUresult cuStreamAttachMemAsync "cudadrv_cuStreamAttachMemAsync"(
        CUstream stream, CUdeviceptr address, size_t nbytes, unsigned int flags)
    CUresult cuMemAdvise "cudadrv_cuMemAdvise"(
        CUdeviceptr address, size_t nbytes, CUmem_advise advice, CUdevice place)
    CUresult cuMemRangeGetAttribute "cudadrv_cuMemRangeGetAttribute"(
        void *value, size_t size, CUmem_range_attribute attribute, CUdeviceptr address,
        size_t nbytes)
    CUresult cuMemGetAddressRange "cudadrv_cuMemGetAddressRange"(
        CUdeviceptr *first, size_t *bytes, CUdeviceptr address)
    CUresult cuPointerGetAttribute "cudadrv_cuPointerGetAttribute"(
        void *value, CUpointer_attribute attribute, CUdeviceptr address)

    # copies
    CUresult cuMemcpyAsync "cudadrv_cuMemcpyAsync"(
        CUdeviceptr target, CUdeviceptr source, size_t nbytes, CUstream stream)
    CUresult cuMemcpyHtoDAsync "cudadrv_cuMemcpyHtoDAsync"(
        CUdeviceptr target, const void *source, size_t nbytes, CUstream stream)
    CUresult cuMemcpyDtoHAsync "cudadrv_cuMemcpyDtoHAsync"(
        void *target, CUdeviceptr source, size_t nbytes, CUstream stream)
    CUresult cuMemcpyDtoDAsync "cudadrv_cuMemcpyDtoDAsync"(
        CUdeviceptr target, CUdeviceptr source, size_t nbytes, CUstream stream)
    CUresult cuMemcpyPeerAsync "cudadrv_cuMemcpyPeerAsync"(
        CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
        CUcontext source_context, size_t nbytes, CUstream stream)
    CUresult cuMemcpyBatchAsync "cudadrv_cuMemcpyBatchAsync"(
        CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count, void *attributes,
        size_t *firsts, size_t attribute_count, size_t *failed, CUstream stream)
    CUresult cuMemcpy2DAsync "cudadrv_cuMemcpy2DAsync"(
        const CUDA_MEMCPY2D *copy, CUstream stream)
    CUresult cuMemcpy3DAsync "cudadrv_cuMemcpy3DAsync"(
        const CUDA_MEMCPY3D *copy, CUstream stream)
    CUresult cuMemcpy3DPeerAsync "cudadrv_cuMemcpy3DPeerAsync"(
        const CUDA_MEMCPY3D_PEER *copy, CUstream stream)

    # fills
    CUresult cuMemsetD8Async "cudadrv_cuMemsetD8Async"(
        CUdeviceptr target, unsigned char value, size_t count, CUstream stream)
    CUresult cuMemsetD16Async "cudadrv_cuMemsetD16Async"(
        CUdeviceptr target, unsigned short value, size_t count, CUstream stream)
    CUresult cuMemsetD32Async "cudadrv_cuMemsetD32Async"(
        CUdeviceptr target, unsigned int value, size_t count, CUstream stream)
    CUresult cuMemsetD2D8Async "cudadrv_cuMemsetD2D8Async"(
        CUdeviceptr target, size_t pitch, unsigned char value, size_t width, size_t height,
        CUstream stream)
    CUresult cuMemsetD2D16Async "cudadrv_cuMemsetD2D16Async"(
        CUdeviceptr target, size_t pitch, unsigned short value, size_t width, size_t height,
        CUstream stream)
    CUresult cuMemsetD2D32Async "cudadrv_cuMemsetD2D32Async"(
        CUdeviceptr target, size_t pitch, unsigned int value, size_t width, size_t height,
        CUstream stream)

    # modules
    CUresult cuModuleLoadDataEx "cudadrv_cuModuleLoadDataEx"(
        CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
        void **values)
    CUresult cuLinkCreate "cudadrv_cuLinkCreate"(
        unsigned int count, CUjit_option *options, void **values, CUlinkState *link)
    CUresult cuLinkAddData "cudadrv_cuLinkAddData"(
        CUlinkState link, CUjitInputType type, void *data, size_t nbytes, const char *name,
        unsigned int count, CUjit_option *options, void **values)
    CUresult cuLinkComplete "cudadrv_cuLinkComplete"(
        CUlinkState link, void **image, size_t *nbytes)
    CUresult cuLinkDestroy "cudadrv_cuLinkDestroy"(CUlinkState link)
    CUresult cuModuleUnload "cudadrv_cuModuleUnload"(CUmodule module)
    CUresult cuModuleGetFunction "cudadrv_cuModuleGetFunction"(
        CUfunction *function, CUmodule module, const char *name)
    CUresult cuModuleGetGlobal "cudadrv_cuModuleGetGlobal"(
        CUdeviceptr *address, size_t *nbytes, CUmodule module, const char *name)
    CUresult cuModuleGetFunctionCount "cudadrv_cuModuleGetFunctionCount"(
        unsigned int *count, CUmodule module)
    CUresult cuModuleEnumerateFunctions "cudadrv_cuModuleEnumerateFunctions"(
        CUfunction *functions, unsigned int count, CUmodule module)

    # kernels
    CUresult cuFuncGetName "cudadrv_cuFuncGetName"(const char **name, CUfunction function)
    CUresult cuFuncGetAttribute "cudadrv_cuFuncGetAttribute"(
        int *value, CUfunction_attribute attribute, CUfunction function)
    CUresult cuFuncSetAttribute "cudadrv_cuFuncSetAttribute"(
        CUfunction function, CUfunction_attribute attribute, int value)
    CUresult cuFuncSetCacheConfig "cudadrv_cuFuncSetCacheConfig"(
        CUfunction function, CUfunc_cache config)
    CUresult cuFuncGetParamInfo "cudadrv_cuFuncGetParamInfo"(
        CUfunction function, size_t index, size_t *offset, size_t *nbytes)
    CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor \
        "cudadrv_cuOccupancyMaxActiveBlocksPerMultiprocessor"(
            int *blocks, CUfunction function, int block_size, size_t shared_bytes)
    CUresult cuOccupancyMaxPotentialBlockSize "cudadrv_cuOccupancyMaxPotentialBlockSize"(
        int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of,
        size_t shared_bytes, int limit)
    CUresult cuLaunchKernel "cudadrv_cuLaunchKernel"(
        CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
        unsigned int block_x, unsigned int block_y, unsigned int block_z,
        unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)
    CUresult cuLaunchKernelEx "cudadrv_cuLaunchKernelEx"(
        const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)

    # graphs
    CUresult cuStreamBeginCapture "cudadrv_cuStreamBeginCapture"(
        CUstream stream, CUstreamCaptureMode mode)
    CUresult cuStreamEndCapture "cudadrv_cuStreamEndCapture"(CUstream stream, CUgraph *graph)
    CUresult cuStreamBeginCaptureToGraph "cudadrv_cuStreamBeginCaptureToGraph"(
        CUstream stream, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count,
        CUstreamCaptureMode mode)
    CUresult cuStreamGetCaptureInfo "cudadrv_cuStreamGetCaptureInfo"(
        CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *number, CUgraph *graph,
        const CUgraphNode **last, size_t *count)
    CUresult cuGraphGetNodes "cudadrv_cuGraphGetNodes"(
        CUgraph graph, CUgraphNode *nodes, size_t *count)
    CUresult cuGraphNodeGetType "cudadrv_cuGraphNodeGetType"(
        CUgraphNode node, CUgraphNodeType *type)
    CUresult cuGraphNodeGetDependencies "cudadrv_cuGraphNodeGetDependencies"(
        CUgraphNode node, CUgraphNode *nodes, size_t *count)
    CUresult cuGraphCreate "cudadrv_cuGraphCreate"(CUgraph *graph, unsigned int flags)
    CUresult cuGraphDestroy "cudadrv_cuGraphDestroy"(CUgraph graph)
    CUresult cuGraphAddEmptyNode "cudadrv_cuGraphAddEmptyNode"(
        CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count)
    CUresult cuGraphAddMemcpyNode "cudadrv_cuGraphAddMemcpyNode"(
        CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
        const CUDA_MEMCPY3D *copy, CUcontext context)
    CUresult cuGraphAddMemsetNode "cudadrv_cuGraphAddMemsetNode"(
        CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
        const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
    CUresult cuGraphAddKernelNode "cudadrv_cuGraphAddKernelNode"(
        CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
        const CUDA_KERNEL_NODE_PARAMS *launch)
    CUresult cuGraphKernelNodeSetAttribute "cudadrv_cuGraphKernelNodeSetAttribute"(
        CUgraphNode node, CUlaunchAttributeID attribute, const CUlaunchAttributeValue *value)
    CUresult cuGraphHostNodeGetParams "cudadrv_cuGraphHostNodeGetParams"(
        CUgraphNode node, CUDA_HOST_NODE_PARAMS *call)
    CUresult cuGraphHostNodeSetParams "cudadrv_cuGraphHostNodeSetParams"(
        CUgraphNode node, const CUDA_HOST_NODE_PARAMS *call)
    CUresult cuGraphChildGraphNodeGetGraph "cudadrv_cuGraphChildGraphNodeGetGraph"(
        CUgraphNode node, CUgraph *graph)
    CUresult cuGraphAddChildGraphNode "cudadrv_cuGraphAddChildGraphNode"(
        CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUgraph child)
    CUresult cuGraphAddNode "cudadrv_cuGraphAddNode"(
        CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges,
        size_t count, void *parameters)
    CUresult cuGraphDestroyNode "cudadrv_cuGraphDestroyNode"(CUgraphNode node)
    CUresult cuGraphConditionalHandleCreate "cudadrv_cuGraphConditionalHandleCreate"(
        cuuint64_t *handle, CUgraph graph, CUcontext context, unsigned int value,
        unsigned int flags)
    CUresult cuGraphInstantiateWithFlags "cudadrv_cuGraphInstantiateWithFlags"(
        CUgraphExec *executable, CUgraph graph, unsigned long long flags)
    CUresult cuGraphLaunch "cudadrv_cuGraphLaunch"(CUgraphExec executable, CUstream stream)
    CUresult cuGraphUpload "cudadrv_cuGraphUpload"(CUgraphExec executable, CUstream stream)
    CUresult cuGraphExecDestroy "cudadrv_cuGraphExecDestroy"(CUgraphExec executable)
    CUresult cuGraphExecUpdate "cudadrv_cuGraphExecUpdate"(
        CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo *result)
    CUresult cuGraphExecKernelNodeSetParams "cudadrv_cuGraphExecKernelNodeSetParams"(
        CUgraphExec executable, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *launch)
    CUresult cuGraphExecMemcpyNodeSetParams "cudadrv_cuGraphExecMemcpyNodeSetParams"(
        CUgraphExec executable, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context)
    CUresult cuGraphExecMemsetNodeSetParams "cudadrv_cuGraphExecMemsetNodeSetParams"(
        CUgraphExec executable, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill,
        CUcontext context)
    CUresult cuGraphNodeSetEnabled "cudadrv_cuGraphNodeSetEnabled"(
        CUgraphExec executable, CUgraphNode node, unsigned int enabled)

    # The same calls while a context is current: see driver.h. The context is the first argument.
    CUresult in_cuCtxDisablePeerAccess "cudadrv_in_cuCtxDisablePeerAccess"(
        CUcontext context, CUcontext peer)
    CUresult in_cuCtxEnablePeerAccess "cudadrv_in_cuCtxEnablePeerAccess"(
        CUcontext context, CUcontext peer, unsigned int flags)
    CUresult in_cuCtxGetStreamPriorityRange "cudadrv_in_cuCtxGetStreamPriorityRange"(
        CUcontext context, int *least, int *greatest)
    CUresult in_cuCtxSynchronize "cudadrv_in_cuCtxSynchronize"(CUcontext context)
    CUresult in_cuCtxGetLimit "cudadrv_in_cuCtxGetLimit"(
        CUcontext context, size_t *value, CUlimit limit)
    CUresult in_cuCtxSetLimit "cudadrv_in_cuCtxSetLimit"(
        CUcontext context, CUlimit limit, size_t value)
    CUresult in_cuProfilerStart "cudadrv_in_cuProfilerStart"(CUcontext context)
    CUresult in_cuProfilerStop "cudadrv_in_cuProfilerStop"(CUcontext context)
    CUresult in_cuEventCreate "cudadrv_in_cuEventCreate"(
        CUcontext context, CUevent *event, unsigned int flags)
    CUresult in_cuIpcOpenEventHandle "cudadrv_in_cuIpcOpenEventHandle"(
        CUcontext context, CUevent *event, CUipcEventHandle handle)
    CUresult in_cuEventQuery "cudadrv_in_cuEventQuery"(CUcontext context, CUevent event)
    CUresult in_cuEventSynchronize "cudadrv_in_cuEventSynchronize"(CUcontext context, CUevent event)
    CUresult in_cuEventDestroy "cudadrv_in_cuEventDestroy"(CUcontext context, CUevent event)
    CUresult in_cuEventElapsedTime "cudadrv_in_cuEventElapsedTime"(
        CUcontext context, float *milliseconds, CUevent start, CUevent end)
    CUresult in_cuEventRecord "cudadrv_in_cuEventRecord"(
        CUcontext context, CUevent event, CUstream stream)
    CUresult in_cuStreamCreateWithPriority "cudadrv_in_cuStreamCreateWithPriority"(
        CUcontext context, CUstream *stream, unsigned int flags, int priority)
    CUresult in_cuStreamDestroy "cudadrv_in_cuStreamDestroy"(CUcontext context, CUstream stream)
    CUresult in_cuStreamWaitEvent "cudadrv_in_cuStreamWaitEvent"(
        CUcontext context, CUstream stream, CUevent event, unsigned int flags)
    CUresult in_cuStreamIsCapturing "cudadrv_in_cuStreamIsCapturing"(
        CUcontext context, CUstream stream, CUstreamCaptureStatus *status)
    CUresult in_cuMemGetInfo "cudadrv_in_cuMemGetInfo"(
        CUcontext context, size_t *available, size_t *total)
    CUresult in_cuMemAlloc "cudadrv_in_cuMemAlloc"(
        CUcontext context, CUdeviceptr *address, size_t nbytes)
    CUresult in_cuMemAllocManaged "cudadrv_in_cuMemAllocManaged"(
        CUcontext context, CUdeviceptr *address, size_t nbytes, unsigned int flags)
    CUresult in_cuMemHostAlloc "cudadrv_in_cuMemHostAlloc"(
        CUcontext context, void **address, size_t nbytes, unsigned int flags)
    CUresult in_cuArray3DCreate "cudadrv_in_cuArray3DCreate"(
        CUcontext context, CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *described) noexcept
    CUresult in_cuArrayDestroy "cudadrv_in_cuArrayDestroy"(
        CUcontext context, CUarray array) noexcept
    CUresult in_cuMipmappedArrayCreate "cudadrv_in_cuMipmappedArrayCreate"(
        CUcontext context, CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *described,
        unsigned int levels) noexcept
    CUresult in_cuMipmappedArrayGetLevel "cudadrv_in_cuMipmappedArrayGetLevel"(
        CUcontext context, CUarray *level, CUmipmappedArray array, unsigned int number) noexcept
    CUresult in_cuMipmappedArrayDestroy "cudadrv_in_cuMipmappedArrayDestroy"(
        CUcontext context, CUmipmappedArray array) noexcept
    CUresult in_cuTexObjectCreate "cudadrv_in_cuTexObjectCreate"(
        CUcontext context, CUtexObject *texture, const CUDA_RESOURCE_DESC *resource,
        const CUDA_TEXTURE_DESC *reading, const CUDA_RESOURCE_VIEW_DESC *view) noexcept
    CUresult in_cuTexObjectDestroy "cudadrv_in_cuTexObjectDestroy"(
        CUcontext context, CUtexObject texture) noexcept
    CUresult in_cuSurfObjectCreate "cudadrv_in_cuSurfObjectCreate"(
        CUcontext context, CUsurfObject *surface, const CUDA_RESOURCE_DESC *resource) noexcept
    CUresult in_cuSurfObjectDestroy "cudadrv_in_cuSurfObjectDestroy"(
        CUcontext context, CUsurfObject surface) noexcept
    CUresult in_cuDeviceGetTexture1DLinearMaxWidth "cudadrv_in_cuDeviceGetTexture1DLinearMaxWidth"(
        CUcontext context, size_t *texels, CUarray_format format, unsigned int channels,
        CUdevice device) noexcept
    CUresult in_cuMemHostRegister "cudadrv_in_cuMemHostRegister"(
        CUcontext context, void *address, size_t bytes, unsigned int flags)
    CUresult in_cuMemHostUnregister "cudadrv_in_cuMemHostUnregister"(
        CUcontext context, void *address)
    CUresult in_cuMemFree "cudadrv_in_cuMemFree"(CUcontext context, CUdeviceptr address)
    CUresult in_cuMemFreeHost "cudadrv_in_cuMemFreeHost"(CUcontext context, void *address)
    CUresult in_cuMemcpyDtoDAsync "cudadrv_in_cuMemcpyDtoDAsync"(
        CUcontext context, CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream)
    CUresult in_cuMemFreeAsync "cudadrv_in_cuMemFreeAsync"(
        CUcontext context, CUdeviceptr address, CUstream stream)
    CUresult in_cuIpcCloseMemHandle "cudadrv_in_cuIpcCloseMemHandle"(
        CUcontext context, CUdeviceptr address)
    CUresult in_cuIpcGetMemHandle "cudadrv_in_cuIpcGetMemHandle"(
        CUcontext context, CUipcMemHandle *handle, CUdeviceptr address)
    CUresult in_cuIpcGetEventHandle "cudadrv_in_cuIpcGetEventHandle"(
        CUcontext context, CUipcEventHandle *handle, CUevent event)
    CUresult in_cuIpcOpenMemHandle "cudadrv_in_cuIpcOpenMemHandle"(
        CUcontext context, CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
    CUresult in_cuMemAdvise "cudadrv_in_cuMemAdvise"(
        CUcontext context, CUdeviceptr address, size_t nbytes, CUmem_advise advice, CUdevice place)
    CUresult in_cuMemRangeGetAttribute "cudadrv_in_cuMemRangeGetAttribute"(
        CUcontext context, void *value, size_t size, CUmem_range_attribute attribute,
        CUdeviceptr address, size_t nbytes)
    CUresult in_cuMemGetAddressRange "cudadrv_in_cuMemGetAddressRange"(
        CUcontext context, CUdeviceptr *first, size_t *bytes, CUdeviceptr address)
    CUresult in_cuPointerGetAttribute "cudadrv_in_cuPointerGetAttribute"(
        CUcontext context, void *value, CUpointer_attribute attribute, CUdeviceptr address)
    CUresult in_cuMemGetAllocationGranularity "cudadrv_in_cuMemGetAllocationGranularity"(
        CUcontext context, size_t *granularity, const CUmemAllocationProp *properties,
        CUmemAllocationGranularity_flags option)
    CUresult in_cuMemAddressReserve "cudadrv_in_cuMemAddressReserve"(
        CUcontext context, CUdeviceptr *address, size_t nbytes, size_t alignment,
        CUdeviceptr wanted, unsigned long long flags)
    CUresult in_cuMemAddressFree "cudadrv_in_cuMemAddressFree"(
        CUcontext context, CUdeviceptr address, size_t nbytes)
    CUresult in_cuMemCreate "cudadrv_in_cuMemCreate"(
        CUcontext context, CUmemGenericAllocationHandle *handle, size_t nbytes,
        const CUmemAllocationProp *properties, unsigned long long flags)
    CUresult in_cuMemRelease "cudadrv_in_cuMemRelease"(
        CUcontext context, CUmemGenericAllocationHandle handle)
    CUresult in_cuMemMap "cudadrv_in_cuMemMap"(
        CUcontext context, CUdeviceptr address, size_t nbytes, size_t offset,
        CUmemGenericAllocationHandle handle, unsigned long long flags)
    CUresult in_cuMemUnmap "cudadrv_in_cuMemUnmap"(
        CUcontext context, CUdeviceptr address, size_t nbytes)
    CUresult in_cuMemSetAccess "cudadrv_in_cuMemSetAccess"(
        CUcontext context, CUdeviceptr address, size_t nbytes, const CUmemAccessDesc *changes,
        size_t count)
    CUresult in_cuModuleLoadDataEx "cudadrv_in_cuModuleLoadDataEx"(
        CUcontext context, CUmodule *module, const void *image, unsigned int count,
        CUjit_option *options, void **values)
    CUresult in_cuLinkCreate "cudadrv_in_cuLinkCreate"(
        CUcontext context, unsigned int count, CUjit_option *options, void **values,
        CUlinkState *link)
    CUresult in_cuLinkAddData "cudadrv_in_cuLinkAddData"(
        CUcontext context, CUlinkState link, CUjitInputType type, void *data, size_t nbytes,
        const char *name, unsigned int count, CUjit_option *options, void **values)
    CUresult in_cuLinkComplete "cudadrv_in_cuLinkComplete"(
        CUcontext context, CUlinkState link, void **image, size_t *nbytes)
    CUresult in_cuLinkDestroy "cudadrv_in_cuLinkDestroy"(CUcontext context, CUlinkState link)
    CUresult in_cuModuleUnload "cudadrv_in_cuModuleUnload"(CUcontext context, CUmodule module)
    CUresult in_cuModuleGetFunction "cudadrv_in_cuModuleGetFunction"(
        CUcontext context, CUfunction *function, CUmodule module, const char *name)
    CUresult in_cuModuleGetGlobal "cudadrv_in_cuModuleGetGlobal"(
        CUcontext context, CUdeviceptr *address, size_t *nbytes, CUmodule module, const char *name)
    CUresult in_cuModuleGetFunctionCount "cudadrv_in_cuModuleGetFunctionCount"(
        CUcontext context, unsigned int *count, CUmodule module)
    CUresult in_cuModuleEnumerateFunctions "cudadrv_in_cuModuleEnumerateFunctions"(
        CUcontext context, CUfunction *functions, unsigned int count, CUmodule module)
    CUresult in_cuFuncGetAttribute "cudadrv_in_cuFuncGetAttribute"(
        CUcontext context, int *value, CUfunction_attribute attribute, CUfunction function)
    CUresult in_cuFuncSetAttribute "cudadrv_in_cuFuncSetAttribute"(
        CUcontext context, CUfunction function, CUfunction_attribute attribute, int value)
    CUresult in_cuFuncSetCacheConfig "cudadrv_in_cuFuncSetCacheConfig"(
        CUcontext context, CUfunction function, CUfunc_cache config)
    CUresult in_cuFuncGetParamInfo "cudadrv_in_cuFuncGetParamInfo"(
        CUcontext context, CUfunction function, size_t index, size_t *offset, size_t *nbytes)
    CUresult in_cuOccupancyMaxActiveBlocksPerMultiprocessor \
        "cudadrv_in_cuOccupancyMaxActiveBlocksPerMultiprocessor"(
            CUcontext context, int *blocks, CUfunction function, int block_size,
            size_t shared_bytes)
    CUresult in_cuOccupancyMaxPotentialBlockSize "cudadrv_in_cuOccupancyMaxPotentialBlockSize"(
        CUcontext context, int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of,
        size_t shared_bytes, int limit)
    CUresult in_cuGraphCreate "cudadrv_in_cuGraphCreate"(
        CUcontext context, CUgraph *graph, unsigned int flags)
    CUresult in_cuGraphDestroy "cudadrv_in_cuGraphDestroy"(CUcontext context, CUgraph graph)
    CUresult in_cuGraphConditionalHandleCreate "cudadrv_in_cuGraphConditionalHandleCreate"(
        CUcontext context, cuuint64_t *handle, CUgraph graph, CUcontext of, unsigned int value,
        unsigned int flags)
    CUresult in_cuGraphInstantiateWithFlags "cudadrv_in_cuGraphInstantiateWithFlags"(
        CUcontext context, CUgraphExec *executable, CUgraph graph, unsigned long long flags)
    CUresult in_cuGraphExecDestroy "cudadrv_in_cuGraphExecDestroy"(
        CUcontext context, CUgraphExec executable)
    CUresult in_cuGraphExecUpdate "cudadrv_in_cuGraphExecUpdate"(
        CUcontext context, CUgraphExec executable, CUgraph graph,
        CUgraphExecUpdateResultInfo *result)
    CUresult in_cuGraphAddEmptyNode "cudadrv_in_cuGraphAddEmptyNode"(
        CUcontext context, CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count)
    CUresult in_cuGraphAddMemcpyNode "cudadrv_in_cuGraphAddMemcpyNode"(
        CUcontext context, CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
        const CUDA_MEMCPY3D *copy, CUcontext of)
    CUresult in_cuGraphAddMemsetNode "cudadrv_in_cuGraphAddMemsetNode"(
        CUcontext context, CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
        const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext of)
    CUresult in_cuGraphAddKernelNode "cudadrv_in_cuGraphAddKernelNode"(
        CUcontext context, CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
        const CUDA_KERNEL_NODE_PARAMS *launch)
    CUresult in_cuGraphKernelNodeSetAttribute "cudadrv_in_cuGraphKernelNodeSetAttribute"(
        CUcontext context, CUgraphNode node, CUlaunchAttributeID attribute,
        const CUlaunchAttributeValue *value)
    CUresult in_cuGraphAddHostNode "cudadrv_in_cuGraphAddHostNode"(
        CUcontext context, CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
        const CUDA_HOST_NODE_PARAMS *call)
    CUresult in_cuGraphAddBatchMemOpNode "cudadrv_in_cuGraphAddBatchMemOpNode"(
        CUcontext context, CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
        const CUDA_BATCH_MEM_OP_NODE_PARAMS *numbers)
    CUresult in_cuGraphAddChildGraphNode "cudadrv_in_cuGraphAddChildGraphNode"(
        CUcontext context, CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
        CUgraph child)
    CUresult in_cuGraphDestroyNode "cudadrv_in_cuGraphDestroyNode"(
        CUcontext context, CUgraphNode node)
    CUresult in_cuGraphExecKernelNodeSetParams "cudadrv_in_cuGraphExecKernelNodeSetParams"(
        CUcontext context, CUgraphExec executable, CUgraphNode node,
        const CUDA_KERNEL_NODE_PARAMS *launch)
    CUresult in_cuGraphExecMemcpyNodeSetParams "cudadrv_in_cuGraphExecMemcpyNodeSetParams"(
        CUcontext context, CUgraphExec executable, CUgraphNode node, const CUDA_MEMCPY3D *copy,
        CUcontext of)
    CUresult in_cuGraphExecMemsetNodeSetParams "cudadrv_in_cuGraphExecMemsetNodeSetParams"(
        CUcontext context, CUgraphExec executable, CUgraphNode node,
        const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext of)
    CUresult in_cuGraphExecHostNodeSetParams "cudadrv_in_cuGraphExecHostNodeSetParams"(
        CUcontext context, CUgraphExec executable, CUgraphNode node,
        const CUDA_HOST_NODE_PARAMS *call)
    CUresult in_cuGraphExecBatchMemOpNodeSetParams "cudadrv_in_cuGraphExecBatchMemOpNodeSetParams"(
        CUcontext context, CUgraphExec executable, CUgraphNode node,
        const CUDA_BATCH_MEM_OP_NODE_PARAMS *numbers)
    CUresult in_cuGraphNodeSetEnabled "cudadrv_in_cuGraphNodeSetEnabled"(
        CUcontext context, CUgraphExec executable, CUgraphNode node, unsigned int enabled)

    bint is_current "cudadrv_is_current"(CUcontext wanted)
    CUresult enter_context "cudadrv_enter"(CUcontext wanted, bint *pushed)
    void leave_context "cudadrv_leave"(bint pushed)


# Functions that the software driver calls to get the names of operations and buffers. Its control.h
# declares the same struct as cudadrvSoftWords.
cdef struct Words:
    int (*operation)(unsigned long long tag, unsigned long long *label) noexcept nogil
    int (*describe_operation)(
        const unsigned long long *label, char *text, int size) noexcept nogil
    int (*describe_memory)(unsigned long long address, char *text, int size) noexcept nogil
    int (*describe_freed)(unsigned long long address, char *text, int size) noexcept nogil


cdef Words words
cdef const char *last_failure() noexcept nogil
cdef bint was_not_called() noexcept nogil


cdef inline bint has_answered(CUresult status, CUresult answer) noexcept nogil:
    """Whether a function of a context (`in_cu...`) returned `answer`, which is not an error here.

    The call that makes the context current can fail with the same status.
    """
    return status == answer and not was_not_called()
cdef unsigned long this_thread() noexcept nogil
cdef const void *missing_entry() noexcept


cdef extern from *:     # macros that Cython defines in every module
    bint likely(bint condition) noexcept nogil
    bint unlikely(bint condition) noexcept nogil


cdef extern from "cudadrv/calls.h":
    ctypedef object (*vectorcallfunc)(
        object called, PyObject *const *given, size_t nargsf, PyObject *names)
    vectorcallfunc exchange_call(object callable, vectorcallfunc function)
    vectorcallfunc exchange_method(type cls, object method, vectorcallfunc function) except NULL
    PyObject *const *items_of(tuple objects)
    tuple tuple_of(PyObject *const *objects, Py_ssize_t count)
    Py_ssize_t PyVectorcall_NARGS(size_t nargsf)
