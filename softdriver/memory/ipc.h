#pragma once

#include "base/process.h"
#include "memory/allocation.h"

namespace soft {

// The contents of a handle of shared memory. Handles come from other processes, so nothing in them
// can be trusted.
struct SharedMemory {
    uint64_t magic; // which kind of handle this is
    uint32_t pid;   // the process that has exported the memory
    int32_t file;   // that process's descriptor of the file with the memory
    uint64_t start; // the process's start time
    uint64_t offset, bytes;
    // The number of the allocation. The file has this number at `place` until the memory is freed.
    uint64_t id, place;
    uint64_t check; // a checksum
};
static_assert(sizeof(SharedMemory) == 64, "the size of the driver's handles");

// How an allocation is shared: imported from another process, or exported to others.
struct Sharing {
    SharedMemory handle = {};
    bool imported = false;
    // How often cuIpcOpenMemHandle has opened the memory; the last cuIpcCloseMemHandle unmaps it.
    unsigned opened = 0;
};

// Finds a device by its number among all devices. CUDA_VISIBLE_DEVICES does not change this number,
// so all processes use the same one. Returns null if this process does not have the device.
Device *device_at(uint32_t place);
// Makes the handle of an allocation of this process. `magic` says what kind of handle it is.
CUresult export_memory(Lock &lock, uintptr_t address, uint64_t magic, SharedMemory &handle);
// Checks a handle and maps its memory. Memory of a device is mapped into the address space of
// `device`.
CUresult import_memory(const Context &context, Device &device, MemoryKind kind,
                       const SharedMemory &handle, uint64_t magic, Allocation *&result);
// Called when exported memory of a device is freed: its handles become invalid.
void stop_sharing(Device &device, const Sharing &sharing);

} // namespace soft
