#include "api/call.h"

#include "api/names.h"
#include "api/report.h"
#include "api/state.h"
#include "base/notes.h"
#include "base/unsupported.h"

#include <atomic>
#include <pthread.h>

namespace soft {

thread_local bool in_call = false;
thread_local bool in_callback = false;

namespace {

// True when cuInit has succeeded. A child that is forked later has no worker threads.
std::atomic<bool> started{false};
std::atomic<bool> forked{false};
std::atomic<uint64_t> call_counts[function_count];
std::atomic<uint64_t> call_total{0};

thread_local ThreadState *current_thread = nullptr;
pthread_key_t thread_key;

// Called when a thread ends. Abandons the captures that the thread began in its per-thread streams,
// because no other thread can end them.
void abandon_captures(const ThreadState &thread) {
    auto &captures = state().captures;
    for (size_t i = captures.size(); i-- > 0;) {
        CapturePtr capture = captures[i];
        if (capture->thread != &thread)
            continue;
        capture->thread = nullptr;
        if (capture->origin->kind == StreamKind::PerThread)
            abandon_capture(*capture);
    }
}

// Runs when a thread ends. Drops the driver's references to the thread's per-thread streams;
// unfinished work keeps a stream alive.
void destroy_thread(void *pointer) {
    auto *thread = static_cast<ThreadState *>(pointer);
    if (forked)
        return;
    Lock lock(state().mutex);
    abandon_captures(*thread);
    for (const auto &entry : state().contexts)
        entry.second->per_thread.erase(thread);
    current_thread = nullptr;
    delete thread;
}

// Runs in a forked child, which has made no calls yet.
void start_child() {
    forked = started.load();
    for (auto &count : call_counts)
        count = 0;
    call_total = 0;
    forget_unsupported_calls();
}

// Runs when the library is loaded.
[[gnu::constructor]] void prepare_process() {
    pthread_key_create(&thread_key, destroy_thread);
    pthread_atfork(nullptr, nullptr, start_child);
}

// Returns true if the caller is a host function, which must not call this function.
bool refuses_callback(const FunctionInfo &function) {
    return in_callback && function.callback == Callback::Refused;
}

} // namespace

ThreadState &thread_state() {
    if (!current_thread) {
        current_thread = new ThreadState;
        pthread_setspecific(thread_key, current_thread);
    }
    return *current_thread;
}

void forbid_forked_children() { started = true; }
bool in_forked_child() { return forked.load(std::memory_order_relaxed); }

uint64_t calls_of(Function function) { return call_counts[static_cast<int>(function)]; }
uint64_t all_calls() { return call_total; }

void note_refusal(const char *symbol) noexcept {
    try {
        note(Note::NotSupported, symbol + (": " + why_not_supported()));
    } catch (const std::bad_alloc &) { // the call still returns its status
    }
}

CUresult context_status(const Context *context) {
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context->device->sticky;
}

thread_local AsksFor asks_for = AsksFor::Answer;

Call::Call(Function function, bool per_thread) : per_thread(per_thread), function_(info(function)) {
    in_call = true;
    refused = enter(function);
}

CUresult Call::enter(Function number) {
    // A forked child has no workers, and a thread of the parent may have held the state's mutex at
    // the fork. So only functions that need neither work in the child.
    if (forked.load(std::memory_order_relaxed)) {
        if (function_.needs == Needs::Nothing)
            return CUDA_SUCCESS;
        note_forked(function_.symbol);
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    State &driver = state(); // the first call may go on in a child, which has counted nothing
    call_counts[static_cast<int>(number)].fetch_add(1, std::memory_order_relaxed);
    call_total.fetch_add(1, std::memory_order_relaxed);
    if (function_.needs != Needs::Later && refuses_callback(function_))
        return CUDA_ERROR_NOT_PERMITTED;
    note_call();
    lock = Lock(driver.mutex, std::defer_lock);
    acquire(lock);
    thread = &thread_state();
    thread->function = number;
    driver.races.look();
    CUresult fault = driver.settings.faults.strike_call(number);
    if (!thread->contexts.empty())
        context = thread->contexts.back();
    if (fault != CUDA_SUCCESS) {
        if (fault == CUDA_ERROR_NOT_SUPPORTED)
            not_supported("the setting fault= asks for this error");
        if (is_sticky(fault) && context)
            lose_device(*context->device, fault);
        return fault;
    }
    bool at_once = function_.needs != Needs::Nothing && function_.needs != Needs::Later;
    return at_once ? require(function_.needs) : CUDA_SUCCESS;
}

CUresult Call::require(Needs needs) {
    State &driver = state();
    if (refuses_callback(function_))
        return CUDA_ERROR_NOT_PERMITTED;
    if (!driver.initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (driver.settings.schedule == Schedule::Random && !in_callback)
        driver.scheduler.step(lock);
    return check_context(needs);
}

CUresult Call::check_context(Needs needs) const {
    switch (needs) {
    case Needs::Current:
        return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    case Needs::Usable:
        return context_status(context.get());
    case Needs::Optional:
        return context ? context_status(context.get()) : CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}

} // namespace soft
