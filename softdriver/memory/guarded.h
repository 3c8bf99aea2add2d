#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace soft {

// What the program may do with a page.
enum class Rights : unsigned char { None, Read, All };

// An access of the program to a page for which it has no right.
struct RefusedAccess {
    uintptr_t address;
    bool writes;
    const void *instruction;
};

// Memory whose pages the driver can take away from the program, in order to learn when the program
// uses them. It is mapped twice: the driver uses the other mapping, which always has all rights.
class Guarded {
  public:
    // Called in the thread that makes the access, before it tries again. The function has to raise
    // the rights of the page. The thread may be in the middle of any code of the program, but not
    // in code that holds the state lock.
    using OnRefused = void (*)(const RefusedAccess &);
    explicit Guarded(OnRefused on_refused) : on_refused_(on_refused) {}
    Guarded(const Guarded &) = delete;

    // Begins and ends to guard memory of the program. `begin` is the start of a page, and `alias`
    // the other mapping.
    void add(uintptr_t begin, size_t bytes, const char *alias);
    void remove(uintptr_t begin);
    bool holds(uintptr_t address) const { return find(address) != nullptr; }

    // For each page of a piece of memory: what the program may do. Changes the rights where they
    // differ. Returns false if the system cannot split the memory into so many pieces; the program
    // then has all rights to all pages.
    bool set(uintptr_t begin, const std::vector<Rights> &pages);
    // The same for some bytes.
    bool set(uintptr_t begin, size_t bytes, Rights rights);
    Rights rights(uintptr_t address) const;
    // Gives the program all rights to a page, in a thread that may hold any lock. From then on,
    // rights() may be wrong until renew() is called.
    void open_at_once(uintptr_t address);
    // Sets the rights of all pages of a piece of memory anew if open_at_once() has changed one.
    void renew(uintptr_t begin);

    static constexpr size_t page = 4096;

  private:
    // An entry is used again when its memory is gone. Signal handlers read the list.
    struct Piece {
        std::atomic<uintptr_t> begin{0}, end{0}; // equal if the entry is free
        const char *alias = nullptr;
        std::vector<Rights> pages;
        std::atomic<bool> stale{false};
        Piece *next = nullptr;
    };

    Piece *find(uintptr_t address) const;
    static void handle(int signal, siginfo_t *info, void *context);
    static void pass_on(int signal, siginfo_t *info, void *context);
    static void start_child();
    static void install();

    OnRefused on_refused_;
    std::atomic<Piece *> pieces_{nullptr};
};

} // namespace soft
