#include "memory/managed.h"
#include "api/call.h"

#include "api/state.h"

#include <algorithm>
#include <sys/mman.h>
#include <unistd.h>

// Managed memory: its mappings, which streams may use it, and when the host may access it.

namespace soft {
namespace {

constexpr int access_of_host = PROT_READ | PROT_WRITE;

bool concurrent() { return state().settings.concurrent_managed; }

void set_closed(Managed &managed, bool closed) {
    if (managed.closed == closed)
        return;
    managed.closed = closed;
    if (managed.user)
        mprotect(managed.user, managed.bytes, closed ? PROT_NONE : access_of_host);
}

// Returns true while the stream runs a host function. A host function is not work of a device.
bool runs_host_function(const Stream &stream) {
    const Operation &first = *stream.queue.front();
    return first.on_worker && first.progress == Progress::Running;
}

// Returns true if the stream has unfinished work. Work of a lost device does not count: it may
// still be running, but nobody can wait for it.
bool has_work(const Stream &stream) {
    return !stream.owner->device->sticky && !runs_host_function(stream) &&
           std::any_of(stream.queue.begin(), stream.queue.end(),
                       [](const auto &operation) { return !operation->only_orders(); });
}

bool in_use(Managed &managed) {
    for (const Stream *stream : state().scheduler.busy())
        if (managed.visible(*stream) && has_work(*stream))
            return true;
    return false;
}

template <class Visit> void for_each_managed(Visit visit) {
    for (const auto &entry : state().allocations)
        if (entry.second.managed)
            visit(*entry.second.managed);
}

} // namespace

bool Managed::visible(const Stream &other) {
    StreamPtr single = stream.lock();
    if (attached == CU_MEM_ATTACH_SINGLE && !single)
        attached = initial; // the stream to which it was attached is destroyed
    if (attached == CU_MEM_ATTACH_SINGLE)
        return single.get() == &other;
    return attached == CU_MEM_ATTACH_GLOBAL;
}

void close_managed(const Stream &stream) {
    if (concurrent())
        return;
    for_each_managed([&](Managed &managed) {
        if (managed.visible(stream))
            set_closed(managed, true);
    });
}

void close_managed_if_busy(Managed &managed) {
    if (!concurrent() && in_use(managed))
        set_closed(managed, true);
}

void open_managed() {
    if (concurrent())
        return;
    for_each_managed([](Managed &managed) {
        if (managed.closed && !in_use(managed))
            set_closed(managed, false);
    });
}

size_t Managed::alive = 0;

namespace {

// Maps a file at an address at which a block begins. `bytes` is a number of whole pages.
char *map_blocks(size_t bytes, int file) {
    void *reserved = mmap(nullptr, bytes + block_bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return nullptr;
    auto start = static_cast<char *>(reserved);
    size_t before = (0 - reinterpret_cast<uintptr_t>(start)) % block_bytes;
    char *address = start + before;
    if (mmap(address, bytes, access_of_host, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        munmap(start, bytes + block_bytes);
        return nullptr;
    }
    if (before)
        munmap(start, before);
    munmap(address + bytes, block_bytes - before);
    return address;
}

} // namespace

char *map_twice(size_t size, char *&alias, bool forks) {
    size_t bytes = whole_pages(size);
    int file = memfd_create("cudadrv-managed", MFD_CLOEXEC);
    bool made = file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0;
    char *user = made ? map_blocks(bytes, file) : nullptr;
    void *hidden = user ? mmap(nullptr, bytes, access_of_host, MAP_SHARED, file, 0) : MAP_FAILED;
    if (file >= 0)
        close(file);
    if (hidden == MAP_FAILED) {
        if (user)
            munmap(user, bytes);
        return nullptr;
    }
    // Keep the mappings out of forked children, which would write to the parent's pages because the
    // mappings are shared. Map small pages: the system says of each whether the program has used
    // it.
    for (void *mapped : {static_cast<void *>(user), hidden})
        madvise(mapped, bytes, forks ? MADV_DOFORK : MADV_DONTFORK);
    madvise(user, bytes, MADV_NOHUGEPAGE);
    alias = static_cast<char *>(hidden);
    return user;
}

SOFT_API(cuMemAllocManaged, (CUdeviceptr * address, size_t bytes, unsigned flags),
         (address, bytes, flags)) {
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult status = context_status(call.context.get()))
        return status;
    if (CUresult status = refuse_unsafe(*call.thread))
        return status;
    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    Allocation *allocation = nullptr;
    if (CUresult status = allocate_managed(*call.context, bytes, flags, allocation))
        return status;
    close_managed_if_busy(*allocation->managed);
    *address = allocation->begin;
    return CUDA_SUCCESS;
}

// Submits an operation that changes the attachment of the memory when it runs.
SOFT_STREAM_API(cuStreamAttachMemAsync,
                (CUstream handle, CUdeviceptr address, size_t bytes, unsigned flags),
                (handle, address, bytes, flags)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    if (CUresult status = stream->capture ? refuse_captured(*stream) : CUDA_SUCCESS)
        return status;
    bool single = flags == CU_MEM_ATTACH_SINGLE;
    if (!single && flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    const Allocation *allocation = find_start(address);
    if (!allocation || !allocation->managed || allocation->pool ||
        (bytes && bytes != allocation->bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (single && !handle)
        return CUDA_ERROR_INVALID_VALUE;
    auto operation = std::make_shared<Operation>();
    std::weak_ptr<Stream> target = stream;
    operation->action = [=, managed = allocation->managed] {
        Lock lock(state().mutex);
        managed->attached = flags;
        managed->stream = target;
        close_managed_if_busy(*managed);
    };
    return submit(*stream, std::move(operation));
}

// A lost device's work no longer uses managed memory.
[[gnu::constructor]] static void add_managed() { add_device_loss(open_managed); }

} // namespace soft
