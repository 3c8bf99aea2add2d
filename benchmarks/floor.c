/* The bare driver calls, timed from C: what no binding can be faster than. */

#include <cuda.h>
#include <dlfcn.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Nanoseconds a call, over `count` calls of the named operation; below 0 on an error. */
double floor_call(const char *library, const char *operation, unsigned long long device,
                  unsigned long long host, size_t nbytes, void *stream, void *event, int count) {
    void *driver = dlopen(library, RTLD_NOW);
    CUresult (*h2d)(CUdeviceptr, const void *, size_t, CUstream) =
        (CUresult (*)(CUdeviceptr, const void *, size_t, CUstream))dlsym(driver,
                                                                         "cuMemcpyHtoDAsync_v2");
    CUresult (*d2h)(void *, CUdeviceptr, size_t, CUstream) =
        (CUresult (*)(void *, CUdeviceptr, size_t, CUstream))dlsym(driver, "cuMemcpyDtoHAsync_v2");
    CUresult (*fill)(CUdeviceptr, unsigned char, size_t, CUstream) =
        (CUresult (*)(CUdeviceptr, unsigned char, size_t, CUstream))dlsym(driver,
                                                                          "cuMemsetD8Async");
    CUresult (*record)(CUevent, CUstream) =
        (CUresult (*)(CUevent, CUstream))dlsym(driver, "cuEventRecord");
    CUresult (*wait)(CUstream, CUevent, unsigned) =
        (CUresult (*)(CUstream, CUevent, unsigned))dlsym(driver, "cuStreamWaitEvent");
    CUresult (*synchronize)(CUstream) =
        (CUresult (*)(CUstream))dlsym(driver, "cuStreamSynchronize");
    CUresult status = CUDA_SUCCESS;
    double start = now();
    for (int i = 0; i < count && status == CUDA_SUCCESS; i++) {
        switch (operation[0]) {
        case 'h': /* host to device; 'H' waits for it */
        case 'H':
            status = h2d(device, (void *)host, nbytes, stream);
            if (status == CUDA_SUCCESS && operation[0] == 'H') {
                status = synchronize(stream);
            }
            break;
        case 'd':
            status = d2h((void *)host, device, nbytes, stream);
            break;
        case 'f':
            status = fill(device, 0, nbytes, stream);
            break;
        case 'r':
            status = record(event, stream);
            break;
        case 'w':
            status = wait(stream, event, 0);
            break;
        default:
            status = synchronize(stream);
        }
    }
    double taken = (now() - start) / count;
    synchronize(stream);
    return status == CUDA_SUCCESS ? taken : -1;
}
