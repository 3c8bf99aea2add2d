#pragma once

#include "memory/allocation.h"

namespace soft {

struct Call;

// Allocates memory for the current context. If there is not enough memory, waits for pending frees
// of streams.
CUresult allocate_or_wait(Call &call, size_t bytes, MemoryKind kind, Allocation *&allocation);
// Frees memory, or the memory of an array, that begins at the address as cuMemFree does: it may
// wait for the device.
CUresult free_device_memory(Call &call, CUdeviceptr address);

} // namespace soft
