/* Fills the call table from an opened libcuda.so.1. Only cudadrv._driver includes this file. */

#ifndef CUDADRV_DRIVER_LOADER_H
#define CUDADRV_DRIVER_LOADER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* for dlinfo() */
#endif
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>

#include "driver.h"
#include "driver_log.h"

typedef CUresult(CUDAAPI *cudadrv_get_address)(const char *name, void **address, int version,
                                               cuuint64_t flags,
                                               CUdriverProcAddressQueryResult *found);

static __thread const char *cudadrv_last_failure = "the driver";

static void cudadrv_note_failure(const char *call) {
    cudadrv_last_failure = call;
    cudadrv_log_failure();
}

/* The table has this function for each function that the driver lacks, so that no entry is NULL.
 * Like cudadrv_not_initialized, it is called with arguments that it does not declare. */
static CUresult CUDAAPI cudadrv_not_supported(void) { return CUDA_ERROR_NOT_SUPPORTED; }

typedef CUresult(CUDAAPI *cudadrv_stand_in)(void);

/* Sets every entry of the table to `stand_in`. The entries are cudadrv_not_initialized until a
 * driver is loaded, and in a forked child, where driver calls can crash. */
static void cudadrv_fill_table(cudadrv_stand_in stand_in) {
#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    cudadrv_table->call_##name = (cudadrv_pointer_##name)(void *)stand_in;
#include "driver_functions.h"
#undef CUDADRV_FUNCTION
}

/* Runs in every forked child. If the parent has not opened a driver, the child can open one. */
static void cudadrv_enter_child(void) {
    if (cudadrv_table->loaded) {
        cudadrv_table->forked = 1;
        cudadrv_set_attention(CUDADRV_HAS_FORKED);
        cudadrv_fill_table(cudadrv_not_initialized);
    }
}

static void cudadrv_prepare_table(void) {
    cudadrv_table->note_failure = cudadrv_note_failure;
    cudadrv_fill_table(cudadrv_not_initialized);
    pthread_atfork(NULL, NULL, cudadrv_enter_child);
}

static void *cudadrv_find(cudadrv_get_address get_address, const char *name, int abi) {
    CUdriverProcAddressQueryResult found;
    void *address = NULL;
    CUresult status = get_address(name, &address, abi, 0, &found);
    return status == CUDA_SUCCESS && address ? address : (void *)cudadrv_not_supported;
}

/* Fills the table from an opened library and returns 1. Returns 0 if the library is older than CUDA
 * 12, and so has no cuGetProcAddress_v2. */
static int cudadrv_load_table(void *library) {
    cudadrv_get_address get_address = (cudadrv_get_address)dlsym(library, "cuGetProcAddress_v2");
    if (!get_address) {
        return 0;
    }
    cudadrv_table->loaded = 1;
    *(void **)&cudadrv_table->tag_stream = dlsym(library, "cudadrvSoftTagStream");
    *(void **)&cudadrv_table->renew_memory = dlsym(library, "cudadrvSoftRenewMemory");
    *(void **)&cudadrv_table->asks = dlsym(library, "cudadrvSoftAsks");
    *(void **)&cudadrv_table->repeats = dlsym(library, "cudadrvSoftRepeats");
    *(void **)&cudadrv_table->uses = dlsym(library, "cudadrvSoftUses");
    *(void **)&cudadrv_table->trace = dlsym(library, "cudadrvSoftTrace");
    *(void **)&cudadrv_table->map_twice = dlsym(library, "cudadrvSoftMapTwice");
    *(void **)&cudadrv_table->is_mapped_twice = dlsym(library, "cudadrvSoftIsMappedTwice");
#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    cudadrv_table->call_##name = (cudadrv_pointer_##name)cudadrv_find(get_address, #name, abi);
#include "driver_functions.h"
#undef CUDADRV_FUNCTION
    /* The cuGetProcAddress of a toolkit's stub library finds no functions. Use its cuInit, which
     * returns an error that tells that the library is a stub. */
    void *init = dlsym(library, "cuInit");
    if ((void *)cudadrv_table->call_cuInit == (void *)cudadrv_not_supported && init) {
        cudadrv_table->call_cuInit = (cudadrv_pointer_cuInit)init;
    }
    return 1;
}

/* Returns the name of the next function, from *index on, that the loaded driver does not have.
 * Returns NULL if there is none. */
static const char *cudadrv_next_missing(size_t *index) {
    static const struct {
        const char *name;
        size_t offset;
    } functions[] = {
#define CUDADRV_FUNCTION(name, abi, parameters, arguments)                                         \
    {#name, offsetof(cudadrv_driver, call_##name)},
#include "driver_functions.h"
#undef CUDADRV_FUNCTION
    };
    while (*index < sizeof functions / sizeof *functions) {
        size_t i = (*index)++;
        if (*(void *const *)((const char *)cudadrv_table + functions[i].offset) ==
            (void *)cudadrv_not_supported) {
            return functions[i].name;
        }
    }
    return NULL;
}

/* Returns the path from which the dynamic linker loaded the library, or NULL if it is unknown. */
static const char *cudadrv_library_path(void *library) {
    struct link_map *map = NULL;
    return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : NULL;
}

#endif
