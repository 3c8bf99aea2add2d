/* Copies into page-locked memory that the device will read. Uses neither CUDA nor Python. */

#ifndef CUDADRV_STREAMING_COPY_H
#define CUDADRV_STREAMING_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Like memcpy, but with stores that bypass the caches if the processor has them. The processor then
 * does not read the target before writing it, and the device does not have to fetch the bytes from
 * a cache. */
static inline void streaming_copy(char *target, const char *source, size_t nbytes) {
#ifdef __SSE2__
    enum { LINE = 64 };
    if (nbytes >= LINE) {
        size_t unaligned = (size_t)(-(uintptr_t)target % LINE);
        memcpy(target, source, unaligned);
        target += unaligned, source += unaligned, nbytes -= unaligned;
        for (; nbytes >= LINE; target += LINE, source += LINE, nbytes -= LINE) {
            const __m128i *from = (const __m128i *)source;
            __m128i *to = (__m128i *)target;
            __m128i first = _mm_loadu_si128(from), second = _mm_loadu_si128(from + 1);
            __m128i third = _mm_loadu_si128(from + 2), fourth = _mm_loadu_si128(from + 3);
            _mm_stream_si128(to, first);
            _mm_stream_si128(to + 1, second);
            _mm_stream_si128(to + 2, third);
            _mm_stream_si128(to + 3, fourth);
        }
        _mm_sfence(); /* complete the stores before the caller reports the copy as done */
    }
#endif
    memcpy(target, source, nbytes);
}

#endif
