/* The bare driver calls, timed from C: what no binding can be faster than. */

#include <cuda.h>
#include <dlfcn.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* What the calls are about. benchmarks/floor.py has the same structure. */
typedef struct things {
    CUdeviceptr device, other;
    void *host;
    size_t nbytes, large; /* of copies and fills; of allocations */
    CUstream stream;
    CUevent event;
    CUfunction kernel;
} things;

#define CALLS(CALL)                                                                                \
    CALL(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                      \
    CALL(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                            \
    CALL(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                       \
    CALL(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                          \
    CALL(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,  \
                          unsigned, CUstream, void **, void **))                                   \
    CALL(cuEventRecord, (CUevent, CUstream))                                                       \
    CALL(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                         \
    CALL(cuStreamSynchronize, (CUstream))                                                          \
    CALL(cuMemHostAlloc, (void **, size_t, unsigned))                                              \
    CALL(cuMemFreeHost, (void *))                                                                  \
    CALL(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                       \
    CALL(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                  \
    CALL(cuModuleLoadData, (CUmodule *, const void *))                                             \
    CALL(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))

#define DECLARE(name, parameters) static CUresult(*call_##name) parameters;
CALLS(DECLARE)

int floor_open(const char *library) {
    void *driver = dlopen(library, RTLD_NOW);
    if (!driver) {
        return 0;
    }
#define FIND(name, parameters) call_##name = (CUresult(*) parameters)dlsym(driver, #name);
    CALLS(FIND)
    return 1;
}

/* In the current context. */
CUresult floor_load(const char *image, const char *name, CUfunction *kernel) {
    CUmodule module;
    CUresult status = call_cuModuleLoadData(&module, image);
    return status ? status : call_cuModuleGetFunction(kernel, module, name);
}

static CUresult call(const char *row, const things *t) {
    CUdeviceptr device;
    CUresult status;
    void *host;
    if (!strcmp(row, "h2d")) {
        return call_cuMemcpyHtoDAsync_v2(t->device, t->host, t->nbytes, t->stream);
    }
    if (!strcmp(row, "d2h")) {
        return call_cuMemcpyDtoHAsync_v2(t->host, t->device, t->nbytes, t->stream);
    }
    if (!strcmp(row, "d2d")) {
        return call_cuMemcpyDtoDAsync_v2(t->other, t->device, t->nbytes, t->stream);
    }
    if (!strcmp(row, "fill")) {
        return call_cuMemsetD8Async(t->device, 0, t->nbytes, t->stream);
    }
    if (!strcmp(row, "launch")) {
        int count = 32;
        float factor = 2;
        CUdeviceptr x = t->device, y = t->other;
        void *arguments[] = {&count, &factor, &x, &y};
        return call_cuLaunchKernel(t->kernel, 1, 1, 1, 32, 1, 1, 0, t->stream, arguments, NULL);
    }
    if (!strcmp(row, "record")) {
        return call_cuEventRecord(t->event, t->stream);
    }
    if (!strcmp(row, "wait")) {
        return call_cuStreamWaitEvent(t->stream, t->event, 0);
    }
    if (!strcmp(row, "synchronize")) {
        return call_cuStreamSynchronize(t->stream);
    }
    if (!strcmp(row, "h2d and wait")) {
        status = call_cuMemcpyHtoDAsync_v2(t->device, t->host, t->nbytes, t->stream);
        return status ? status : call_cuStreamSynchronize(t->stream);
    }
    if (!strcmp(row, "locked memory")) {
        status = call_cuMemHostAlloc(&host, t->large, CU_MEMHOSTALLOC_PORTABLE);
        return status ? status : call_cuMemFreeHost(host);
    }
    if (!strcmp(row, "device memory")) {
        status = call_cuMemAllocAsync(&device, t->large, t->stream);
        return status ? status : call_cuMemFreeAsync(device, t->stream);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Nanoseconds a call, over `count` calls of a row; below 0 on an error. */
double floor_call(const char *row, const things *t, int count) {
    CUresult status = CUDA_SUCCESS;
    double start = now();
    for (int i = 0; i < count && status == CUDA_SUCCESS; i++) {
        status = call(row, t);
    }
    double taken = (now() - start) / count;
    call_cuStreamSynchronize(t->stream);
    return status == CUDA_SUCCESS ? taken : -(double)status;
}
