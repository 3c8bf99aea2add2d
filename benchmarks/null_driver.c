/* A libcuda.so.1 that does almost nothing and returns success: only the library's work is left.
 *
 *   cc -O2 -shared -fPIC null_driver.c -o libnull.so
 *   CUDADRV_DRIVER=./libnull.so python ...
 *
 * With -DCODE_KIB=48 each call that queues something first runs 48 KiB of code, which only evicts
 * other code from the processor's caches, as the code of a real driver does.
 *
 * The function `null_counted` calls a Python function many times. valgrind's callgrind counts only
 * these calls, and writes the counts under a name. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_DUMP_STATS_AT(name)
#endif

static uintptr_t last = 0x10000; /* no two handles, and no two addresses in use, are alike */

static int nothing(void) { return 0; }
static int one(int *value) { return *value = 1, 0; }
static int many(int *value) { return *value = 1024, 0; }
/* Kernels require no clusters: those attributes, from number 10 on, are 0. */
static int of_kernel(int *value, int attribute) { return *value = attribute < 10 ? 1024 : 0, 0; }
static int version(int *value) { return *value = 12080, 0; }
static int context(uintptr_t *handle) { return *handle = 0x1000, 0; }
static int handle(uintptr_t *made) { return *made = last += 0x1000, 0; }
static int allocate(uintptr_t *made, size_t size) {
    *made = last;
    last += (size + 0xfff) & ~(size_t)0xfff;
    return 0;
}
static int device(int *made) { return *made = 0, 0; }
static int context_of(uintptr_t stream, uintptr_t *made) { return (void)stream, context(made); }
static int identity(uint64_t stream, uint64_t *made) { return *made = stream, 0; }
static int memory(size_t *bytes) { return *bytes = (size_t)64 << 30, 0; }
static int name(char *text) { return strcpy(text, "nothing"), 0; }
static int host(void **made, size_t size) { return *made = calloc(1, size), 0; }
static int unknown(void) { return 801; }
static int host_free(void *memory) { return free(memory), 0; }

#ifdef CODE_KIB
static int queue(void) {
    __asm__ volatile(".rept %c0\n .byte 0x66,0x0f,0x1f,0x84,0,0,0,0,0\n .endr" /* 9 bytes */
                     :
                     : "i"(CODE_KIB * 1024 / 9));
    return 0;
}
#else
static int queue(void) { return 0; }
#endif

/* A file that includes this one can define copies that access the host's memory. */
#ifndef COPY_TO_HOST
#define COPY_TO_HOST queue
#define COPY_FROM_HOST queue
#endif

/* The functions are exported, because the bare calls of floor.c look them up by name. */
#define EXPORT(name)                                                                               \
    int name(void) { return queue(); }
EXPORT(cuMemcpyHtoDAsync_v2)
EXPORT(cuMemcpyDtoHAsync_v2)
EXPORT(cuMemcpyDtoDAsync_v2)
EXPORT(cuMemsetD8Async)
EXPORT(cuLaunchKernel)
EXPORT(cuEventRecord)
EXPORT(cuStreamWaitEvent)
int cuStreamSynchronize(void) { return 0; }
int cuMemHostAlloc(void **made, size_t size) { return host(made, size); }
int cuMemFreeHost(void *memory) { return host_free(memory); }
int cuMemAllocAsync(uintptr_t *made, size_t size) { return allocate(made, size); }
int cuMemFreeAsync(void) { return 0; }
int cuModuleLoadData(uintptr_t *made) { return handle(made); }
int cuModuleGetFunction(uintptr_t *made) { return handle(made); }

int cuGetProcAddress_v2(const char *wanted, void **address, int abi, uint64_t flags, int *found) {
    static const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"cuDriverGetVersion", version},
        {"cuDeviceGetCount", one},
        {"cuDeviceGet", device},
        {"cuDeviceGetName", name},
        {"cuDeviceTotalMem", memory},
        {"cuDeviceGetAttribute", many},
        {"cuDevicePrimaryCtxRetain", context},
        {"cuCtxGetCurrent", context},
        {"cuStreamCreateWithPriority", handle},
        {"cuStreamGetCtx", context_of},
        {"cuStreamGetId", identity},
        {"cuEventCreate", handle},
        {"cuMemAlloc", allocate},
        {"cuMemAllocAsync", allocate},
        {"cuMemHostAlloc", host},
        {"cuMemFreeHost", host_free},
        {"cuModuleLoadDataEx", handle},
        {"cuModuleGetFunction", handle},
        {"cuFuncGetAttribute", of_kernel},
        {"cuFuncGetParamInfo", unknown},
        {"cuMemcpyHtoDAsync", COPY_FROM_HOST},
        {"cuMemcpyDtoHAsync", COPY_TO_HOST},
        {"cuMemcpyDtoDAsync", queue},
        {"cuMemsetD8Async", queue},
        {"cuLaunchKernelEx", queue},
        {"cuEventRecord", queue},
        {"cuStreamWaitEvent", queue},
        {"cuGraphCreate", handle},
        {"cuGraphAddKernelNode", handle},
        {"cuGraphInstantiateWithFlags", handle},
        {"cuGraphLaunch", queue},
    };
    (void)abi, (void)flags, (void)found;
    *address = nothing;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(wanted, functions[i].name) == 0) {
            *address = functions[i].function;
        }
    }
    return 0;
}

extern void *PyObject_CallNoArgs(void *function);
extern void Py_DecRef(void *object);

void null_counted(void *function, int calls, const char *name) {
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    while (calls-- > 0) {
        Py_DecRef(PyObject_CallNoArgs(function));
    }
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_STOP_INSTRUMENTATION;
}
