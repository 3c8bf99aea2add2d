#include "api/call.h"
#include "api/state.h"
#include "memory/ipc.h"

#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

// Memory of cuMemCreate that processes share. A handle is a descriptor of the file that has the
// bytes. Each mapping is a view of this file, whichever process it is in.

namespace soft {
namespace {

constexpr uint64_t mapped_magic = 0x31304d4d56505543; // "CUPVMM01"

// The description that follows the bytes in the file. Another process may have written it, so it is
// checked.
struct Description {
    uint64_t magic = mapped_magic;
    uint64_t bytes = 0;
    uint32_t place = 0; // index among all devices, before CUDA_VISIBLE_DEVICES selects some
    int32_t handle_types = 0;
};

// Reads the description. Returns false if the file has no memory of cuMemCreate.
bool read_description(int file, Description &description) {
    struct stat status;
    int seals = fcntl(file, F_GET_SEALS); // only files in memory have seals
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(file, &status) != 0 ||
        status.st_size <= static_cast<off_t>(sizeof(description)))
        return false;
    off_t end = status.st_size - static_cast<off_t>(sizeof(description));
    return pread(file, &description, sizeof(description), end) == sizeof(description) &&
           description.magic == mapped_magic && end == static_cast<off_t>(description.bytes) &&
           description.bytes % virtual_granularity == 0;
}

// Returns the memory of this process whose bytes are in this file, or null.
BackingPtr find_by_file(int file) {
    struct stat wanted, known;
    if (fstat(file, &wanted) != 0)
        return nullptr;
    for (const auto &entry : state().backings)
        if (fstat(entry.second->file, &known) == 0 && known.st_ino == wanted.st_ino &&
            known.st_dev == wanted.st_dev)
            return entry.second;
    return nullptr;
}

CUresult import_backing(int file, BackingPtr &backing) {
    Description description;
    if (!read_description(file, description))
        return CUDA_ERROR_INVALID_VALUE;
    Device *device = device_at(description.place);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = make_location(location_device, device->ordinal);
    properties.requestedHandleTypes =
        static_cast<CUmemAllocationHandleType>(description.handle_types);
    int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    backing = std::make_shared<Backing>(*device, static_cast<size_t>(description.bytes), properties,
                                        false);
    backing->file = own;
    backing->handle = state().backings.insert(backing, state().reuse());
    return CUDA_SUCCESS;
}

} // namespace

size_t description_bytes() { return sizeof(Description); }

bool describe_backing(const Backing &backing) {
    Description description;
    description.bytes = backing.bytes;
    description.place = static_cast<uint32_t>(backing.device->place);
    description.handle_types = static_cast<int32_t>(backing.properties.requestedHandleTypes);
    return pwrite(backing.file, &description, sizeof(description),
                  static_cast<off_t>(backing.bytes)) == sizeof(description);
}

SOFT_API(cuMemExportToShareableHandle,
         (void *result, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
          unsigned long long flags),
         (result, handle, type, flags)) {
    BackingPtr backing = find_backing(handle);
    if (!result || !backing || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(backing->properties.requestedHandleTypes & type))
        return CUDA_ERROR_INVALID_VALUE;
    int file = fcntl(backing->file, F_DUPFD_CLOEXEC, 0);
    if (file < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    std::memcpy(result, &file, sizeof(file));
    state().chooser.limit(explore::Limit::Shared);
    return CUDA_SUCCESS;
}

// If this process already has the memory, adds a reference and returns the existing handle.
SOFT_API(cuMemImportFromShareableHandle,
         (CUmemGenericAllocationHandle * handle, void *given, CUmemAllocationHandleType type),
         (handle, given, type)) {
    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    // The handle is the file descriptor itself.
    int file = static_cast<int>(reinterpret_cast<intptr_t>(given));
    BackingPtr backing = find_by_file(file);
    if (backing)
        backing->references++;
    else if (CUresult status = import_backing(file, backing))
        return status;
    *handle = backing->handle;
    state().chooser.limit(explore::Limit::Shared);
    return CUDA_SUCCESS;
}

} // namespace soft
