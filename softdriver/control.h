#pragma once

// The functions that steer this driver. They are no part of the CUDA driver API.
#include "cuda_api.h"

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
