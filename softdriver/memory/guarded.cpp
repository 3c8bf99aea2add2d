#include "memory/guarded.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace soft {
namespace {

std::atomic<Guarded *> guarded{nullptr}; // the object that receives the signals
struct sigaction former = {};            // what the program does with SIGSEGV
thread_local bool passes_on = false;

int protection(Rights rights) {
    switch (rights) {
    case Rights::None:
        return PROT_NONE;
    case Rights::Read:
        return PROT_READ;
    default:
        return PROT_READ | PROT_WRITE;
    }
}

bool protect(uintptr_t begin, size_t bytes, Rights rights) {
    return mprotect(reinterpret_cast<void *>(begin), bytes, protection(rights)) == 0;
}

struct Cause {
    bool known, writes;
    const void *instruction;
};

Cause cause_of([[maybe_unused]] const void *context) {
#if defined(__x86_64__)
    const auto &registers = static_cast<const ucontext_t *>(context)->uc_mcontext.gregs;
    constexpr greg_t of_write = 2;
    return {true, (registers[REG_ERR] & of_write) != 0,
            reinterpret_cast<const void *>(registers[REG_RIP])};
#else
    return {false, false, nullptr};
#endif
}

} // namespace

Guarded::Piece *Guarded::find(uintptr_t address) const {
    for (Piece *piece = pieces_; piece; piece = piece->next)
        if (address >= piece->begin && address < piece->end)
            return piece;
    return nullptr;
}

void Guarded::add(uintptr_t begin, size_t bytes, const char *alias) {
    static const int once = pthread_atfork(nullptr, nullptr, start_child);
    static_cast<void>(once);
    guarded = this;
    Piece *piece = pieces_;
    while (piece && piece->begin != piece->end)
        piece = piece->next;
    bool is_new = !piece;
    if (is_new)
        piece = new Piece;
    size_t pages = (bytes + page - 1) / page;
    piece->alias = alias;
    piece->pages.assign(pages, Rights::All);
    piece->stale = false;
    piece->end = begin + pages * page;
    piece->begin = begin;
    if (!is_new)
        return;
    piece->next = pieces_;
    pieces_ = piece;
}

void Guarded::remove(uintptr_t begin) {
    Piece *piece = find(begin);
    if (!piece)
        return;
    set(piece->begin, piece->end - piece->begin, Rights::All);
    piece->begin = piece->end.load();
}

Rights Guarded::rights(uintptr_t address) const {
    const Piece *piece = find(address);
    return piece ? piece->pages[(address - piece->begin) / page] : Rights::All;
}

bool Guarded::set(uintptr_t begin, const std::vector<Rights> &pages) {
    Piece *piece = find(begin);
    if (!piece)
        return true;
    size_t first = (begin - piece->begin) / page;
    bool lowers = false, done = true;
    for (size_t i = 0; i < pages.size();) {
        size_t end = i;
        while (end < pages.size() && pages[end] == pages[i] &&
               piece->pages[first + end] != pages[i])
            end++;
        if (end == i) {
            i++;
            continue;
        }
        lowers |= pages[i] != Rights::All;
        if (lowers)
            install();
        done &= protect(begin + i * page, (end - i) * page, pages[i]);
        std::fill_n(piece->pages.begin() + static_cast<ptrdiff_t>(first + i), end - i, pages[i]);
        i = end;
    }
    if (done)
        return true;
    std::fill(piece->pages.begin(), piece->pages.end(), Rights::All);
    protect(piece->begin, piece->end - piece->begin, Rights::All);
    return false;
}

bool Guarded::set(uintptr_t begin, size_t bytes, Rights rights) {
    uintptr_t first = begin / page * page;
    return set(first, std::vector<Rights>((begin + bytes - first + page - 1) / page, rights));
}

void Guarded::open_at_once(uintptr_t address) {
    protect(address / page * page, page, Rights::All);
    if (Piece *piece = find(address))
        piece->stale = true;
}

void Guarded::renew(uintptr_t begin) {
    Piece *piece = find(begin);
    if (!piece || !piece->stale.exchange(false))
        return;
    std::vector<Rights> pages(piece->pages.size(), Rights::All);
    pages.swap(piece->pages); // the present rights are not known, so set the rights of all pages
    protect(piece->begin, piece->end - piece->begin, Rights::All);
    set(piece->begin, pages);
}

// Takes the signal, also if the program has set a handler of its own since the last call.
void Guarded::install() {
    struct sigaction now = {};
    sigaction(SIGSEGV, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle)
        return;
    former = now;
    struct sigaction ours = {};
    ours.sa_sigaction = handle;
    // The handler runs work of the driver. An alternative stack may be too small for that.
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGSEGV, &ours, nullptr);
}

void Guarded::handle(int signal, siginfo_t *info, void *context) {
    auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    Guarded *self = guarded;
    Piece *piece = self && info->si_code == SEGV_ACCERR ? self->find(address) : nullptr;
    if (!piece) {
        pass_on(signal, info, context);
        return;
    }
    int error = errno;
    Cause cause = cause_of(context);
    // If the page can be read, the access was a write. Otherwise it may be a write; in that case
    // the next try faults again, and is then known to be a write.
    bool writes =
        cause.known ? cause.writes : piece->pages[(address - piece->begin) / page] == Rights::Read;
    self->on_refused_({address, writes, cause.instruction});
    errno = error;
}

// Lets the program handle an error of its own as it would without the driver.
void Guarded::pass_on(int signal, siginfo_t *info, void *context) {
    bool again = passes_on; // the program's handler has raised the signal again
    passes_on = true;
    if (!again && (former.sa_flags & SA_SIGINFO)) {
        former.sa_sigaction(signal, info, context);
    } else if (!again && former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) {
        former.sa_handler(signal);
    } else {
        struct sigaction usual = {};
        usual.sa_handler = SIG_DFL;
        sigaction(signal, &usual, nullptr);
        if (info->si_code <= 0) // sent by a process, so it does not come again by itself
            raise(signal);
        return;
    }
    passes_on = false;
}

// Runs in a forked child, which gets a copy of the memory, as of other memory.
void Guarded::start_child() {
    Guarded *self = guarded.exchange(nullptr);
    for (Piece *piece = self ? self->pieces_.load() : nullptr; piece; piece = piece->next) {
        size_t bytes = piece->end - piece->begin;
        if (!bytes)
            continue;
        void *copy =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (copy == MAP_FAILED)
            continue;
        std::memcpy(copy, piece->alias, bytes);
        mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               reinterpret_cast<void *>(piece->begin.load()));
    }
}

} // namespace soft
