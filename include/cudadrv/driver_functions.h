/* The one list of driver functions that cudadrv calls.
 *
 * CUDADRV_FUNCTION(name, abi, parameters, arguments)
 *
 *   name        the function's name in cuda.h, without ABI suffix
 *   abi         the CUDA version whose signature is used (12080 is 12.8), which is also the first
 *               driver version that has it. Toolkits rename functions (`cuMemPrefetchAsync` means
 *               `_v2` since 13.0), so the loader asks for this version
 *   parameters  its parameters, with names
 *   arguments   the same names, to pass them on
 *
 * The call table, the loader and the wrappers all come from this list: include it with
 * CUDADRV_FUNCTION defined. To call a new function, add its line here and its declaration in
 * cudadrv/_driver.pxd. */

/* clang-format off */

/* library */
CUDADRV_FUNCTION(cuInit, 2000, (unsigned int flags), (flags))
CUDADRV_FUNCTION(cuDriverGetVersion, 2020, (int *version), (version))
CUDADRV_FUNCTION(cuGetErrorName, 6000, (CUresult status, const char **text), (status, text))
CUDADRV_FUNCTION(cuGetErrorString, 6000, (CUresult status, const char **text), (status, text))
CUDADRV_FUNCTION(cuLogsRegisterCallback, 12090, (void (*function)(void *, int, char *, size_t), void *data, void **handle), (function, data, handle))

/* devices */
CUDADRV_FUNCTION(cuDeviceGet, 2000, (CUdevice *device, int ordinal), (device, ordinal))
CUDADRV_FUNCTION(cuDeviceGetCount, 2000, (int *count), (count))
CUDADRV_FUNCTION(cuDeviceGetName, 2000, (char *name, int size, CUdevice device), (name, size, device))
CUDADRV_FUNCTION(cuDeviceGetUuid, 11040, (CUuuid *uuid, CUdevice device), (uuid, device))
CUDADRV_FUNCTION(cuDeviceTotalMem, 3020, (size_t *bytes, CUdevice device), (bytes, device))
CUDADRV_FUNCTION(cuDeviceGetAttribute, 2000, (int *value, CUdevice_attribute attribute, CUdevice device), (value, attribute, device))
CUDADRV_FUNCTION(cuDeviceGetPCIBusId, 4010, (char *text, int size, CUdevice device), (text, size, device))
CUDADRV_FUNCTION(cuDeviceCanAccessPeer, 4000, (int *can, CUdevice device, CUdevice peer), (can, device, peer))
CUDADRV_FUNCTION(cuDeviceGetP2PAttribute, 8000, (int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer), (value, attribute, device, peer))
CUDADRV_FUNCTION(cuDevicePrimaryCtxGetState, 7000, (CUdevice device, unsigned int *flags, int *active), (device, flags, active))
CUDADRV_FUNCTION(cuDevicePrimaryCtxRetain, 7000, (CUcontext *context, CUdevice device), (context, device))
CUDADRV_FUNCTION(cuDevicePrimaryCtxRelease, 11000, (CUdevice device), (device))

/* contexts */
CUDADRV_FUNCTION(cuCtxCreate, 3020, (CUcontext *context, unsigned int flags, CUdevice device), (context, flags, device))
CUDADRV_FUNCTION(cuCtxDestroy, 4000, (CUcontext context), (context))
CUDADRV_FUNCTION(cuCtxGetCurrent, 4000, (CUcontext *context), (context))
CUDADRV_FUNCTION(cuCtxSetCurrent, 4000, (CUcontext context), (context))
CUDADRV_FUNCTION(cuCtxPushCurrent, 4000, (CUcontext context), (context))
CUDADRV_FUNCTION(cuCtxPopCurrent, 4000, (CUcontext *context), (context))
CUDADRV_FUNCTION(cuCtxSynchronize, 2000, (), ())
CUDADRV_FUNCTION(cuCtxGetStreamPriorityRange, 5050, (int *least, int *greatest), (least, greatest))
CUDADRV_FUNCTION(cuCtxEnablePeerAccess, 4000, (CUcontext peer, unsigned int flags), (peer, flags))
CUDADRV_FUNCTION(cuCtxDisablePeerAccess, 4000, (CUcontext peer), (peer))
CUDADRV_FUNCTION(cuCtxGetLimit, 3010, (size_t *value, CUlimit limit), (value, limit))
CUDADRV_FUNCTION(cuCtxSetLimit, 3010, (CUlimit limit, size_t value), (limit, value))
CUDADRV_FUNCTION(cuProfilerStart, 4000, (), ())
CUDADRV_FUNCTION(cuProfilerStop, 4000, (), ())
CUDADRV_FUNCTION(cuThreadExchangeStreamCaptureMode, 10010, (CUstreamCaptureMode *mode), (mode))

/* streams */
CUDADRV_FUNCTION(cuStreamCreateWithPriority, 5050, (CUstream *stream, unsigned int flags, int priority), (stream, flags, priority))
CUDADRV_FUNCTION(cuStreamDestroy, 4000, (CUstream stream), (stream))
CUDADRV_FUNCTION(cuStreamSynchronize, 2000, (CUstream stream), (stream))
CUDADRV_FUNCTION(cuStreamQuery, 2000, (CUstream stream), (stream))
CUDADRV_FUNCTION(cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags))
CUDADRV_FUNCTION(cuStreamGetFlags, 5050, (CUstream stream, unsigned int *flags), (stream, flags))
CUDADRV_FUNCTION(cuStreamGetPriority, 5050, (CUstream stream, int *priority), (stream, priority))
CUDADRV_FUNCTION(cuStreamGetCtx, 9020, (CUstream stream, CUcontext *context), (stream, context))
CUDADRV_FUNCTION(cuStreamGetId, 12000, (CUstream stream, unsigned long long *id), (stream, id))
CUDADRV_FUNCTION(cuStreamIsCapturing, 10000, (CUstream stream, CUstreamCaptureStatus *status), (stream, status))
CUDADRV_FUNCTION(cuLaunchHostFunc, 10000, (CUstream stream, CUhostFn function, void *argument), (stream, function, argument))
CUDADRV_FUNCTION(cuStreamWaitValue64, 11070, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags), (stream, address, value, flags))
CUDADRV_FUNCTION(cuStreamWriteValue64, 11070, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags), (stream, address, value, flags))

/* events */
CUDADRV_FUNCTION(cuEventCreate, 2000, (CUevent *event, unsigned int flags), (event, flags))
CUDADRV_FUNCTION(cuEventDestroy, 4000, (CUevent event), (event))
CUDADRV_FUNCTION(cuEventRecord, 2000, (CUevent event, CUstream stream), (event, stream))
CUDADRV_FUNCTION(cuEventQuery, 2000, (CUevent event), (event))
CUDADRV_FUNCTION(cuEventSynchronize, 2000, (CUevent event), (event))
CUDADRV_FUNCTION(cuEventElapsedTime, 2000, (float *milliseconds, CUevent start, CUevent end), (milliseconds, start, end))

/* memory */
CUDADRV_FUNCTION(cuMemGetInfo, 3020, (size_t *available, size_t *total), (available, total))
CUDADRV_FUNCTION(cuMemAlloc, 3020, (CUdeviceptr *address, size_t bytes), (address, bytes))
CUDADRV_FUNCTION(cuMemFree, 3020, (CUdeviceptr address), (address))
CUDADRV_FUNCTION(cuMemAllocAsync, 11020, (CUdeviceptr *address, size_t bytes, CUstream stream), (address, bytes, stream))
CUDADRV_FUNCTION(cuMemFreeAsync, 11020, (CUdeviceptr address, CUstream stream), (address, stream))
CUDADRV_FUNCTION(cuMemAllocFromPoolAsync, 11020, (CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream), (address, bytes, pool, stream))
CUDADRV_FUNCTION(cuMemPoolCreate, 11020, (CUmemoryPool *pool, const CUmemPoolProps *properties), (pool, properties))
CUDADRV_FUNCTION(cuMemPoolDestroy, 11020, (CUmemoryPool pool), (pool))
CUDADRV_FUNCTION(cuMemPoolTrimTo, 11020, (CUmemoryPool pool, size_t keep), (pool, keep))
CUDADRV_FUNCTION(cuMemPoolSetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value), (pool, attribute, value))
CUDADRV_FUNCTION(cuMemPoolGetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value), (pool, attribute, value))
CUDADRV_FUNCTION(cuMemPoolSetAccess, 11020, (CUmemoryPool pool, const CUmemAccessDesc *changes, size_t count), (pool, changes, count))
CUDADRV_FUNCTION(cuMemPoolGetAccess, 11020, (CUmemAccess_flags *access, CUmemoryPool pool, CUmemLocation *place), (access, pool, place))
CUDADRV_FUNCTION(cuDeviceGetDefaultMemPool, 11020, (CUmemoryPool *pool, CUdevice device), (pool, device))
CUDADRV_FUNCTION(cuMemGetDefaultMemPool, 13000, (CUmemoryPool *pool, CUmemLocation *place, int type), (pool, place, type))
CUDADRV_FUNCTION(cuMemHostAlloc, 2020, (void **address, size_t bytes, unsigned int flags), (address, bytes, flags))
CUDADRV_FUNCTION(cuMemFreeHost, 2000, (void *address), (address))
CUDADRV_FUNCTION(cuMemHostRegister, 6050, (void *address, size_t bytes, unsigned int flags), (address, bytes, flags))
CUDADRV_FUNCTION(cuMemHostUnregister, 4000, (void *address), (address))
CUDADRV_FUNCTION(cuMemAllocManaged, 6000, (CUdeviceptr *address, size_t bytes, unsigned int flags), (address, bytes, flags))
CUDADRV_FUNCTION(cuMemPrefetchAsync, 8000, (CUdeviceptr address, size_t bytes, CUdevice place, CUstream stream), (address, bytes, place, stream))
CUDADRV_FUNCTION(cuMemPrefetchBatchAsync, 13000, (CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *places, size_t *firsts, size_t place_count, unsigned long long flags, CUstream stream), (addresses, sizes, count, places, firsts, place_count, flags, stream))
CUDADRV_FUNCTION(cuMemDiscardBatchAsync, 13000, (CUdeviceptr *addresses, size_t *sizes, size_t count, unsigned long long flags, CUstream stream), (addresses, sizes, count, flags, stream))
CUDADRV_FUNCTION(cuMemDiscardAndPrefetchBatchAsync, 13000, (CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *places, size_t *firsts, size_t place_count, unsigned long long flags, CUstream stream), (addresses, sizes, count, places, firsts, place_count, flags, stream))
CUDADRV_FUNCTION(cuStreamAttachMemAsync, 6000, (CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags), (stream, address, bytes, flags))
CUDADRV_FUNCTION(cuMemAdvise, 8000, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice place), (address, bytes, advice, place))
CUDADRV_FUNCTION(cuMemRangeGetAttribute, 8000, (void *value, size_t size, CUmem_range_attribute attribute, CUdeviceptr address, size_t bytes), (value, size, attribute, address, bytes))
CUDADRV_FUNCTION(cuMemGetAllocationGranularity, 10020, (size_t *granularity, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option), (granularity, properties, option))
CUDADRV_FUNCTION(cuMemAddressReserve, 10020, (CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags), (address, bytes, alignment, wanted, flags))
CUDADRV_FUNCTION(cuMemAddressFree, 10020, (CUdeviceptr address, size_t bytes), (address, bytes))
CUDADRV_FUNCTION(cuMemCreate, 10020, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags), (handle, bytes, properties, flags))
CUDADRV_FUNCTION(cuMemRelease, 10020, (CUmemGenericAllocationHandle handle), (handle))
CUDADRV_FUNCTION(cuMemMap, 10020, (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags), (address, bytes, offset, handle, flags))
CUDADRV_FUNCTION(cuMemUnmap, 10020, (CUdeviceptr address, size_t bytes), (address, bytes))
CUDADRV_FUNCTION(cuMemSetAccess, 10020, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *changes, size_t count), (address, bytes, changes, count))
CUDADRV_FUNCTION(cuMemGetAddressRange, 3020, (CUdeviceptr *first, size_t *bytes, CUdeviceptr address), (first, bytes, address))
CUDADRV_FUNCTION(cuPointerGetAttribute, 4000, (void *value, CUpointer_attribute attribute, CUdeviceptr address), (value, attribute, address))

/* other processes */
CUDADRV_FUNCTION(cuIpcGetMemHandle, 4010, (CUipcMemHandle *handle, CUdeviceptr address), (handle, address))
CUDADRV_FUNCTION(cuIpcOpenMemHandle, 11000, (CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags), (address, handle, flags))
CUDADRV_FUNCTION(cuIpcCloseMemHandle, 4010, (CUdeviceptr address), (address))
CUDADRV_FUNCTION(cuIpcGetEventHandle, 4010, (CUipcEventHandle *handle, CUevent event), (handle, event))
CUDADRV_FUNCTION(cuIpcOpenEventHandle, 4010, (CUevent *event, CUipcEventHandle handle), (event, handle))

/* copies */
CUDADRV_FUNCTION(cuMemcpyAsync, 4000, (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream), (target, source, bytes, stream))
CUDADRV_FUNCTION(cuMemcpyHtoDAsync, 3020, (CUdeviceptr target, const void *source, size_t bytes, CUstream stream), (target, source, bytes, stream))
CUDADRV_FUNCTION(cuMemcpyDtoHAsync, 3020, (void *target, CUdeviceptr source, size_t bytes, CUstream stream), (target, source, bytes, stream))
CUDADRV_FUNCTION(cuMemcpyDtoDAsync, 3020, (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream), (target, source, bytes, stream))
CUDADRV_FUNCTION(cuMemcpyPeerAsync, 4000, (CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context, size_t bytes, CUstream stream), (target, target_context, source, source_context, bytes, stream))
/* `attributes`: a CUmemcpyAttributes, which the headers before 12.8 lack */
CUDADRV_FUNCTION(cuMemcpyBatchAsync, 12080, (CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count, void *attributes, size_t *firsts, size_t attribute_count, size_t *failed, CUstream stream), (targets, sources, sizes, count, attributes, firsts, attribute_count, failed, stream))
CUDADRV_FUNCTION(cuMemcpy2DAsync, 3020, (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream))
CUDADRV_FUNCTION(cuMemcpy3DAsync, 3020, (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream))
CUDADRV_FUNCTION(cuMemcpy3DPeerAsync, 4000, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), (copy, stream))

/* arrays, textures, surfaces */
CUDADRV_FUNCTION(cuArray3DCreate, 3020, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *described), (array, described))
CUDADRV_FUNCTION(cuArrayDestroy, 2000, (CUarray array), (array))
CUDADRV_FUNCTION(cuMipmappedArrayCreate, 5000, (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *described, unsigned int levels), (array, described, levels))
CUDADRV_FUNCTION(cuMipmappedArrayGetLevel, 5000, (CUarray *level, CUmipmappedArray array, unsigned int number), (level, array, number))
CUDADRV_FUNCTION(cuMipmappedArrayDestroy, 5000, (CUmipmappedArray array), (array))
CUDADRV_FUNCTION(cuTexObjectCreate, 5000, (CUtexObject *texture, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *reading, const CUDA_RESOURCE_VIEW_DESC *view), (texture, resource, reading, view))
CUDADRV_FUNCTION(cuTexObjectDestroy, 5000, (CUtexObject texture), (texture))
CUDADRV_FUNCTION(cuSurfObjectCreate, 5000, (CUsurfObject *surface, const CUDA_RESOURCE_DESC *resource), (surface, resource))
CUDADRV_FUNCTION(cuSurfObjectDestroy, 5000, (CUsurfObject surface), (surface))
CUDADRV_FUNCTION(cuDeviceGetTexture1DLinearMaxWidth, 11010, (size_t *texels, CUarray_format format, unsigned int channels, CUdevice device), (texels, format, channels, device))

/* fills */
CUDADRV_FUNCTION(cuMemsetD8Async, 3020, (CUdeviceptr target, unsigned char value, size_t count, CUstream stream), (target, value, count, stream))
CUDADRV_FUNCTION(cuMemsetD16Async, 3020, (CUdeviceptr target, unsigned short value, size_t count, CUstream stream), (target, value, count, stream))
CUDADRV_FUNCTION(cuMemsetD32Async, 3020, (CUdeviceptr target, unsigned int value, size_t count, CUstream stream), (target, value, count, stream))
CUDADRV_FUNCTION(cuMemsetD2D8Async, 3020, (CUdeviceptr target, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream), (target, pitch, value, width, height, stream))
CUDADRV_FUNCTION(cuMemsetD2D16Async, 3020, (CUdeviceptr target, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream), (target, pitch, value, width, height, stream))
CUDADRV_FUNCTION(cuMemsetD2D32Async, 3020, (CUdeviceptr target, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream), (target, pitch, value, width, height, stream))

/* modules */
CUDADRV_FUNCTION(cuModuleLoadDataEx, 2010, (CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values), (module, image, count, options, values))
CUDADRV_FUNCTION(cuLinkCreate, 6050, (unsigned int count, CUjit_option *options, void **values, CUlinkState *link), (count, options, values, link))
CUDADRV_FUNCTION(cuLinkAddData, 6050, (CUlinkState link, CUjitInputType type, void *data, size_t nbytes, const char *name, unsigned int count, CUjit_option *options, void **values), (link, type, data, nbytes, name, count, options, values))
CUDADRV_FUNCTION(cuLinkComplete, 5050, (CUlinkState link, void **image, size_t *nbytes), (link, image, nbytes))
CUDADRV_FUNCTION(cuLinkDestroy, 5050, (CUlinkState link), (link))
CUDADRV_FUNCTION(cuModuleUnload, 2000, (CUmodule module), (module))
CUDADRV_FUNCTION(cuModuleGetFunction, 2000, (CUfunction *function, CUmodule module, const char *name), (function, module, name))
CUDADRV_FUNCTION(cuModuleGetGlobal, 3020, (CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name), (address, bytes, module, name))
CUDADRV_FUNCTION(cuModuleGetFunctionCount, 12040, (unsigned int *count, CUmodule module), (count, module))
CUDADRV_FUNCTION(cuModuleEnumerateFunctions, 12040, (CUfunction *functions, unsigned int count, CUmodule module), (functions, count, module))

/* kernels */
CUDADRV_FUNCTION(cuFuncGetName, 12030, (const char **name, CUfunction function), (name, function))
CUDADRV_FUNCTION(cuFuncGetAttribute, 2020, (int *value, CUfunction_attribute attribute, CUfunction function), (value, attribute, function))
CUDADRV_FUNCTION(cuFuncSetAttribute, 9000, (CUfunction function, CUfunction_attribute attribute, int value), (function, attribute, value))
CUDADRV_FUNCTION(cuFuncSetCacheConfig, 3000, (CUfunction function, CUfunc_cache config), (function, config))
CUDADRV_FUNCTION(cuFuncGetParamInfo, 12040, (CUfunction function, size_t index, size_t *offset, size_t *bytes), (function, index, offset, bytes))
CUDADRV_FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, (int *blocks, CUfunction function, int block_size, size_t shared_bytes), (blocks, function, block_size, shared_bytes))
CUDADRV_FUNCTION(cuOccupancyMaxPotentialBlockSize, 6050, (int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared_bytes, int limit), (grid, block, function, shared_of, shared_bytes, limit))
CUDADRV_FUNCTION(cuLaunchKernel, 4000, (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters, void **extra), (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra))
CUDADRV_FUNCTION(cuLaunchKernelEx, 11060, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra), (config, function, parameters, extra))

/* graphs */
CUDADRV_FUNCTION(cuStreamBeginCapture, 10010, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
CUDADRV_FUNCTION(cuStreamEndCapture, 10000, (CUstream stream, CUgraph *graph), (stream, graph))
CUDADRV_FUNCTION(cuStreamBeginCaptureToGraph, 12030, (CUstream stream, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count, CUstreamCaptureMode mode), (stream, graph, after, edges, count, mode))
CUDADRV_FUNCTION(cuStreamGetCaptureInfo, 11030, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *number, CUgraph *graph, const CUgraphNode **last, size_t *count), (stream, status, number, graph, last, count))
CUDADRV_FUNCTION(cuGraphGetNodes, 10000, (CUgraph graph, CUgraphNode *nodes, size_t *count), (graph, nodes, count))
CUDADRV_FUNCTION(cuGraphNodeGetType, 10000, (CUgraphNode node, CUgraphNodeType *type), (node, type))
CUDADRV_FUNCTION(cuGraphNodeGetDependencies, 10000, (CUgraphNode node, CUgraphNode *nodes, size_t *count), (node, nodes, count))
CUDADRV_FUNCTION(cuGraphCreate, 10000, (CUgraph *graph, unsigned int flags), (graph, flags))
CUDADRV_FUNCTION(cuGraphDestroy, 10000, (CUgraph graph), (graph))
CUDADRV_FUNCTION(cuGraphAddEmptyNode, 10000, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count), (node, graph, after, count))
CUDADRV_FUNCTION(cuGraphAddMemcpyNode, 10000, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_MEMCPY3D *copy, CUcontext context), (node, graph, after, count, copy, context))
CUDADRV_FUNCTION(cuGraphAddMemsetNode, 10000, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context), (node, graph, after, count, fill, context))
CUDADRV_FUNCTION(cuGraphAddKernelNode, 12000, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_KERNEL_NODE_PARAMS *launch), (node, graph, after, count, launch))
CUDADRV_FUNCTION(cuGraphKernelNodeSetAttribute, 11000, (CUgraphNode node, CUlaunchAttributeID attribute, const CUlaunchAttributeValue *value), (node, attribute, value))
CUDADRV_FUNCTION(cuGraphAddHostNode, 10000, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_HOST_NODE_PARAMS *call), (node, graph, after, count, call))
CUDADRV_FUNCTION(cuGraphAddBatchMemOpNode, 11070, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *numbers), (node, graph, after, count, numbers))
CUDADRV_FUNCTION(cuGraphHostNodeGetParams, 10000, (CUgraphNode node, CUDA_HOST_NODE_PARAMS *call), (node, call))
CUDADRV_FUNCTION(cuGraphHostNodeSetParams, 10000, (CUgraphNode node, const CUDA_HOST_NODE_PARAMS *call), (node, call))
CUDADRV_FUNCTION(cuGraphChildGraphNodeGetGraph, 10000, (CUgraphNode node, CUgraph *graph), (node, graph))
CUDADRV_FUNCTION(cuGraphAddChildGraphNode, 10000, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUgraph child), (node, graph, after, count, child))
CUDADRV_FUNCTION(cuGraphAddNode, 12030, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count, void *parameters), (node, graph, after, edges, count, parameters))
CUDADRV_FUNCTION(cuGraphDestroyNode, 10000, (CUgraphNode node), (node))
CUDADRV_FUNCTION(cuGraphConditionalHandleCreate, 12030, (cuuint64_t *handle, CUgraph graph, CUcontext context, unsigned int value, unsigned int flags), (handle, graph, context, value, flags))
CUDADRV_FUNCTION(cuGraphInstantiateWithFlags, 11040, (CUgraphExec *executable, CUgraph graph, unsigned long long flags), (executable, graph, flags))
CUDADRV_FUNCTION(cuGraphLaunch, 10000, (CUgraphExec executable, CUstream stream), (executable, stream))
CUDADRV_FUNCTION(cuGraphUpload, 11010, (CUgraphExec executable, CUstream stream), (executable, stream))
CUDADRV_FUNCTION(cuGraphExecDestroy, 10000, (CUgraphExec executable), (executable))
CUDADRV_FUNCTION(cuGraphExecUpdate, 12000, (CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo *result), (executable, graph, result))
CUDADRV_FUNCTION(cuGraphExecKernelNodeSetParams, 12000, (CUgraphExec executable, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *launch), (executable, node, launch))
CUDADRV_FUNCTION(cuGraphExecMemcpyNodeSetParams, 10020, (CUgraphExec executable, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context), (executable, node, copy, context))
CUDADRV_FUNCTION(cuGraphExecMemsetNodeSetParams, 10020, (CUgraphExec executable, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context), (executable, node, fill, context))
CUDADRV_FUNCTION(cuGraphExecHostNodeSetParams, 10020, (CUgraphExec executable, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *call), (executable, node, call))
CUDADRV_FUNCTION(cuGraphExecBatchMemOpNodeSetParams, 11070, (CUgraphExec executable, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *numbers), (executable, node, numbers))
CUDADRV_FUNCTION(cuGraphNodeSetEnabled, 11060, (CUgraphExec executable, CUgraphNode node, unsigned int enabled), (executable, node, enabled))

/* clang-format on */
