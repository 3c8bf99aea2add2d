#pragma once

#include "api/explore_process.h"
#include "api/logs.h"
#include "api/report.h"
#include "base/functions.h"
#include "device/context.h"
#include "race/race_names.h"
#include "work/steps.h"

#include <new>
#include <string>
#include <utility>
#include <vector>

namespace soft {

// What the driver keeps for each thread of the program.
struct ThreadState {
    std::vector<ContextPtr> contexts; // stack of the thread's contexts; the last one is current
    // The mode that cuThreadExchangeStreamCaptureMode has set. That function accepts any number.
    int capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    // The function that the thread is calling, or has called last.
    Function function = Function::Count;
};

ThreadState &thread_state();

// True while the thread is in a function of the driver.
extern thread_local bool in_call;
// True in a driver thread while the thread runs a host function.
extern thread_local bool in_callback;

// Why a thread queries events and streams: see cudadrvSoftAsks.
enum class AsksFor { Answer, End, Reuse };
extern thread_local AsksFor asks_for;

// One call of an exported function. The constructor counts the call, applies injected faults,
// checks the preconditions, and lets the random schedule run some operations. It also takes the
// state lock, which is held until the body returns.
class Call {
  public:
    Call(Function function, bool per_thread);
    ~Call() { in_call = before_; }
    Call(const Call &) = delete;

    // If not CUDA_SUCCESS, the call returns this error and its body does not run.
    CUresult refused = CUDA_SUCCESS;
    Lock lock;
    const bool per_thread; // true: stream 0 means the per-thread stream
    ThreadState *thread = nullptr;
    ContextPtr context; // current context of the thread; may be null or destroyed

    // Returns an error if a precondition of the function does not hold. The constructor calls this,
    // except for functions with Needs::Later, whose bodies call it.
    CUresult require(Needs needs);

  private:
    CUresult enter(Function number);
    CUresult check_context(Needs needs) const;

    const FunctionInfo &function_;
    const bool before_ = in_call;
};

// Returns CUDA_SUCCESS if the context can be used, and an error if it is null, destroyed, or lost
// to a sticky error.
CUresult context_status(const Context *context);

// Called by cuInit. From then on, children that the process forks cannot use the driver.
void forbid_forked_children();
// Returns true in a child that was forked after cuInit. In such a child no call takes the state
// lock, and every call that needs the state fails.
bool in_forked_child();

// The reason why the last cuInit or cudadrvSoftConfigure of this thread failed.
extern thread_local std::string last_error;

uint64_t calls_of(Function function);
uint64_t all_calls();
// Notes that the present call of this function is not supported, and the reason.
void note_refusal(const char *symbol) noexcept;
// The name of an error; null if there is no such error.
const char *error_name(int status);

template <class Body, class... Arguments>
CUresult run_call(Function function, bool per_thread, Body body, Arguments... arguments) noexcept {
    try {
        Call call(function, per_thread);
        CUresult status = call.refused ? call.refused : body(call, arguments...);
        if (call.lock.owns_lock()) {
            name_races(call.lock);
            name_new_steps(call.lock);
            place_new_steps(call.lock);
            note_objects();
        }
        return status;
    } catch (const std::bad_alloc &) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

template <class Body, class... Arguments>
CUresult enter(Function function, bool per_thread, Body body, Arguments... arguments) noexcept {
    CUresult status = run_call(function, per_thread, body, arguments...);
    // CUDA_ERROR_NOT_READY is an answer, not a failure.
    if (status != CUDA_SUCCESS && status != CUDA_ERROR_NOT_READY) {
        if (status == CUDA_ERROR_NOT_SUPPORTED)
            note_refusal(info(function).symbol);
        log_failed_call(info(function).symbol, status);
    }
    if (logs_are_due.load(std::memory_order_relaxed))
        tell_callbacks();
    return status;
}

} // namespace soft

#define SOFT_UNPACK(...) __VA_ARGS__

// Defines an exported function. The body follows the macro and can use the parameters and `Call
// &call`.
#define SOFT_API(symbol, parameters, arguments)                                                    \
    static CUresult symbol##_body(Call &call, SOFT_UNPACK parameters);                             \
    SOFT_EXPORT CUresult CUDAAPI symbol parameters {                                               \
        return enter(Function::symbol, false, symbol##_body, SOFT_UNPACK arguments);               \
    }                                                                                              \
    static CUresult symbol##_body([[maybe_unused]] Call &call, SOFT_UNPACK parameters)

// Like SOFT_API, for a function without parameters.
#define SOFT_API_BARE(symbol)                                                                      \
    static CUresult symbol##_body(Call &call);                                                     \
    SOFT_EXPORT CUresult CUDAAPI symbol(void) {                                                    \
        return enter(Function::symbol, false, symbol##_body);                                      \
    }                                                                                              \
    static CUresult symbol##_body([[maybe_unused]] Call &call)

// Like SOFT_API, but also defines a second symbol (suffix _ptsz or _ptds), for which stream 0 means
// the per-thread stream.
#define SOFT_API_TWICE(symbol, suffix, parameters, arguments)                                      \
    static CUresult symbol##_body(Call &call, SOFT_UNPACK parameters);                             \
    SOFT_EXPORT CUresult CUDAAPI symbol##suffix parameters {                                       \
        return enter(Function::symbol, true, symbol##_body, SOFT_UNPACK arguments);                \
    }                                                                                              \
    SOFT_API(symbol, parameters, arguments)

#define SOFT_STREAM_API(symbol, parameters, arguments)                                             \
    SOFT_API_TWICE(symbol, _ptsz, parameters, arguments)
#define SOFT_DEFAULT_API(symbol, parameters, arguments)                                            \
    SOFT_API_TWICE(symbol, _ptds, parameters, arguments)
