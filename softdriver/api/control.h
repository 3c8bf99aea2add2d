#pragma once

// The functions that steer this driver. They are no part of the CUDA driver API.
#include "base/cuda_api.h"

SOFT_EXPORT int cudadrvSoftConfigure(const char *settings);
SOFT_EXPORT const char *cudadrvSoftSettings(void);
SOFT_EXPORT const char *cudadrvSoftError(void);
SOFT_EXPORT unsigned long long cudadrvSoftCount(const char *kind);
SOFT_EXPORT unsigned long long cudadrvSoftCalls(const char *function);
SOFT_EXPORT const char *cudadrvSoftUnsupported(unsigned long long index);
SOFT_EXPORT int cudadrvSoftDrain(void);
SOFT_EXPORT unsigned long long cudadrvSoftPending(void);
SOFT_EXPORT int cudadrvSoftReset(void);
SOFT_EXPORT int cudadrvSoftRenew(void);
SOFT_EXPORT unsigned long long cudadrvSoftRaces(void);
SOFT_EXPORT const char *cudadrvSoftRaceText(unsigned long long index);
SOFT_EXPORT int cudadrvSoftForgetRaces(void);
SOFT_EXPORT const char *cudadrvSoftFaultText(void);
SOFT_EXPORT const char *cudadrvSoftVersion(void);

// How a client names its own work in reports of data races.
typedef struct cudadrvSoftWords {
    // Whether the calling thread is handing over an operation of the client's on the stream with
    // this tag: then `label` is set to two numbers that stand for it. Called with the driver's lock
    // held: it must not call the driver, nor wait for anybody who might.
    int (*operation)(unsigned long long tag, unsigned long long label[2]);
    // Words for such numbers, and for the memory that an address lies in: their length, at most
    // `size`; 0: there are none; negative: another thread has to ask. Called without the lock, at
    // the end of a call: they may wait, and must not call the driver.
    int (*describe_operation)(const unsigned long long label[2], char *text, int size);
    int (*describe_memory)(unsigned long long address, char *text, int size);
} cudadrvSoftWords;

SOFT_EXPORT int cudadrvSoftSetWords(const cudadrvSoftWords *words);
SOFT_EXPORT int cudadrvSoftTagStream(CUcontext context, CUstream stream, unsigned long long tag);
