#include "memory/host_uses.h"

#include "api/call.h"
#include "api/state.h"
#include "base/caller.h"

#include <algorithm>
#include <unistd.h>

namespace soft {
namespace {

// After a program has used this many consecutive pages, a use counts as a use of the whole memory.
constexpr unsigned most_pages = 8;
constexpr unsigned polls_after = 1; // seconds without a call of the driver or a step

Rights lower_of(Rights one, Rights other) { return std::min(one, other); }

// Returns the rights that the program has to a page while work reads it, or `writes` it. Other
// accesses of the program become steps.
Rights beside(bool writes) { return writes ? Rights::None : Rights::Read; }

// Calls `each` for each contiguous part of a range.
template <class Each> void for_parts(const Range &range, const Each &each) {
    if (range.contiguous() || range.pitch < 2 * Guarded::page)
        return each(range.begin, range.end());
    for (size_t row = 0; row < range.rows; row++)
        each(range.begin + row * range.pitch, range.begin + row * range.pitch + range.bytes);
}

template <class Each> void for_uses(const Operation &operation, const Each &each) {
    for (const Range &range : operation.reads)
        each(range, false);
    for (const auto *ranges : {&operation.writes, &operation.updates})
        for (const Range &range : *ranges)
            each(range, true);
}

std::string words_for(const Allocation &memory, const RefusedAccess &access) {
    std::string place = python_line(false);
    if (place.empty())
        place = place_of_code(access.instruction);
    return std::string("the host ") + (access.writes ? "writes " : "reads ") +
           (memory.managed ? "managed" : "page-locked") + " memory" +
           (place.empty() ? "" : " at " + place);
}

} // namespace

HostUses::HostUses() : guarded_(refused) {}

bool HostUses::watching() { return state().chooser.replays() && !state().words.operation; }

void HostUses::start() {
    in_flight_.clear();
    polls_ = false;
    reads_of_function_.clear();
    writes_of_function_.clear();
}

void HostUses::mapped_twice(const Allocation &memory) {
    guarded_.add(memory.begin, memory.bytes, memory.host);
}

void HostUses::allocated(const Allocation &memory) {
    mapped_twice(memory);
    opened_ = true; // kernels in flight may use it
    if (watches_)
        return;
    watches_ = true;
    watch_polling();
}

bool HostUses::sees(const Allocation &memory) const { return guarded_.holds(memory.begin); }

void HostUses::submitted(const OperationPtr &operation) {
    if (!watching() || operation->only_orders() || operation->on_worker)
        return;
    in_flight_.push_back(operation);
    opened_ |= operation->unforeseen;
    for_uses(*operation, [&](const Range &range, bool) { opened_ |= guarded_.holds(range.begin); });
    close();
}

void HostUses::forget_known() {
    auto known = [](const OperationPtr &operation) { return state().steps.knows(*operation); };
    in_flight_.erase(std::remove_if(in_flight_.begin(), in_flight_.end(),
                                    [&](auto &operation) { return known(operation); }),
                     in_flight_.end());
}

std::vector<Rights> HostUses::wanted(const Allocation &memory) const {
    std::vector<Rights> pages((memory.bytes + Guarded::page - 1) / Guarded::page, Rights::All);
    uintptr_t end = memory.begin + memory.bytes;
    for (const OperationPtr &operation : in_flight_) {
        if (operation->unforeseen)
            std::fill(pages.begin(), pages.end(), Rights::None);
        for_uses(*operation, [&](const Range &range, bool writes) {
            for_parts(range, [&](uintptr_t first, uintptr_t last) {
                first = std::max(first, memory.begin);
                last = std::min(last, end);
                if (first >= last)
                    return;
                size_t page = (first - memory.begin) / Guarded::page;
                for (; page <= (last - 1 - memory.begin) / Guarded::page; page++)
                    pages[page] = lower_of(pages[page], beside(writes));
            });
        });
    }
    return pages;
}

void HostUses::renew(const Allocation &memory) {
    guarded_.renew(memory.begin);
    if (!guarded_.set(memory.begin, wanted(memory)))
        state().chooser.limit(explore::Limit::Pieces);
}

void HostUses::close() {
    if (!opened_)
        return;
    forget_known();
    renew_all();
}

void HostUses::learned() {
    size_t before = in_flight_.size();
    if (!before)
        return;
    forget_known();
    if (in_flight_.size() != before)
        renew_all();
}

void HostUses::renew_all() {
    opened_ = false;
    for (const auto &[begin, memory] : state().allocations)
        if (guarded_.holds(begin))
            renew(memory);
}

// Gives the program the right that its access needs.
void HostUses::give(const Range &page, bool writes) {
    guarded_.set(page.begin, page.bytes, writes ? Rights::All : Rights::Read);
    opened_ = true;
}

// A signal handler, in the thread that uses the memory.
void HostUses::refused(const RefusedAccess &access) {
    HostUses &self = state().host_uses;
    if (in_call) { // the program gives the driver an address in this memory
        self.guarded_.open_at_once(access.address);
        return;
    }
    Lock lock(state().mutex);
    self.use(lock, access);
}

bool HostUses::is_in_use(const Range &page, bool writes) {
    forget_known();
    return std::any_of(in_flight_.begin(), in_flight_.end(), [&](const OperationPtr &operation) {
        bool uses = operation->unforeseen;
        for_uses(*operation, [&](const Range &range, bool changes) {
            uses |= (changes || writes) && range.overlaps(page);
        });
        return uses;
    });
}

void HostUses::use(Lock &lock, const RefusedAccess &access) {
    const Allocation *memory = find_reserved(access.address, 1);
    Range page{access.address / Guarded::page * Guarded::page, Guarded::page};
    if (!memory || !watching() || !is_in_use(page, access.writes)) {
        if (memory && watching())
            renew(*memory);
        if (static_cast<int>(guarded_.rights(access.address)) <
            static_cast<int>(access.writes ? Rights::All : Rights::Read))
            give(page, access.writes);
        return;
    }
    page.bytes = std::min(page.bytes, memory->begin + memory->bytes - page.begin);
    explore::Chooser &chooser = state().chooser;
    bool goes_on = memory->begin == last_ && chooser.run().steps.size() == looks_;
    pages_ = goes_on ? pages_ + 1 : 1;
    if (pages_ > most_pages)
        page = {memory->begin, memory->bytes};
    if (in_callback) {
        (access.writes ? writes_of_function_ : reads_of_function_).push_back(page);
    } else {
        std::string words = words_for(*memory, access);
        state().scheduler.use(lock, page, access.writes, words, std::exchange(polls_, false));
    }
    last_ = memory->begin;
    looks_ = chooser.run().steps.size();
    give(page, access.writes);
}

// Starts a thread that notices when the program has called nothing for a while, although work
// could run: it may be reading memory again and again until work changes it.
void HostUses::watch_polling() {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_create(&thread, &attributes, watch, this);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void *HostUses::watch(void *pointer) {
    auto *self = static_cast<HostUses *>(pointer);
    uint64_t calls = 0;
    size_t steps = 0;
    for (;;) {
        sleep(polls_after);
        Lock lock(state().mutex);
        if (in_forked_child())
            return nullptr;
        bool idle = calls == all_calls() && steps == state().chooser.run().steps.size();
        calls = all_calls();
        steps = state().chooser.run().steps.size();
        if (!idle || !watching() || !self->opened_ || !state().scheduler.pending())
            continue;
        self->polls_ = true;
        self->close();
    }
}

} // namespace soft
