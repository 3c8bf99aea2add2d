/* The bare driver calls, timed from C: no binding can be faster. They are also available as
 * functions for Python, which ignore their arguments and release the GIL during the call: they take
 * the time of an extension module that does nothing else. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cuda.h>
#include <dlfcn.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* The arguments of the calls. benchmarks/floor.py has the same structure. */
typedef struct things {
    CUdeviceptr device, other;
    void *host;
    size_t nbytes, large; /* bytes of copies and fills; bytes of allocations */
    /* For many copies: `large` bytes each. For a copy with two dimensions, rows of `many` have this
     * pitch. */
    CUdeviceptr many;
    char *many_host;
    size_t pitch;
    CUstream stream;
    CUevent event;
    CUfunction kernel;
    CUgraphExec graph; /* made by floor_graph */
    CUgraph template;  /* the graph that `graph` was instantiated from */
    CUgraphNode node;  /* the first node of `template` */
} things;

#define CALLS(CALL)                                                                                \
    CALL(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                      \
    CALL(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                            \
    CALL(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                       \
    CALL(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *, CUstream))                                    \
    CALL(cuMemcpyBatchAsync, (CUdeviceptr *, CUdeviceptr *, size_t *, size_t, void *, size_t *,    \
                              size_t, size_t *, CUstream))                                         \
    CALL(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                          \
    CALL(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,  \
                          unsigned, CUstream, void **, void **))                                   \
    CALL(cuEventRecord, (CUevent, CUstream))                                                       \
    CALL(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                         \
    CALL(cuStreamSynchronize, (CUstream))                                                          \
    CALL(cuLaunchHostFunc, (CUstream, CUhostFn, void *))                                           \
    CALL(cuMemHostAlloc, (void **, size_t, unsigned))                                              \
    CALL(cuMemFreeHost, (void *))                                                                  \
    CALL(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                       \
    CALL(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                  \
    CALL(cuModuleLoadData, (CUmodule *, const void *))                                             \
    CALL(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                              \
    CALL(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))                                 \
    CALL(cuStreamEndCapture, (CUstream, CUgraph *))                                                \
    CALL(cuGraphGetNodes, (CUgraph, CUgraphNode *, size_t *))                                      \
    CALL(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                \
    CALL(cuGraphLaunch, (CUgraphExec, CUstream))                                                   \
    CALL(cuGraphExecUpdate_v2, (CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *))              \
    CALL(cuGraphExecKernelNodeSetParams_v2,                                                        \
         (CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *))

#define DECLARE(name, parameters) static CUresult(*call_##name) parameters;
CALLS(DECLARE)

/* In place of a function that the driver does not have. */
static CUresult missing(void) { return CUDA_ERROR_NOT_SUPPORTED; }

static void *function_of(void *driver, const char *name) {
    void *function = dlsym(driver, name);
    return function ? function : (void *)missing;
}

int floor_open(const char *library) {
    void *driver = dlopen(library, RTLD_NOW);
    if (!driver) {
        return 0;
    }
#define FIND(name, parameters) call_##name = (CUresult(*) parameters)function_of(driver, #name);
    CALLS(FIND)
    return 1;
}

/* Loads an image in the current context, and finds a kernel in it. */
CUresult floor_load(const char *image, const char *name, CUfunction *kernel) {
    CUmodule module;
    CUresult status = call_cuModuleLoadData(&module, image);
    return status ? status : call_cuModuleGetFunction(kernel, module, name);
}

/* Each row has a function, which is chosen before the clock starts. */
typedef CUresult row_function(const things *t);

static CUresult h2d(const things *t) {
    return call_cuMemcpyHtoDAsync_v2(t->device, t->host, t->nbytes, t->stream);
}

static CUresult d2h(const things *t) {
    return call_cuMemcpyDtoHAsync_v2(t->host, t->device, t->nbytes, t->stream);
}

static CUresult d2d(const things *t) {
    return call_cuMemcpyDtoDAsync_v2(t->other, t->device, t->nbytes, t->stream);
}

enum { BOX_ROWS = 16, BOX_WIDTH = 256, MOST_COPIES = 256 };

/* From the left half of the rows to the right half. */
static CUresult box(const things *t) {
    CUDA_MEMCPY2D copy = {0};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = t->many;
    copy.dstDevice = t->many + t->pitch / 2;
    copy.srcPitch = copy.dstPitch = t->pitch;
    copy.WidthInBytes = BOX_WIDTH;
    copy.Height = BOX_ROWS;
    return call_cuMemcpy2DAsync_v2(&copy, t->stream);
}

static CUresult singles(const things *t, int count) {
    CUresult status = CUDA_SUCCESS;
    for (int i = 0; i < count && status == CUDA_SUCCESS; i++) {
        const size_t at = i * t->nbytes;
        status = call_cuMemcpyHtoDAsync_v2(t->many + at, t->many_host + at, t->nbytes, t->stream);
    }
    return status;
}

/* The headers before CUDA 12.8 lack CUmemcpyAttributes. The first number is the order of access:
 * that of the stream. */
static CUresult batch(const things *t, int count) {
    CUdeviceptr targets[MOST_COPIES], sources[MOST_COPIES];
    size_t sizes[MOST_COPIES], first = 0, failed;
    int attributes[6] = {1};
    for (int i = 0; i < count; i++) {
        targets[i] = t->many + i * t->nbytes;
        sources[i] = (CUdeviceptr)(t->many_host + i * t->nbytes);
        sizes[i] = t->nbytes;
    }
    return call_cuMemcpyBatchAsync(targets, sources, sizes, count, attributes, &first, 1, &failed,
                                   t->stream);
}

static CUresult part_1(const things *t) { return singles(t, 1); }
static CUresult singles_8(const things *t) { return singles(t, 8); }
static CUresult singles_64(const things *t) { return singles(t, 64); }
static CUresult singles_256(const things *t) { return singles(t, 256); }
static CUresult batch_8(const things *t) { return batch(t, 8); }
static CUresult batch_64(const things *t) { return batch(t, 64); }
static CUresult batch_256(const things *t) { return batch(t, 256); }

static CUresult fill(const things *t) {
    return call_cuMemsetD8Async(t->device, 0, t->nbytes, t->stream);
}

static CUresult launch(const things *t) {
    int count = 32;
    float factor = 2;
    CUdeviceptr x = t->device, y = t->other;
    void *arguments[] = {&count, &factor, &x, &y};
    return call_cuLaunchKernel(t->kernel, 1, 1, 1, 32, 1, 1, 0, t->stream, arguments, NULL);
}

static CUresult graph(const things *t) { return call_cuGraphLaunch(t->graph, t->stream); }

static CUresult update(const things *t) {
    CUgraphExecUpdateResultInfo info;
    return call_cuGraphExecUpdate_v2(t->graph, t->template, &info);
}

static CUresult set(const things *t) {
    int count = 32;
    float factor = 2;
    CUdeviceptr x = t->device, y = t->other;
    void *arguments[] = {&count, &factor, &x, &y};
    CUDA_KERNEL_NODE_PARAMS parameters = {.func = t->kernel, .kernelParams = arguments};
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = 32;
    parameters.blockDimY = parameters.blockDimZ = 1;
    return call_cuGraphExecKernelNodeSetParams_v2(t->graph, t->node, &parameters);
}

static CUresult record(const things *t) { return call_cuEventRecord(t->event, t->stream); }

static CUresult wait(const things *t) { return call_cuStreamWaitEvent(t->stream, t->event, 0); }

static CUresult synchronize(const things *t) { return call_cuStreamSynchronize(t->stream); }

static CUresult h2d_and_wait(const things *t) {
    CUresult status = h2d(t);
    return status ? status : synchronize(t);
}

static void CUDA_CB nothing(void *argument) { (void)argument; }

static CUresult host_call(const things *t) { return call_cuLaunchHostFunc(t->stream, nothing, NULL); }

static CUresult call_and_wait(const things *t) {
    CUresult status = host_call(t);
    return status ? status : synchronize(t);
}

static CUresult locked_memory(const things *t) {
    void *host;
    CUresult status = call_cuMemHostAlloc(&host, t->large, CU_MEMHOSTALLOC_PORTABLE);
    return status ? status : call_cuMemFreeHost(host);
}

static CUresult device_memory(const things *t) {
    CUdeviceptr device;
    CUresult status = call_cuMemAllocAsync(&device, t->large, t->stream);
    return status ? status : call_cuMemFreeAsync(device, t->stream);
}

static const struct {
    const char *name;
    row_function *function;
} rows[] = {
    {"h2d", h2d},
    {"d2h", d2h},
    {"d2d", d2d},
    {"fill", fill},
    {"box", box},
    {"1 part", part_1},
    {"singles 8", singles_8},
    {"singles 64", singles_64},
    {"singles 256", singles_256},
    {"batch 8", batch_8},
    {"batch 64", batch_64},
    {"batch 256", batch_256},
    {"launch", launch},
    {"graph", graph},
    {"update", update},
    {"set", set},
    {"record", record},
    {"wait", wait},
    {"synchronize", synchronize},
    {"h2d and wait", h2d_and_wait},
    {"call", host_call},
    {"call and wait", call_and_wait},
    {"locked memory", locked_memory},
    {"device memory", device_memory},
};

static row_function *find(const char *name) {
    for (size_t at = 0; at < sizeof rows / sizeof rows[0]; at++) {
        if (!strcmp(rows[at].name, name)) {
            return rows[at].function;
        }
    }
    return NULL;
}

/* Makes a graph in the current context, which launches the kernel on one buffer after the other. */
CUresult floor_graph(things *t, int launches, const CUdeviceptr *buffers, int count) {
    size_t one = 1;
    CUresult status = call_cuStreamBeginCapture_v2(t->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    for (int i = 0; i < launches && status == CUDA_SUCCESS; i++) {
        t->device = buffers[i % count];
        t->other = buffers[(i + 1) % count];
        status = launch(t);
    }
    if (status == CUDA_SUCCESS) {
        status = call_cuStreamEndCapture(t->stream, &t->template);
    }
    if (status == CUDA_SUCCESS) {
        status = call_cuGraphInstantiateWithFlags(&t->graph, t->template, 0);
    }
    return status ? status : call_cuGraphGetNodes(t->template, &t->node, &one);
}

/* Returns the nanoseconds of a call, as the mean of `count` calls of a row. Returns a number below
 * 0 on an error, or if there is no such row. */
double floor_call(const char *row, const things *t, int count) {
    row_function *function = find(row);
    if (!function) {
        return -1;
    }
    CUresult status = CUDA_SUCCESS;
    double start = now();
    for (int i = 0; i < count && status == CUDA_SUCCESS; i++) {
        status = function(t);
    }
    double taken = (now() - start) / count;
    call_cuStreamSynchronize(t->stream);
    return status == CUDA_SUCCESS ? taken : -(double)status;
}

/* ---- for Python ---- */

typedef struct bare_call {
    row_function *function;
    const things *things;
} bare_call;

static PyObject *call(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const bare_call *bare = PyCapsule_GetPointer(self, NULL);
    CUresult status;
    (void)arguments, (void)count;
    Py_BEGIN_ALLOW_THREADS;
    status = bare->function(bare->things);
    Py_END_ALLOW_THREADS;
    if (status) {
        return PyErr_Format(PyExc_RuntimeError, "CUDA error %d", (int)status);
    }
    Py_RETURN_NONE;
}

static PyMethodDef call_definition = {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL,
                                      "The bare call; takes any positional arguments."};

/* bare(row, address of the things): returns a function that makes the call of a row, or None.
 * The memory behind this function is never freed. */
static PyObject *bare(PyObject *self, PyObject *arguments) {
    const char *row;
    unsigned long long address;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "sK", &row, &address)) {
        return NULL;
    }
    bare_call *made = PyMem_Malloc(sizeof *made);
    if (!made) {
        return PyErr_NoMemory();
    }
    *made = (bare_call){find(row), (const things *)(uintptr_t)address};
    if (!made->function) {
        PyMem_Free(made);
        Py_RETURN_NONE;
    }
    PyObject *capsule = PyCapsule_New(made, NULL, NULL);
    PyObject *function = capsule ? PyCFunction_New(&call_definition, capsule) : NULL;
    Py_XDECREF(capsule);
    return function;
}

static PyMethodDef functions[] = {{"bare", bare, METH_VARARGS, "A function for a row."}, {0}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "floor", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_floor(void) { return PyModule_Create(&module); }
