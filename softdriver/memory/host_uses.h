#pragma once

#include "base/race_clock.h"
#include "base/waiting.h"
#include "memory/guarded.h"
#include "work/operation.h"

#include <utility>

namespace soft {

struct Allocation;

// Uses of page-locked and managed memory by the host while work in flight uses it, too, under the
// schedule `replay`: such a use is a step of the host. Clients that refuse such uses themselves
// (control.h: cudadrvSoftSetWords) are not watched. All functions are called with the state lock
// held, if they do not say otherwise.
class HostUses {
  public:
    HostUses();

    // Returns whether memory that is allocated now is to be mapped twice.
    static bool watching();
    // Called for memory that is mapped twice, and when the program frees it.
    void allocated(const Allocation &memory);
    // Called for memory that is mapped twice for the program, and not to watch it. A forked child
    // gets a copy of it, too.
    void mapped_twice(const Allocation &memory);
    void removed(const Allocation &memory) { guarded_.remove(memory.begin); }
    // Returns whether the driver notices a use of the memory by the host at once.
    bool sees(const Allocation &memory) const;
    // Called when an operation has been submitted.
    void submitted(const OperationPtr &operation);
    // Takes away what the program may do while other work runs: called before an operation runs.
    void close();
    // Called when a wait or a query has told the host that work is done: gives the program the
    // rights to what this work used. The system refuses calls such as read() for pages without
    // rights, so this must not wait until the program uses the pages.
    void learned();
    // Returns the bytes that host functions have used since the last call.
    std::vector<Range> reads_of_function() { return std::exchange(reads_of_function_, {}); }
    std::vector<Range> writes_of_function() { return std::exchange(writes_of_function_, {}); }
    // Called for bytes that the host function uses which is running.
    void used_by_function(const Range &bytes, bool writes) {
        (writes ? writes_of_function_ : reads_of_function_).push_back(bytes);
    }
    // Called when a run begins.
    void start();

  private:
    static void refused(const RefusedAccess &access);
    void use(Lock &lock, const RefusedAccess &access);
    bool is_in_use(const Range &page, bool writes);
    void forget_known();
    void renew(const Allocation &memory);
    void renew_all();
    void give(const Range &page, bool writes);
    std::vector<Rights> wanted(const Allocation &memory) const;
    void watch_polling();
    static void *watch(void *);

    Guarded guarded_;
    std::vector<OperationPtr> in_flight_; // operations that are not done, as far as the host knows
    bool opened_ = false;                 // the program has rights that close() takes away
    bool watches_ = false, polls_ = false;
    // The memory of the last use, how many consecutive pages of it were used, and how many steps
    // there were then.
    uintptr_t last_ = 0;
    unsigned pages_ = 0;
    size_t looks_ = 0;
    std::vector<Range> reads_of_function_, writes_of_function_;
};

} // namespace soft
