#pragma once

// Includes cuda.h so that it declares every ABI version of each function and renames none. The
// driver defines each function under exactly its exported name, and the compiler checks the
// definition against the prototype.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

// Declarations that the oldest supported cuda.h lacks. Only their binary interface matters, so
// structs and enumerations have no members here.
#if CUDA_VERSION < 12030
struct CUgraphEdgeData;
typedef cuuint64_t CUgraphConditionalHandle;
#endif
#if CUDA_VERSION < 12010
enum CUcoredumpSettings : int;
#endif
#if CUDA_VERSION < 12020
struct CUgraphNodeParams;
#endif
#if CUDA_VERSION < 12050
struct CUctxCreateParams;
#endif
#if CUDA_VERSION < 12040
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
struct CUdevResource;
enum CUdevResourceType : int;
enum CUfunctionLoadingState : int;
#endif
#if CUDA_VERSION < 12080
struct CUmemcpyAttributes;
struct CUDA_MEMCPY3D_BATCH_OP;
#endif
#if CUDA_VERSION < 12090
typedef struct CUlogsCallbackEntry_st *CUlogsCallbackHandle;
typedef unsigned int CUlogIterator;
enum CUlogLevel : int { CU_LOG_LEVEL_ERROR = 0, CU_LOG_LEVEL_WARNING = 1 };
typedef void(CUDA_CB *CUlogsCallback)(void *data, CUlogLevel level, char *message, size_t length);
#endif
#if CUDA_VERSION < 13000
enum CUatomicOperation : int;
#endif
#if CUDA_VERSION < 13010
struct CU_DEV_SM_RESOURCE_GROUP_PARAMS;
#endif
extern "C" {
CUresult CUDAAPI cuDeviceGetHostAtomicCapabilities(unsigned int *, const CUatomicOperation *,
                                                   unsigned int, CUdevice);
CUresult CUDAAPI cuCoredumpGetAttribute(CUcoredumpSettings, void *, size_t *);
CUresult CUDAAPI cuCoredumpGetAttributeGlobal(CUcoredumpSettings, void *, size_t *);
CUresult CUDAAPI cuCoredumpSetAttribute(CUcoredumpSettings, void *, size_t *);
CUresult CUDAAPI cuCoredumpSetAttributeGlobal(CUcoredumpSettings, void *, size_t *);
CUresult CUDAAPI cuCtxCreate_v4(CUcontext *, CUctxCreateParams *, unsigned int, CUdevice);
CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice *, CUcontext);
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext);
CUresult CUDAAPI cuCtxRecordEvent(CUcontext, CUevent);
CUresult CUDAAPI cuCtxSetFlags(unsigned int);
CUresult CUDAAPI cuCtxWaitEvent(CUcontext, CUevent);
CUresult CUDAAPI cuEventElapsedTime_v2(float *, CUevent, CUevent);
CUresult CUDAAPI cuFuncGetName(const char **, CUfunction);
CUresult CUDAAPI cuFuncGetParamCount(CUfunction, size_t *);
CUresult CUDAAPI cuFuncGetParamInfo(CUfunction, size_t, size_t *, size_t *);
CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState *, CUfunction);
CUresult CUDAAPI cuFuncLoad(CUfunction);
CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph, const CUgraphNode *, const CUgraphNode *,
                                           const CUgraphEdgeData *, size_t);
CUresult CUDAAPI cuGraphAddNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t,
                                CUgraphNodeParams *);
CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *,
                                   const CUgraphEdgeData *, size_t, CUgraphNodeParams *);
CUresult CUDAAPI cuGraphConditionalHandleCreate(CUgraphConditionalHandle *, CUgraph, CUcontext,
                                                unsigned int, unsigned int);
CUresult CUDAAPI cuGraphExecGetId(CUgraphExec, unsigned int *);
CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec, CUgraphNode, CUgraphNodeParams *);
CUresult CUDAAPI cuGraphGetId(CUgraph, unsigned int *);
CUresult CUDAAPI cuGraphNodeGetContainingGraph(CUgraphNode, CUgraph *);
CUresult CUDAAPI cuGraphNodeGetLocalId(CUgraphNode, unsigned int *);
CUresult CUDAAPI cuGraphNodeGetToolsId(CUgraphNode, unsigned long long *);
CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph, CUgraphNode *, CUgraphNode *, CUgraphEdgeData *,
                                    size_t *);
CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode, CUgraphNode *, CUgraphEdgeData *,
                                               size_t *);
CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(CUgraphNode, CUgraphNode *, CUgraphEdgeData *,
                                                 size_t *);
CUresult CUDAAPI cuGraphNodeGetParams(CUgraphNode, CUgraphNodeParams *);
CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode, CUgraphNodeParams *);
CUresult CUDAAPI cuGraphRemoveDependencies_v2(CUgraph, const CUgraphNode *, const CUgraphNode *,
                                              const CUgraphEdgeData *, size_t);
CUresult CUDAAPI cuKernelGetLibrary(CUlibrary *, CUkernel);
CUresult CUDAAPI cuKernelGetName(const char **, CUkernel);
CUresult CUDAAPI cuKernelGetParamCount(CUkernel, size_t *);
CUresult CUDAAPI cuKernelGetParamInfo(CUkernel, size_t, size_t *, size_t *);
CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel *, unsigned int, CUlibrary);
CUresult CUDAAPI cuLibraryGetKernelCount(unsigned int *, CUlibrary);
CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr, size_t, CUmem_advise, CUmemLocation);
CUresult CUDAAPI cuMemPrefetchAsync_v2(CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream);
CUresult CUDAAPI cuMemPrefetchAsync_v2_ptsz(CUdeviceptr, size_t, CUmemLocation, unsigned int,
                                            CUstream);
CUresult CUDAAPI cuMemPrefetchBatchAsync(CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *,
                                         size_t, unsigned long long, CUstream);
CUresult CUDAAPI cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *, size_t *, size_t, CUmemLocation *,
                                              size_t *, size_t, unsigned long long, CUstream);
CUresult CUDAAPI cuMemDiscardBatchAsync(CUdeviceptr *, size_t *, size_t, unsigned long long,
                                        CUstream);
CUresult CUDAAPI cuMemDiscardBatchAsync_ptsz(CUdeviceptr *, size_t *, size_t, unsigned long long,
                                             CUstream);
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *, size_t *, size_t, CUmemLocation *,
                                                   size_t *, size_t, unsigned long long, CUstream);
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr *, size_t *, size_t,
                                                        CUmemLocation *, size_t *, size_t,
                                                        unsigned long long, CUstream);
CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                                    CUmemcpyAttributes *, size_t *, size_t, size_t *, CUstream);
CUresult CUDAAPI cuMemcpyBatchAsync_ptsz(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                                         CUmemcpyAttributes *, size_t *, size_t, size_t *,
                                         CUstream);
CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                                       CUmemcpyAttributes *, size_t *, size_t, CUstream);
CUresult CUDAAPI cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                                            CUmemcpyAttributes *, size_t *, size_t, CUstream);
CUresult CUDAAPI cuMemcpy3DBatchAsync(size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *,
                                      unsigned long long, CUstream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_ptsz(size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *,
                                           unsigned long long, CUstream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2(size_t, CUDA_MEMCPY3D_BATCH_OP *, unsigned long long,
                                         CUstream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2_ptsz(size_t, CUDA_MEMCPY3D_BATCH_OP *, unsigned long long,
                                              CUstream);
CUresult CUDAAPI cuMemcpyWithAttributesAsync(CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes *,
                                             CUstream);
CUresult CUDAAPI cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr, CUdeviceptr, size_t,
                                                  CUmemcpyAttributes *, CUstream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *, unsigned long long,
                                               CUstream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *, unsigned long long,
                                                    CUstream);
CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext *, CUgreenCtx);
CUresult CUDAAPI cuCtxGetDevResource(CUcontext, CUdevResource *, CUdevResourceType);
CUresult CUDAAPI cuDevResourceGenerateDesc(CUdevResourceDesc *, CUdevResource *, unsigned int);
CUresult CUDAAPI cuDevSmResourceSplit(CUdevResource *, unsigned int, const CUdevResource *,
                                      CUdevResource *, unsigned int,
                                      CU_DEV_SM_RESOURCE_GROUP_PARAMS *);
CUresult CUDAAPI cuDevSmResourceSplitByCount(CUdevResource *, unsigned int *, const CUdevResource *,
                                             CUdevResource *, unsigned int, unsigned int);
CUresult CUDAAPI cuDeviceGetDevResource(CUdevice, CUdevResource *, CUdevResourceType);
CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned int);
CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx);
CUresult CUDAAPI cuGreenCtxGetDevResource(CUgreenCtx, CUdevResource *, CUdevResourceType);
CUresult CUDAAPI cuGreenCtxGetId(CUgreenCtx, unsigned long long *);
CUresult CUDAAPI cuGreenCtxRecordEvent(CUgreenCtx, CUevent);
CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream *, CUgreenCtx, unsigned int, int);
CUresult CUDAAPI cuGreenCtxWaitEvent(CUgreenCtx, CUevent);
CUresult CUDAAPI cuStreamGetDevResource(CUstream, CUdevResource *, CUdevResourceType);
CUresult CUDAAPI cuStreamGetDevResource_ptsz(CUstream, CUdevResource *, CUdevResourceType);
CUresult CUDAAPI cuLogsCurrent(CUlogIterator *, unsigned int);
CUresult CUDAAPI cuLogsDumpToFile(CUlogIterator *, const char *, unsigned int);
CUresult CUDAAPI cuLogsDumpToMemory(CUlogIterator *, char *, size_t *, unsigned int);
CUresult CUDAAPI cuLogsRegisterCallback(CUlogsCallback, void *, CUlogsCallbackHandle *);
CUresult CUDAAPI cuLogsUnregisterCallback(CUlogsCallbackHandle);
CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool *, CUmemLocation *, CUmemAllocationType);
CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool *, CUmemLocation *, CUmemAllocationType);
CUresult CUDAAPI cuMemSetMemPool(CUmemLocation *, CUmemAllocationType, CUmemoryPool);
CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction *, unsigned int, CUmodule);
CUresult CUDAAPI cuModuleGetFunctionCount(unsigned int *, CUmodule);
CUresult CUDAAPI cuProfilerStart(void); // declared in cudaProfiler.h, not in cuda.h
CUresult CUDAAPI cuProfilerStop(void);
CUresult CUDAAPI cuStreamGetCtx_v2(CUstream, CUcontext *, CUgreenCtx *);
CUresult CUDAAPI cuStreamGetCtx_v2_ptsz(CUstream, CUcontext *, CUgreenCtx *);
CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode *,
                                             const CUgraphEdgeData *, size_t, CUstreamCaptureMode);
CUresult CUDAAPI cuStreamBeginCaptureToGraph_ptsz(CUstream, CUgraph, const CUgraphNode *,
                                                  const CUgraphEdgeData *, size_t,
                                                  CUstreamCaptureMode);
CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream, CUstreamCaptureStatus *, cuuint64_t *,
                                           CUgraph *, const CUgraphNode **,
                                           const CUgraphEdgeData **, size_t *);
CUresult CUDAAPI cuStreamGetCaptureInfo_v3_ptsz(CUstream, CUstreamCaptureStatus *, cuuint64_t *,
                                                CUgraph *, const CUgraphNode **,
                                                const CUgraphEdgeData **, size_t *);
CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2(CUstream, CUgraphNode *,
                                                      const CUgraphEdgeData *, size_t,
                                                      unsigned int);
CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream, CUgraphNode *,
                                                           const CUgraphEdgeData *, size_t,
                                                           unsigned int);
CUresult CUDAAPI cuStreamGetGreenCtx(CUstream, CUgreenCtx *);
CUresult CUDAAPI cuStreamGetDevice(CUstream, CUdevice *);
CUresult CUDAAPI cuStreamGetDevice_ptsz(CUstream, CUdevice *);
}

#define SOFT_EXPORT extern "C" __attribute__((visibility("default")))
