/* A libcuda.so.1 that does nothing, successfully: with it only the library's own work is left.
 *
 *   cc -O2 -shared -fPIC null_driver.c -o libnull.so
 *   CUDADRV_DRIVER=./libnull.so python ...
 *
 * It has also `null_counted`, which calls a Python function many times and lets valgrind's callgrind
 * count, and write under a name, only what happens inside. */

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
static int version(int *value) { return *value = 12080, 0; }
static int context(uintptr_t *handle) { return *handle = 0x1000, 0; }
static int handle(uintptr_t *made) { return *made = last += 0x1000, 0; }
static int allocate(uintptr_t *made, size_t size) {
    *made = last;
    last += (size + 0xfff) & ~(size_t)0xfff;
    return 0;
}
static int device(int *made) { return *made = 0, 0; }
static int memory(size_t *bytes) { return *bytes = (size_t)64 << 30, 0; }
static int name(char *text) { return strcpy(text, "nothing"), 0; }
static int host(void **made, size_t size) { return *made = calloc(1, size), 0; }
static int unknown(void) { return 801; }
static int host_free(void *memory) { return free(memory), 0; }

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
        {"cuDeviceGetAttribute", one},
        {"cuDevicePrimaryCtxRetain", context},
        {"cuCtxGetCurrent", context},
        {"cuStreamCreateWithPriority", handle},
        {"cuEventCreate", handle},
        {"cuMemAlloc", allocate},
        {"cuMemAllocAsync", allocate},
        {"cuMemHostAlloc", host},
        {"cuMemFreeHost", host_free},
        {"cuModuleLoadDataEx", handle},
        {"cuModuleGetFunction", handle},
        {"cuFuncGetAttribute", one},
        {"cuFuncGetParamInfo", unknown},
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
