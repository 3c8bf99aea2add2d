#pragma once

// Functions that control the software driver. They are not part of the CUDA driver API.
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
SOFT_EXPORT unsigned long long cudadrvSoftHazards(void);
SOFT_EXPORT const char *cudadrvSoftHazard(unsigned long long index);
SOFT_EXPORT int cudadrvSoftForgetHazards(void);
SOFT_EXPORT const char *cudadrvSoftFaultText(void);
SOFT_EXPORT const char *cudadrvSoftFaultOf(int device); // null if the last fault was on another one
SOFT_EXPORT const char *cudadrvSoftVersion(void);

// Functions for ranges of managed memory. They return CUDA_ERROR_INVALID_VALUE for other memory,
// and CUDA_ERROR_NOT_SUPPORTED if the system does not tell which pages the host has used.
//
// Sets `faults[0]` to the page faults of the host in the blocks of the range, and `faults[1]` to
// the page faults of devices. A page fault moves or copies a block to the processor that uses it.
SOFT_EXPORT int cudadrvSoftPageFaults(unsigned long long address, unsigned long long bytes,
                                      unsigned long long faults[2]);
// Sets `places[i]` to the place of page i of the range, for the first `count` pages: the ordinal of
// a device, -1 for the host, or -2 for none.
SOFT_EXPORT int cudadrvSoftPagePlaces(unsigned long long address, unsigned long long bytes,
                                      int *places, unsigned long long count);

// The functions by which a client names its own work and memory in reports of data races, hazards
// and errors of kernels.
typedef struct cudadrvSoftWords {
    // If the calling thread is submitting one of the client's operations to the stream with this
    // tag, sets `label` to two numbers that identify the operation, and returns nonzero; otherwise
    // returns 0. The driver calls this with its lock held, so the function must not call the
    // driver, nor wait for a thread that might.
    int (*operation)(unsigned long long tag, unsigned long long label[2]);
    // Write a description of an operation (by its label) or of the memory at an address to `text`,
    // and return its length, at most `size`. They return 0 if they have no description, and a
    // negative number if the calling thread cannot get one; the driver then asks again in a later
    // call. The driver calls them without its lock, so they may wait, but must not call the driver.
    // The description of memory may end with where it was made: ", made at a.py:12".
    // describe_freed is for addresses in memory that is freed: it describes the last memory there,
    // and may add who freed it: ", made at a.py:12, closed at a.py:15".
    int (*describe_operation)(const unsigned long long label[2], char *text, int size);
    int (*describe_memory)(unsigned long long address, char *text, int size);
    int (*describe_freed)(unsigned long long address, char *text, int size);
} cudadrvSoftWords;

// The properties of a device that libnvidia-ml.so.1 (nvml.c) reports. Reading them requires no
// cuInit, because forked children cannot use the driver after cuInit.
typedef struct cudadrvSoftDevice {
    char name[96], uuid[48];
    unsigned long long memory; // bytes
    unsigned long long used;   // bytes that this process uses
    int bus;                   // bus number of its PCI address; the other numbers are 0
    int major, minor;          // compute capability
    int busy;                  // whether this process has unfinished work on the device
} cudadrvSoftDevice;

// `place` is the device's index among all devices, regardless of CUDA_VISIBLE_DEVICES. Returns
// CUDA_ERROR_INVALID_DEVICE if there is no such device.
SOFT_EXPORT int cudadrvSoftDescribeDevice(int place, cudadrvSoftDevice *device);

SOFT_EXPORT int cudadrvSoftSetWords(const cudadrvSoftWords *words);
// Says that memory gets a new owner, for whom its contents are undefined (checks=init). Has no
// effect while work is unfinished, because this may be work of the old owner.
SOFT_EXPORT int cudadrvSoftRenewMemory(CUdeviceptr address, size_t bytes);
// Says whether page-locked memory that is allocated from now on is mapped twice, so that the driver
// does not use the program's mapping, as a device does not: the program can then protect its pages.
SOFT_EXPORT void cudadrvSoftMapTwice(int on);
// Returns whether the page-locked memory at an address is mapped twice.
SOFT_EXPORT int cudadrvSoftIsMappedTwice(unsigned long long address);
typedef struct cudadrvSoftTracer cudadrvSoftTracer; // see work/tracer.h
// Traces until the next call; NULL ends that. The struct must live as long as the process.
SOFT_EXPORT void cudadrvSoftTrace(const cudadrvSoftTracer *tracer);
SOFT_EXPORT int cudadrvSoftTagStream(CUcontext context, CUstream stream, unsigned long long tag);
