#pragma once

// The functions that steer this driver. They are no part of the CUDA driver API.
#pragma GCC visibility push(default)
extern "C" {
int cudadrvSoftConfigure(const char *settings);
const char *cudadrvSoftError(void);
unsigned long long cudadrvSoftCount(const char *kind);
unsigned long long cudadrvSoftCalls(const char *function);
int cudadrvSoftDrain(void);
unsigned long long cudadrvSoftPending(void);
int cudadrvSoftReset(void);
const char *cudadrvSoftVersion(void);
}
#pragma GCC visibility pop
