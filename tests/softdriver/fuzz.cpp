// fuzz SEED CALLS [THREADS] [SETTINGS]
// FUZZ_NAMES=Array,TexObject: only functions whose names have one of these parts
// FUZZ_COUNTS=1: prints how many calls of each function there were, and how many succeeded
//
// Calls every function that the driver implements in random order with random arguments: correct,
// stale and wrong ones. It is compiled together with the driver and with a sanitizer. Failures are:
// whatever the sanitizer finds, a call that does not end, an unknown status, and objects left after
// a reset. A failure prints the seed and the last calls; FUZZ_TRACE=1 prints all calls. With one
// thread and an even seed, each run makes nearly the same calls; only the system's memory mappings
// can differ.

#include "fuzz_code.h"
#include "fuzz_scenes.h"
#include "fuzz_textures.h"

#include "base/functions.h"

#include <csignal>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <sys/personality.h>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <vector>

namespace fuzz {
namespace {

constexpr uint64_t longest_call = 120000; // milliseconds, on a busy machine and with a sanitizer
constexpr size_t segment = 400;           // calls before a new selection of functions
constexpr size_t lifetime = 2500;         // calls between two resets
constexpr const char *array_copies[] = {"AtoA", "AtoD", "AtoH", "DtoA", "HtoA"};

std::string command; // the command that repeats this run
std::vector<std::unique_ptr<Player>> players;
bool trace = false;            // print every call
std::vector<std::string> only; // FUZZ_NAMES, or empty
bool quarantine = false;       // keep the mappings of memory that the driver unmaps

uint64_t milliseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return uint64_t(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

void explain() {
    std::fprintf(stderr, "fuzz: failed in: %s\n", command.c_str());
    for (const auto &each : players)
        each->history.print(each->thread);
}

[[noreturn]] void fail(const std::string &why) {
    std::fprintf(stderr, "fuzz: %s\n", why.c_str());
    explain();
    std::fflush(stderr);
    _exit(1);
}

bool starts(const char *name, const char *prefix) {
    return !std::strncmp(name, prefix, std::strlen(prefix));
}

// The properties of a function that do not follow from the types of its parameters.
Shape shape_of(const char *name) {
    Shape shape;
    shape.touches_pointers = starts(name, "cuMemcpy");
    shape.touches_addresses = starts(name, "cuMemcpy_") || starts(name, "cuMemcpyAsync") ||
                              starts(name, "cuMemcpyWithAttributes") ||
                              !std::strcmp(name, "cuMemcpy");
    if (starts(name, "cuMemRangeGetAttribute"))
        shape.limit = 256;
    shape.keeps_memory = starts(name, "cuMemHostRegister");
    for (const char *maps :
         {"cuMemAddress", "cuMemCreate", "cuMemExport", "cuMemGetAccess", "cuMemGetAllocation",
          "cuMemImport", "cuMemMap", "cuMemRelease", "cuMemRetain", "cuMemSetAccess", "cuMemUnmap"})
        shape.maps |= starts(name, maps);
    for (const char *copies : array_copies)
        shape.parts |= std::strstr(name, copies) != nullptr;
    shape.objects = starts(name, "cuTexObject") || starts(name, "cuSurfObject");
    for (const char *looks_up : {"cuMemFreeHost", "cuMemHost", "cuLaunchHostFunc"})
        if (starts(name, looks_up))
            shape.own_buffers = false;
    // These functions take arrays of handles, but their types look like those of a single result.
    shape.counted =
        std::strstr(name, "UpdateCaptureDependencies") || std::strstr(name, "Enumerate") ||
        std::strstr(name, "BatchAsync") || starts(name, "cuGraphAdd") ||
        starts(name, "cuGraphGet") || starts(name, "cuGraphNodeGetDepend") ||
        starts(name, "cuGraphRemoveDependencies") || starts(name, "cuStreamBeginCaptureToGraph");
    return shape;
}

template <class... Types>
CUresult perform(const char *name, CUresult (*function)(Types...), Argument<Types> &...arguments) {
    Player &me = *player;
    (arguments.limit(), ...);
    History::Entry &entry = me.history.add(name);
    size_t count = 0;
    ((count < History::arguments ? void(entry.values[count++] = shown(arguments.value)) : void()),
     ...);
    entry.count = count;
    me.began.store(milliseconds(), std::memory_order_relaxed);
    CUresult status = function(arguments.value...);
    me.began.store(0, std::memory_order_relaxed);
    entry.status = status;
    if (trace)
        me.history.print(me.thread, me.history.calls() - 1);
    if (status == CUDA_SUCCESS) {
        (arguments.harvest(), ...);
        if (me.shape.keeps_memory || starts(name, "cuMemSetAccess"))
            addresses.put(entry.values[0]);
    }
    return status;
}

template <class... Types> CUresult call(const char *name, CUresult (*function)(Types...)) {
    player->shape = shape_of(name);
    if (!starts(name, "cuMemcpy"))
        player->shape.counted |= (may_be_array<Types>() || ...);
    std::tuple<Argument<Types>...> arguments;
    return std::apply([&](auto &...each) { return perform<Types...>(name, function, each...); },
                      arguments);
}

#include "fuzz_code_calls.h"

// cuTexObjectCreate.
CUresult call(const char *name,
              CUresult (*function)(CUtexObject *, const CUDA_RESOURCE_DESC *,
                                   const CUDA_TEXTURE_DESC *, const CUDA_RESOURCE_VIEW_DESC *)) {
    player->shape = shape_of(name);
    Argument<CUtexObject *> object;
    Argument<const CUDA_RESOURCE_DESC *> resource;
    Argument<const CUDA_TEXTURE_DESC *> reading;
    Argument<const CUDA_RESOURCE_VIEW_DESC *> view;
    std::optional<CUDA_ARRAY3D_DESCRIPTOR> array = array_of(resource.array[0]);
    if (player->chance(80))
        fit_reading(reading.array[0], resource.array[0],
                    array ? array->Format : resource.array[0].res.linear.format);
    if (array && player->chance(80))
        fit_view(view.array[0], *array, 3);
    view.value = player->chance(array ? 50 : 90) ? nullptr : view.value;
    return perform<CUtexObject *, const CUDA_RESOURCE_DESC *, const CUDA_TEXTURE_DESC *,
                   const CUDA_RESOURCE_VIEW_DESC *>(name, function, object, resource, reading,
                                                    view);
}

// cuStreamWaitValue and cuStreamWriteValue.
template <class Word>
CUresult call(const char *name, CUresult (*function)(CUstream, CUdeviceptr, Word, unsigned)) {
    using Function = CUresult(CUstream, CUdeviceptr, Word, unsigned);
    if (!std::strstr(name, "WaitValue"))
        return call<CUstream, CUdeviceptr, Word, unsigned>(name, static_cast<Function *>(function));
    Player &me = *player;
    Argument<CUstream> stream;
    Argument<CUdeviceptr> address;
    Argument<Word> value;
    Argument<unsigned> flags;
    address.value = wait_address();
    value.value = 1;
    if (me.gated && me.chance(30))
        me.gates.close(me.random.below(Gates::count));
    return perform<CUstream, CUdeviceptr, Word, unsigned>(name, function, stream, address, value,
                                                          flags);
}

CUresult call(const char *name,
              CUresult (*function)(unsigned, CUpointer_attribute *, void **, CUdeviceptr)) {
    Argument<unsigned> count;
    Attributes<CUpointer_attribute> attributes;
    Argument<CUdeviceptr> address;
    count.value = static_cast<unsigned>(any_count());
    return perform<unsigned, CUpointer_attribute *, void **, CUdeviceptr>(
        name, function, count, attributes.kinds, attributes.data, address);
}

CUresult call(const char *name, CUresult (*function)(void **, size_t *, CUmem_range_attribute *,
                                                     size_t, CUdeviceptr, size_t)) {
    Attributes<CUmem_range_attribute> attributes;
    Argument<CUdeviceptr> address;
    Argument<size_t> count, bytes;
    count.value = any_count();
    return perform<void **, size_t *, CUmem_range_attribute *, size_t, CUdeviceptr, size_t>(
        name, function, attributes.data, attributes.sizes, attributes.kinds, count, address, bytes);
}

// The arguments of cuMemPrefetchBatchAsync and similar functions.
struct Batch {
    Argument<CUdeviceptr *> addresses;
    Argument<size_t *> sizes, indices;
    Argument<CUmemLocation *> places;
    Argument<size_t> count, place_count;
    Argument<unsigned long long> flags;
    Argument<CUstream> stream;

    Batch() {
        for (size_t i = 0; i < array_length; i++) {
            addresses.slot[i] = looked_up_address();
            sizes.slot[i] = player->chance(70) ? player->random.below(8192) : any_size();
            indices.slot[i] = player->chance(90) ? i : any_size();
        }
        count.value = player->chance(60) ? 1 : any_count();
        place_count.value = player->chance(70) ? 1 : any_count();
        flags.value = player->chance(95) ? 0 : any_bits();
    }
};

CUresult call(const char *name,
              CUresult (*function)(CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *,
                                   size_t, unsigned long long, CUstream)) {
    player->shape = shape_of(name);
    Batch batch;
    return perform<CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t,
                   unsigned long long, CUstream>(name, function, batch.addresses, batch.sizes,
                                                 batch.count, batch.places, batch.indices,
                                                 batch.place_count, batch.flags, batch.stream);
}

CUresult call(const char *name,
              CUresult (*function)(CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream)) {
    player->shape = shape_of(name);
    Batch batch;
    return perform<CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream>(
        name, function, batch.addresses, batch.sizes, batch.count, batch.flags, batch.stream);
}

// cuLogsDumpToMemory and cuLogsDumpToFile.
CUresult call(const char *name, CUresult (*function)(CUlogIterator *, char *, size_t *, unsigned)) {
    player->shape = shape_of(name);
    Argument<CUlogIterator *> iterator;
    Argument<char *> buffer;
    Argument<size_t *> size;
    Argument<unsigned> flags;
    *size.slot.get() = player->random.below(257); // the buffer's size
    flags.value = player->chance(95) ? 0 : flags.value;
    return perform<CUlogIterator *, char *, size_t *, unsigned>(name, function, iterator, buffer,
                                                                size, flags);
}

CUresult call(const char *name, CUresult (*function)(CUlogIterator *, const char *, unsigned)) {
    player->shape = shape_of(name);
    Argument<CUlogIterator *> iterator;
    Argument<const char *> path;
    Argument<unsigned> flags;
    path.value = player->chance(90) ? "/dev/null" : "/no/such/folder/file";
    flags.value = player->chance(95) ? 0 : flags.value;
    return perform<CUlogIterator *, const char *, unsigned>(name, function, iterator, path, flags);
}

// cuCoredumpGetAttribute and similar functions. The size is below 2048 bytes.
CUresult call(const char *name, CUresult (*function)(CUcoredumpSettings, void *, size_t *)) {
    player->shape = shape_of(name);
    Argument<CUcoredumpSettings> setting;
    Argument<void *> value;
    Argument<size_t *> size;
    size.slot[0] = player->random.below(2048);
    return perform<CUcoredumpSettings, void *, size_t *>(name, function, setting, value, size);
}

#if CUDA_VERSION >= 12080
// The arguments of cuMemcpyBatchAsync and cuMemcpy3DBatchAsync.
struct CopyBatch {
    bool counted = player->shape.counted = true; // so that the arguments below are arrays
    Argument<CUdeviceptr *> targets, sources;
    Argument<size_t *> sizes, indices, failed;
    Argument<size_t> count, attribute_count;
    Argument<CUmemcpyAttributes *> attributes;
    Argument<CUDA_MEMCPY3D_BATCH_OP *> boxes;
    Argument<unsigned long long> flags;
    Argument<CUstream> stream;

    CopyBatch() {
        for (size_t i = 0; i < array_length; i++) {
            player->shape.limit = SIZE_MAX; // touched_address() may lower it
            targets.slot[i] = touched_address(addresses);
            sources.slot[i] = touched_address(addresses);
            sizes.slot[i] = player->random.below(std::min<size_t>(player->shape.limit, 4096) + 1);
            indices.slot[i] = player->chance(95) ? i : any_size();
        }
        count.value = player->chance(60) ? 1 : any_count();
        attribute_count.value = player->chance(70) ? 1 : any_count();
        flags.value = player->chance(95) ? 0 : any_bits();
        player->shape.limit = SIZE_MAX;
    }
};

CUresult call(const char *name,
              CUresult (*function)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                                   CUmemcpyAttributes *, size_t *, size_t, CUstream)) {
    player->shape = shape_of(name);
    CopyBatch batch;
    return perform<CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *,
                   size_t, CUstream>(name, function, batch.targets, batch.sources, batch.sizes,
                                     batch.count, batch.attributes, batch.indices,
                                     batch.attribute_count, batch.stream);
}

CUresult call(const char *name,
              CUresult (*function)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                                   CUmemcpyAttributes *, size_t *, size_t, size_t *, CUstream)) {
    player->shape = shape_of(name);
    CopyBatch batch;
    return perform<CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *,
                   size_t, size_t *, CUstream>(
        name, function, batch.targets, batch.sources, batch.sizes, batch.count, batch.attributes,
        batch.indices, batch.attribute_count, batch.failed, batch.stream);
}

CUresult call(const char *name, CUresult (*function)(size_t, CUDA_MEMCPY3D_BATCH_OP *,
                                                     unsigned long long, CUstream)) {
    player->shape = shape_of(name);
    CopyBatch batch;
    return perform<size_t, CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream>(
        name, function, batch.count, batch.boxes, batch.flags, batch.stream);
}

CUresult call(const char *name, CUresult (*function)(size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *,
                                                     unsigned long long, CUstream)) {
    player->shape = shape_of(name);
    CopyBatch batch;
    return perform<size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *, unsigned long long, CUstream>(
        name, function, batch.count, batch.boxes, batch.failed, batch.flags, batch.stream);
}

CUresult call(const char *name,
              CUresult (*function)(CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream)) {
    player->shape = shape_of(name);
    CopyBatch batch;
    return perform<CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream>(
        name, function, batch.boxes, batch.flags, batch.stream);
}
#endif

struct Target {
    const char *name;
    soft::Needs needs;
    CUresult (*call)();
};

#define SOFT_TARGET(symbol, needs)                                                                 \
    {#symbol, soft::Needs::needs, [] { return call(#symbol, &symbol); }},
#define SOFT_SECOND_Plain(symbol, needs)
#define SOFT_SECOND_PerThreadStream(symbol, needs) SOFT_TARGET(symbol##_ptsz, needs)
#define SOFT_SECOND_PerThreadDefault(symbol, needs) SOFT_TARGET(symbol##_ptds, needs)

const Target targets[] = {
#define SOFT_FUNCTION(base, version, symbol, variant, needs, callback)                             \
    SOFT_TARGET(symbol, needs) SOFT_SECOND_##variant(symbol, needs)
#include "base/functions.def"
#undef SOFT_FUNCTION
};
constexpr size_t target_count = std::size(targets);

std::atomic<uint64_t> successes[target_count], tries[target_count];

// The probability, in percent, that a selection of functions contains this one. Functions that end
// contexts are rare, because they also destroy most objects that a sequence has created.
unsigned share_of(const char *name) {
    for (const char *ends : {"cuCtxDestroy", "cuDevicePrimaryCtxRe", "cuCtxPopCurrent",
                             "cuCtxDetach", "cuCtxSetCurrent"})
        if (starts(name, ends) && !starts(name, "cuDevicePrimaryCtxRetain"))
            return 12;
    return starts(name, "cuStream") || starts(name, "cuEvent") || starts(name, "cuMem") ? 50 : 25;
}

void check(int status, const char *name) {
    const char *text = nullptr;
    if (cuGetErrorName(static_cast<CUresult>(status), &text) || !text)
        fail(std::string(name) + " returned " + std::to_string(status));
    player->seen[status]++;
}

void call_target(size_t target) {
    CUresult status = targets[target].call();
    check(status, targets[target].name);
    tries[target].fetch_add(1, std::memory_order_relaxed);
    player->lost = status >= CUDA_ERROR_ILLEGAL_ADDRESS && status <= CUDA_ERROR_LAUNCH_FAILED;
    if (status == CUDA_SUCCESS)
        successes[target].fetch_add(1, std::memory_order_relaxed);
}

void reset() {
    static const char *const kinds[] = {"device",  "async",   "host",      "managed",  "registered",
                                        "streams", "events",  "graphs",    "contexts", "primary",
                                        "bytes",   "modules", "libraries", "links",    "execs",
                                        "objects", "arrays",  "textures",  "surfaces"};
    player->history.add("cudadrvSoftReset").status = cudadrvSoftReset();
    if (!player->alone)
        return;
    for (const char *kind : kinds)
        if (unsigned long long left = cudadrvSoftCount(kind))
            fail(std::to_string(left) + " " + kind + " left after a reset");
    if (cudadrvSoftPending())
        fail("operations left after a reset");
}

void control() {
    static const char *const settings[] = {"schedule=eager",
                                           "schedule=lazy",
                                           "schedule=random,seed=7",
                                           "seed=3",
                                           "memory=40MiB",
                                           "memory=48MiB",
                                           "fault=cuMemAlloc_v2:2:2",
                                           "fault=none",
                                           "fault=cuStreamSynchronize:3:700",
                                           "fault=cuMemcpyAsync:5:719",
                                           "fault=nothing:1:1",
                                           "devices=1",
                                           "devices=2",
                                           "devices=17",
                                           "schedule",
                                           "concurrent_managed=0",
                                           "fault=cuStreamWaitEvent:1:999",
                                           "=,",
                                           "report=/tmp",
                                           "memory=1EiB"};
    soft::Random &random = player->random;
    switch (random.below(5)) {
    case 0:
        // The first setting, the eager schedule, cannot be replayed.
        cudadrvSoftConfigure(
            player->chance(4)
                ? nullptr
                : settings[!player->gated + random.below(std::size(settings) - !player->gated)]);
        break;
    case 1:
        cudadrvSoftDrain();
        break;
    case 2:
        cudadrvSoftCount(any_text());
        cudadrvSoftError();
        break;
    case 3:
        cudadrvSoftCalls(any_text());
        break;
    case 4:
        cudadrvSoftPending();
        break;
    }
}

bool chosen(const char *name) {
    bool found = only.empty();
    for (const std::string &part : only)
        found |= std::strstr(name, part.c_str()) != nullptr;
    return found;
}

void play(size_t calls) {
    std::vector<size_t> selection;
    for (size_t i = 0; i < calls; i++) {
        if (i % segment == 0) {
            selection.clear();
            while (selection.size() < 3)
                for (size_t target = 0; target < target_count; target++)
                    if (chosen(targets[target].name) &&
                        player->chance(share_of(targets[target].name)))
                        selection.push_back(target);
        }
        // With few functions, no call could succeed after a lost device. So reset more often.
        if (player->alone ? i % lifetime == lifetime - 1 : player->random.below(lifetime) == 0)
            reset();
        else if (!only.empty() && player->lost && player->chance(30))
            reset();
        if (player->chance(1))
            control();
        if (player->chance(only.empty() ? 25 : 70))
            find_context();
        if (player->chance(4))
            supply();
        if (player->chance(1) && (only.empty() || player->chance(20)))
            capture();
        if (player->chance(only.empty() ? 1 : 3))
            build_graph();
        if (player->chance(only.empty() ? 1 : 5))
            look();
        call_target(selection[player->random.below(selection.size())]);
    }
}

// Before cuInit, all functions that need it must return CUDA_ERROR_NOT_INITIALIZED, whatever the
// arguments are. Some check their arguments first.
void check_uninitialised() {
    for (const Target &target : targets) {
        if (!std::strcmp(target.name, "cuInit"))
            continue;
        CUresult status = target.call();
        bool refused = target.needs == soft::Needs::Later ? status != CUDA_SUCCESS
                                                          : status == CUDA_ERROR_NOT_INITIALIZED;
        if (target.needs != soft::Needs::Nothing && !refused)
            fail(std::string(target.name) + " before cuInit returned " + std::to_string(status));
    }
}

void *watch(void *) {
    for (unsigned round = 0;; round++) {
        usleep(200);
        uint64_t now = round % 1000 ? 0 : milliseconds();
        for (const auto &each : players) {
            each->gates.open_all();
            uint64_t began = each->began.load(std::memory_order_relaxed);
            if (began && now > began + longest_call)
                fail("a call of thread " + std::to_string(each->thread) + " does not end");
        }
    }
    return nullptr;
}

void print_counts() {
    for (size_t target = 0; target < target_count; target++)
        if (tries[target])
            std::printf("%s %llu %llu\n", targets[target].name,
                        (unsigned long long)tries[target].load(),
                        (unsigned long long)successes[target].load());
    for (size_t status = 0; status < player->seen.size(); status++)
        if (player->seen[status])
            std::printf("status %zu %llu\n", status, (unsigned long long)player->seen[status]);
}

void summarize(uint64_t began) {
    uint64_t calls = 0, good = 0;
    for (const auto &each : players) {
        calls += each->history.calls();
        good += each->seen[CUDA_SUCCESS];
    }
    std::string never;
    for (size_t target = 0; target < target_count; target++)
        if (!successes[target] && chosen(targets[target].name))
            never += std::string(" ") + targets[target].name;
    uint64_t elapsed = std::max<uint64_t>(milliseconds() - began, 1);
    std::printf(
        "fuzz: %llu calls, %llu succeeded, %llu calls a second; %llu kernels used textures, "
        "%llu without a fault; never succeeded:%s\n",
        (unsigned long long)calls, (unsigned long long)good,
        (unsigned long long)(calls * 1000 / elapsed), (unsigned long long)looks.load(),
        (unsigned long long)good_looks.load(), never.empty() ? " none" : never.c_str());
    if (std::getenv("FUZZ_COUNTS"))
        print_counts();
}

} // namespace
} // namespace fuzz

// With several threads a copy may still use memory of the program that another thread has just
// freed. That is an error of this program, which the sanitizer must not report.
extern "C" int __real_munmap(void *, size_t);
extern "C" int __wrap_munmap(void *address, size_t bytes) {
    if (fuzz::quarantine)
        return madvise(address, bytes, MADV_DONTNEED);
    return __real_munmap(address, bytes);
}

extern "C" __attribute__((weak)) void __gcov_dump();
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*)());
// Sanitizers end a process in different ways; make this one use a signal.
extern "C" const char *__ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }
// Races on the program's memory are errors of the program. This program makes them on purpose; they
// appear in the innermost functions of copies, fills and values in memory.
extern "C" const char *__tsan_default_suppressions() {
    return "race_top:memmove\nrace_top:memcpy\nrace_top:memset\n"
           "race_top:__fill_a1\nrace_top:fill_operation\nrace_top:fill_rows\nrace_top:softdriver/"
           "value\n";
}

int main(int count, char **arguments) {
    using namespace fuzz;
    // Disable address randomization if the system permits it, for equal addresses in each run.
    int before = personality(0xffffffff);
    if (before != -1 && !(before & ADDR_NO_RANDOMIZE) &&
        personality(before | ADDR_NO_RANDOMIZE) != -1)
        execv("/proc/self/exe", arguments);
    if (count < 3) {
        std::fprintf(stderr, "usage: fuzz SEED CALLS [THREADS] [SETTINGS]\n");
        return 2;
    }
    for (int i = 0; i < count; i++)
        command += std::string(i ? " " : "") + arguments[i];
    uint64_t seed = std::strtoull(arguments[1], nullptr, 0);
    size_t calls = std::strtoull(arguments[2], nullptr, 0);
    size_t threads = count > 3 ? std::strtoull(arguments[3], nullptr, 0) : 1;
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(explain);
    std::signal(SIGABRT, [](int) { explain(); });
    std::string settings = "devices=2,memory=48MiB,instructions=20000,kernel_faults=record,seed=" +
                           std::to_string(seed);
    if (count > 4)
        settings += std::string(",") + arguments[4];
    if (cudadrvSoftConfigure(settings.c_str()))
        fail(cudadrvSoftError());
    quarantine = threads > 1;
    trace = std::getenv("FUZZ_TRACE");
    std::istringstream names(std::getenv("FUZZ_NAMES") ? std::getenv("FUZZ_NAMES") : "");
    for (std::string name; std::getline(names, name, ',');)
        only.push_back(name);
    for (size_t i = 0; i < threads; i++)
        players.push_back(std::make_unique<Player>(seed, i, threads == 1));
    player = players[0].get();
    uint64_t began = milliseconds();
    check_uninitialised();
    cuInit(0);
    pthread_t watcher;
    pthread_create(&watcher, nullptr, watch, nullptr);
    std::vector<std::thread> running;
    for (size_t i = 1; i < threads; i++)
        running.emplace_back([=] {
            player = players[i].get();
            play(calls);
        });
    play(calls);
    for (auto &thread : running)
        thread.join();
    cudadrvSoftReset();
    summarize(began);
    std::fflush(stdout);
    if (__gcov_dump)
        __gcov_dump();
    _exit(0); // the driver's threads never end
}
