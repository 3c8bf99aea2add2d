/* Copies between devices by the bare driver, for devices.py. The functions come from the driver
 * library whose path devices.py passes; nothing is linked. */

#include <cuda.h>
#include <dlfcn.h>
#include <time.h>

typedef struct {
    CUdeviceptr target, source;
    CUcontext target_context, source_context;
    size_t bytes;
    CUstream stream;
} job;

static CUresult (*copy)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);
static CUresult (*synchronize)(CUstream);

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int devices_open(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (library) {
        *(void **)&copy = dlsym(library, "cuMemcpyPeerAsync");
        *(void **)&synchronize = dlsym(library, "cuStreamSynchronize");
    }
    return copy && synchronize;
}

/* Queues all jobs one after the other, `turns` times, and waits for all. Returns the seconds, or -1
 * on an error. */
double devices_run(const job *jobs, int count, int turns) {
    CUresult status = CUDA_SUCCESS;
    double start = now();
    for (int turn = 0; turn < turns; turn++) {
        for (const job *at = jobs; at < jobs + count; at++) {
            status |= copy(at->target, at->target_context, at->source, at->source_context,
                           at->bytes, at->stream);
        }
    }
    for (int i = 0; i < count; i++) {
        status |= synchronize(jobs[i].stream);
    }
    return status == CUDA_SUCCESS ? now() - start : -1;
}
