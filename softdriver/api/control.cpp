#include "api/control.h"
#include "api/call.h"

#include "api/counts.h"
#include "api/names.h"
#include "api/state.h"
#include "base/undefined.h"
#include "memory/host_pages.h"
#include "race/race_names.h"
#include "work/tracer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace soft {

thread_local std::string last_error;

namespace {

constexpr const char *version_text = "0.1.0";

bool context_alive() {
    for (const auto &entry : state().contexts)
        if (entry.second->alive)
            return true;
    return false;
}

int fail(const std::string &why) {
    last_error = why;
    return CUDA_ERROR_INVALID_VALUE;
}

int configure(const char *text) {
    State &driver = state();
    Settings before = driver.settings, after = before;
    std::string problem = apply_settings(text, after);
    if (!problem.empty())
        return fail(problem);
    bool hardware =
        after.devices != before.devices || after.concurrent_managed != before.concurrent_managed;
    if (hardware && context_alive())
        return fail("devices and concurrent_managed cannot change while a context is alive");
    if (after.report != before.report)
        return fail("report is a setting of CUDADRV_SOFTWARE only");
    if (after.explore != before.explore)
        return fail("explore is a setting of CUDADRV_SOFTWARE only");
    if (before.races == RaceMode::Off || after.races == RaceMode::Off)
        driver.races.start_over();
    driver.settings = after;
    undefined_memory().turn(after.checks & check_init);
    const std::string named = text ? text : "";
    bool seeded = named.find("seed=") != std::string::npos ||
                  named.find("script=") != std::string::npos || after.schedule != before.schedule;
    if (seeded)
        driver.start_choosing();
    if (driver.initialised && after.devices != before.devices)
        driver.create_devices();
    driver.scheduler.reconsider();
    last_error.clear();
    return CUDA_SUCCESS;
}

// Called at exit. Reports what still waits for names from the client, without these names, because
// it is too late to call the client.
void tell_unnamed() {
    if (in_forked_child())
        return;
    Lock lock(state().mutex, std::try_to_lock);
    if (!lock.owns_lock())
        return;
    state().races.list.flush();
    state().hazards.flush();
    state().kernel_fault.tell();
}

// Destroys everything and clears sticky errors, so that the state is as after cuInit. The calling
// thread then has no current context.
void reset(Lock &lock, bool keep_host_memory) {
    State &driver = state();
    auto everything = [](const Stream &) { return true; };
    driver.scheduler.drop(everything);
    driver.scheduler.settle(lock, everything);
    driver.races.start_over();
    if (keep_host_memory)
        abandon_host_memory();
    std::vector<ContextPtr> contexts;
    for (const auto &entry : driver.contexts)
        if (entry.second->alive)
            contexts.push_back(entry.second);
    for (const auto &context : contexts)
        destroy_context(lock, context);
    driver.execs.clear();
    driver.nodes.clear();
    driver.graphs.clear();
    driver.user_objects.clear();
    unload_libraries();
    driver.kernel_fault.tell();
    driver.kernel_fault = {};
    destroy_pools();
    destroy_reservations();
    for (const auto &device : driver.devices) {
        device->sticky = CUDA_SUCCESS;
        device->primary_retains = 0;
        device->primary_flags = 0;
    }
    driver.races.list.clear();
    driver.hazards.clear();
    driver.settings.faults.clear();
    thread_state().contexts.clear();
}

// Finds the pages of a range of managed memory, and updates their places and copies according to
// what the host has used and written.
int find_noticed_pages(uintptr_t address, size_t bytes, Pages &pages) {
    if (CUresult status = find_pages(address, bytes, pages))
        return status;
    if (!sees_page_table())
        return CUDA_ERROR_NOT_SUPPORTED;
    notice_host(pages);
    return CUDA_SUCCESS;
}

} // namespace
} // namespace soft

using namespace soft;

extern "C" int cudadrvSoftConfigure(const char *settings) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    return configure(settings);
}

extern "C" const char *cudadrvSoftSettings(void) {
    static thread_local std::string text;
    if (in_forked_child())
        return "";
    Lock lock(state().mutex);
    text = settings_text(state().settings);
    return text.c_str();
}

extern "C" const char *cudadrvSoftError(void) { return last_error.c_str(); }

extern "C" unsigned long long cudadrvSoftCount(const char *kind) {
    if (in_forked_child() || !kind)
        return ~0ull;
    Lock lock(state().mutex);
    uint64_t found = count_objects(kind);
    if (found == ~uint64_t(0))
        last_error = std::string("unknown kind '") + kind + "'";
    return found;
}

extern "C" unsigned long long cudadrvSoftCalls(const char *function) {
    if (!function || !*function)
        return all_calls() + all_unsupported_calls();
    Function found = find_function(function);
    return found == Function::Count ? unsupported_calls_of(function) : calls_of(found);
}

extern "C" const char *cudadrvSoftUnsupported(unsigned long long index) {
    return unsupported_called(index);
}

extern "C" int cudadrvSoftDrain(void) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    state().scheduler.drain(lock);
    name_races(lock);
    return CUDA_SUCCESS;
}

extern "C" unsigned long long cudadrvSoftPending(void) {
    if (in_forked_child())
        return 0;
    Lock lock(state().mutex);
    return state().scheduler.pending();
}

extern "C" int cudadrvSoftReset(void) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    reset(lock, false);
    return CUDA_SUCCESS;
}

extern "C" int cudadrvSoftRenew(void) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    reset(lock, true);
    return CUDA_SUCCESS;
}

extern "C" unsigned long long cudadrvSoftRaces(void) {
    if (in_forked_child())
        return 0;
    Lock lock(state().mutex);
    state().races.look();
    name_races(lock);
    return state().races.list.size();
}

extern "C" const char *cudadrvSoftRaceText(unsigned long long index) {
    static thread_local std::string text;
    if (in_forked_child())
        return nullptr;
    Lock lock(state().mutex);
    if (index >= state().races.list.size())
        return nullptr;
    text = state().races.list.text(index);
    return text.c_str();
}

extern "C" int cudadrvSoftForgetRaces(void) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    state().races.list.clear();
    return CUDA_SUCCESS;
}

extern "C" unsigned long long cudadrvSoftHazards(void) {
    if (in_forked_child())
        return 0;
    Lock lock(state().mutex);
    name_hazards(lock);
    return state().hazards.all().size();
}

extern "C" const char *cudadrvSoftHazard(unsigned long long index) {
    static thread_local std::string text;
    if (in_forked_child())
        return nullptr;
    Lock lock(state().mutex);
    if (index >= state().hazards.all().size())
        return nullptr;
    text = state().hazards.json(index);
    return text.c_str();
}

extern "C" int cudadrvSoftForgetHazards(void) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    state().hazards.clear();
    return CUDA_SUCCESS;
}

extern "C" int cudadrvSoftSetWords(const cudadrvSoftWords *words) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    state().words = words ? *words : cudadrvSoftWords();
    static const int registered = std::atexit(tell_unnamed);
    return registered;
}

extern "C" void cudadrvSoftTrace(const cudadrvSoftTracer *told) {
    if (in_forked_child())
        return;
    Lock lock(state().mutex); // no call of the former functions goes on afterwards
    tracer = told;
}

extern "C" void cudadrvSoftMapTwice(int on) {
    if (in_forked_child())
        return;
    Lock lock(state().mutex);
    state().maps_twice = on != 0;
}

extern "C" int cudadrvSoftIsMappedTwice(unsigned long long address) {
    if (in_forked_child())
        return 0;
    Lock lock(state().mutex);
    const Allocation *memory = find_allocation(address);
    return memory && memory->page_locked() && !memory->pool &&
           reinterpret_cast<uintptr_t>(memory->host) != memory->begin;
}

extern "C" int cudadrvSoftRenewMemory(CUdeviceptr address, size_t bytes) {
    if (!undefined_memory().is_on() || in_forked_child())
        return CUDA_SUCCESS;
    Lock lock(state().mutex);
    const Allocation *allocation = find_range(address, bytes);
    if (!allocation)
        return CUDA_ERROR_INVALID_VALUE;
    if (allocation->on_device() && !state().scheduler.pending())
        undefined_memory().track(address, bytes);
    return CUDA_SUCCESS;
}

extern "C" int cudadrvSoftTagStream(CUcontext handle, CUstream stream, unsigned long long tag) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    ContextPtr context = find_context(handle);
    if (!context || !context->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    bool is_default = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    StreamPtr found = is_default
                          ? default_stream(thread_state(), context, stream == CU_STREAM_PER_THREAD)
                          : state().streams.find(reinterpret_cast<uintptr_t>(stream));
    if (!found || found->owner != context.get())
        return CUDA_ERROR_INVALID_HANDLE;
    found->tag = tag;
    return CUDA_SUCCESS;
}

extern "C" const char *cudadrvSoftFaultText(void) {
    static thread_local std::string text;
    if (in_forked_child())
        return nullptr;
    Lock lock(state().mutex);
    name_kernel_fault(lock);
    text = state().kernel_fault.text;
    return text.empty() ? nullptr : text.c_str();
}

extern "C" const char *cudadrvSoftFaultOf(int device) {
    if (in_forked_child())
        return nullptr;
    Lock lock(state().mutex);
    bool other = state().kernel_fault.device != device;
    lock.unlock();
    return other ? nullptr : cudadrvSoftFaultText();
}

extern "C" int cudadrvSoftPageFaults(unsigned long long address, unsigned long long bytes,
                                     unsigned long long faults[2]) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    Pages pages;
    if (int status = find_noticed_pages(address, bytes, pages))
        return status;
    PageFaults sum = faults_of(pages);
    faults[0] = sum.host;
    faults[1] = sum.device;
    return CUDA_SUCCESS;
}

extern "C" int cudadrvSoftPagePlaces(unsigned long long address, unsigned long long bytes,
                                     int *places, unsigned long long count) {
    if (in_forked_child())
        return CUDA_ERROR_NOT_INITIALIZED;
    Lock lock(state().mutex);
    Pages pages;
    if (int status = find_noticed_pages(address, bytes, pages))
        return status;
    size_t end = std::min<size_t>(pages.end, pages.begin + count * page_bytes);
    pages.managed->pages.visit(pages.begin, end,
                               [&](size_t from, size_t to, const PageState &page) {
                                   std::fill(places + (from - pages.begin) / page_bytes,
                                             places + (to - pages.begin) / page_bytes, page.place);
                               });
    return CUDA_SUCCESS;
}

extern "C" const char *cudadrvSoftVersion(void) { return version_text; }
