#pragma once

#include "check/clocks.h"
#include "check/places.h"
#include "check/shadow.h"
#include "check/step_addresses.h"
#include "ptx/observer.h"

#include <map>

// Finds races inside a launch: two accesses of different threads to the same byte of shared or
// global memory, at least one of them a write, which nothing orders and which are not both atomic.

namespace soft::check {

class KernelRaces final : public ptx::Observer {
  public:
    KernelRaces(ptx::Machine &machine, Report report, Describe describe)
        : machine_(machine), report_(std::move(report)), describe_(std::move(describe)) {}

    void run(ptx::Warp &warp, const ptx::Step &step) override;
    void before(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) override;
    void after(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) override;
    void starts(ptx::ThreadBlock &block) override;
    void arrives(const ptx::Warp &warp, const ptx::Arrival &arrival) override;
    void completes(const ptx::ThreadBlock &block, unsigned barrier) override;
    void meets(const ptx::Warp &warp, uint32_t members) override;
    // The addresses of the running step, if the check has needed them.
    Addresses &addresses() { return addresses_; }

  private:
    struct Arrivals {
        std::vector<uint32_t> waiting; // for each warp, a mask of the lanes that wait
        Known told;                    // what the lanes that do not wait have told
        bool only_waiting = true;
    };
    struct Block {
        explicit Block(unsigned threads) : clocks(threads) {}

        Clocks clocks;
        uint32_t generation = 0; // grows with each barrier at which all threads wait
        std::vector<Line> shared;
        std::map<unsigned, Arrivals> barriers;
        std::map<uint64_t, Told> words; // what strong writes have told, by the shared address
        std::vector<uint32_t> met;      // for each warp, lanes that have not run since they met
    };
    // A step that accesses memory.
    struct Now {
        ptx::Warp &warp;
        const ptx::Step &step;
        const ptx::Effect &effect;
        Block &block;
        size_t bytes; // of each lane
    };

    // An access of one lane, or of several lanes that access the same bytes.
    struct Lane {
        const Now &now;
        unsigned lane;
        uint32_t lanes;   // `lane`, and the lanes that access the same bytes with it
        uint64_t address; // in its state space
        bool shared;

        unsigned thread() const { return now.warp.number * ptx::warp_size + lane; }
    };

    Block &state_of(const ptx::ThreadBlock &block);
    void access(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect, uint32_t lanes);
    void access_mbarriers(const Now &now, uint32_t lanes);
    void access(const Now &now, const Run &run, const Entry &entry);
    bool tells_nothing(const Now &now, const Run &run) const;
    void access_lines(const Now &now, const Run &run, Span span);
    bool is_at_one_time(const Now &now, const Run &run) const;
    bool add_span(const Block &block, Line &line, const Span &span) const;
    void drop_superfluous(const Block &block, Line &line, const Span &span) const;
    bool is_clearly_behind(const Block &block, const Span &span, const Span &old) const;
    bool is_behind(const Block &block, const Span &span, const Span &old) const;
    void look_at_each(const Now &now, const Span &span, uint64_t line, bool shared);
    void forget(const Now &now, const Run &run);
    void access(const Lane &access, Entry entry);
    void look_at_words(const Lane &access, Entry entry);
    void look(const Lane &access, uint64_t word, const Entry &entry);
    std::pair<int, int> unordered(const Lane &access, const Entry &earlier) const;
    void keep(const Lane &access, Cell &cell, const Entry &entry) const;
    void synchronize(const Lane &access);
    void found(const Lane &access, uint64_t word, const Entry &earlier, int lane,
               const Entry &later);
    bool stores_the_same(const Lane &access, const Entry &earlier, uint64_t word, int lane) const;
    const char *bytes_at(const Lane &access) const;
    Line &line_of(Block &block, bool shared, uint64_t line);
    Entry entry_of(const ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) const;
    HazardAccess described(const Entry &entry, unsigned lane) const;

    ptx::Machine &machine_;
    const Report report_;
    const Describe describe_;
    std::map<const ptx::ThreadBlock *, std::unique_ptr<Block>> blocks_;
    uint32_t generation_ = 0;
    Shadow global_;
    std::map<uint64_t, Told> words_; // what strong writes to global memory have told
    // The races that this launch has already reported, by both places and by whether they are
    // benign.
    std::map<std::tuple<uint32_t, uint32_t, bool>, Hazards::Key> found_;
    const ptx::ThreadBlock *last_ = nullptr; // the block that state_of() has found last
    Block *last_block_ = nullptr;
    Addresses addresses_;    // of the running step
    uint32_t looked_at_ = 0; // its lanes whose access has been looked at
    uint32_t testing_ = 0;   // the lanes that ask an mbarrier
};

} // namespace soft::check
