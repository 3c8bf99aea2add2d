#pragma once

#include "base/functions.h"
#include "device/context.h"
#include "race/race_names.h"

#include <new>
#include <string>
#include <utility>
#include <vector>

namespace soft {

// What the driver keeps for each thread of the program.
struct ThreadState {
    std::vector<ContextPtr> contexts;                 // the last one is current
    int capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL; // or any number that the program sets
    Function function = Function::Count;              // the one that it is in, or was in last
};

ThreadState &thread_state();

// True on a driver thread while it runs a host function.
extern thread_local bool in_callback;

// One call of an exported function: counts it, lets faults strike, refuses it where it may not be
// made, gives the random schedule its turn, and holds the state lock for the body.
class Call {
  public:
    Call(Function function, bool per_thread);

    CUresult refused = CUDA_SUCCESS; // if set, the body is not entered
    Lock lock;
    const bool per_thread; // whether the default stream is the per-thread one
    ThreadState *thread = nullptr;
    ContextPtr context; // the current one, possibly null or destroyed

    // What must hold before a function goes on. Called for all but those that need it `Later`.
    CUresult require(Needs needs);

  private:
    CUresult enter(Function number);
    CUresult check_context(Needs needs) const;

    const FunctionInfo &function_;
};

// The status of a call that needs this context, if it is to touch its device.
CUresult context_status(const Context *context);

// The driver has been initialised: from now on it does not work in children of the process.
void forbid_forked_children();
// True in a child of the process that initialised the driver: nothing works there that needs the
// state, and no lock is taken.
bool in_forked_child();

// Why the last cuInit or configuration on this thread failed.
extern thread_local std::string last_error;

uint64_t calls_of(Function function);
uint64_t all_calls();

template <class Body, class... Arguments>
CUresult enter(Function function, bool per_thread, Body body, Arguments... arguments) noexcept {
    try {
        Call call(function, per_thread);
        CUresult status = call.refused ? call.refused : body(call, arguments...);
        if (call.lock.owns_lock())
            name_races(call.lock);
        return status;
    } catch (const std::bad_alloc &) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

} // namespace soft

#define SOFT_UNPACK(...) __VA_ARGS__

// Defines an exported function; the body that follows also has `Call &call`.
#define SOFT_API(symbol, parameters, arguments)                                                    \
    static CUresult symbol##_body(Call &call, SOFT_UNPACK parameters);                             \
    SOFT_EXPORT CUresult CUDAAPI symbol parameters {                                               \
        return enter(Function::symbol, false, symbol##_body, SOFT_UNPACK arguments);               \
    }                                                                                              \
    static CUresult symbol##_body([[maybe_unused]] Call &call, SOFT_UNPACK parameters)

// The same for a function without parameters.
#define SOFT_API_BARE(symbol)                                                                      \
    static CUresult symbol##_body(Call &call);                                                     \
    SOFT_EXPORT CUresult CUDAAPI symbol(void) {                                                    \
        return enter(Function::symbol, false, symbol##_body);                                      \
    }                                                                                              \
    static CUresult symbol##_body([[maybe_unused]] Call &call)

// The same with a second symbol, whose default stream is the calling thread's own.
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
