#pragma once

#include "check/between_blocks.h"
#include "check/clocks.h"
#include "check/copies.h"
#include "check/found.h"
#include "check/places.h"
#include "check/proxies.h"
#include "check/shadow.h"
#include "check/signals.h"
#include "check/step_addresses.h"
#include "ptx/observer.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

// Finds races inside a launch: two accesses of different threads to the same byte of shared or
// global memory, at least one of them a write, which nothing orders and which are not both atomic.
// What threads do by themselves is in kernel_races.cpp, and what others do for them, such as copies
// by hardware, in kernel_actors.cpp.

namespace soft::check {

class KernelRaces final : public ptx::Observer {
  public:
    KernelRaces(ptx::Machine &machine, Report report, Describe describe);

    void run(ptx::Warp &warp, const ptx::Step &step) override;
    void before(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) override;
    void after(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) override;
    void starts(ptx::ThreadBlock &block) override;
    void ends(const ptx::ThreadBlock &block) override;
    void joins(ptx::Observer &other) override;
    void ends_launch() override;
    void arrives(const ptx::Warp &warp, const ptx::Arrival &arrival) override;
    void completes(const ptx::ThreadBlock &block, unsigned barrier) override;
    void meets(const ptx::Warp &warp, uint32_t members) override;
    void uses_cluster(const ptx::Warp &warp, const ptx::ClusterUse &use) override;
    void completes_cluster(const ptx::Cluster &cluster) override;
    void uses(const ptx::Warp &warp, unsigned lane, ptx::Space space, uint64_t address,
              size_t bytes, ptx::Use use) override;
    void uses_mbarrier(const ptx::Warp &warp, const ptx::MbarrierUse &use) override;
    // The addresses of the running step, if the check has needed them.
    Addresses &addresses() { return addresses_; }

  private:
    struct Arrivals {
        std::vector<uint32_t> waiting; // for each warp, a mask of the lanes that wait
        Known told;                    // what the lanes that arrive without waiting pass on
        bool only_waiting = true;
        bool used = false; // a lane has arrived

        void begin(size_t warps) {
            waiting.assign(warps, 0);
            told = {};
            only_waiting = used = true;
        }
    };
    // For advice: words from which strong reads have read what another thread had written. At most
    // `most` of them are kept.
    struct Flags {
        static constexpr size_t most = 64;
        std::vector<uint64_t> words;

        void add(uint64_t word) {
            if (words.size() < most && std::find(words.begin(), words.end(), word) == words.end())
                words.push_back(word);
        }
    };
    struct Block {
        Block(const Actors &actors, size_t warps) : clocks(actors), fences(warps) {}

        Clocks clocks;
        Groups groups;
        Phases phases; // of mbarriers
        ProxyFences fences;
        // The thread of the last bulk copy that signals an mbarrier, by the actor and the place.
        std::map<std::pair<unsigned, uint32_t>, unsigned> issuers;
        uint32_t generation = 0; // increases at each barrier at which all threads wait
        std::vector<Line> shared;
        uint32_t first_generation = 0;
        // The block's own copies of lines of global memory that another running block uses; see
        // line_of().
        std::unordered_map<uint64_t, Line> global;
        std::vector<uint64_t> spread; // the lines of global_ whose cells this block has allocated
        std::array<Arrivals, ptx::barriers_of_block> barriers;
        Signals signals;                  // through strong writes to shared memory
        Flags flags;                      // in shared memory
        std::vector<uint32_t> at_cluster; // for each warp, the lanes that wait for the cluster
        std::vector<uint32_t> met; // for each warp, the lanes that have not run since they met
    };
    // What the barrier of a cluster passes on: in its present phase, and in the last one.
    struct ClusterPhases {
        Known told, over;
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

    // Two accesses that race.
    struct Clash {
        enum class Reason { Unordered, Proxies, Noncoherent };
        const Entry &earlier, &later;
        unsigned earlier_lane, later_lane;
        bool shared;
        uint64_t begin, end; // addresses in the state space
        bool benign = false;
        Reason reason = Reason::Unordered;
    };
    // What a lane accesses in a step of whose accesses only the handler knows.
    struct Use {
        unsigned lane;
        bool shared, writes, updates;
        uint64_t begin, end;
    };
    // Who does accesses that are not those of the lanes of a warp by themselves.
    struct Accessor {
        Block &block;
        const ptx::Warp &warp;
        unsigned lane; // of the accesses, or that stands for all lanes
        Entry entry;
        // The times of the actors of the block that are known. If it is empty, each lane does its
        // own accesses, and what the lane knows counts.
        Clocks::Times known = {};
        // In the async proxy: the times of threads that are behind a fence of the proxies.
        Clocks::Times fenced = {};
        bool noncoherent = false;
        const ptx::Fragment *fragment = nullptr; // of wmma
        std::set<uint32_t> told =
            {}; // the places of earlier accesses with which a race is reported
    };

    Block &state_of(const ptx::ThreadBlock &block);
    static void learn(Block &block, unsigned warp, uint32_t lanes, const Known &known);
    void access(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect, uint32_t lanes);
    void access(const Now &now, const Run &run, const Entry &entry);
    uint32_t add_blind(const Now &now, Entry entry, uint32_t lanes);
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
    void look(const Lane &access, uint64_t word, Entry entry);
    void number(const Cell &cell, Entry &entry, bool updates);
    std::pair<int, int> unordered(const Lane &access, const Entry &earlier) const;
    std::pair<int, int> unordered(const Lane &access, const Cell &cell, const Entry &earlier) const;
    std::pair<int, int> lowest_pair(const Lane &access, const Cell &cell,
                                    const Entry &earlier) const;
    bool knows_who_has_seen(const Lane &access, const Cell &cell, const Entry &write) const;
    void keep(const Lane &access, Cell &cell, const Entry &entry) const;
    Signals &signals_of(const Lane &access);
    template <class Act> void for_each_element(const Lane &access, Act act);
    void see(const Lane &access);
    void signal(const Lane &access);
    void found(const Lane &access, uint64_t word, const Entry &earlier, int lane,
               const Entry &later);
    bool stores_the_same(const Lane &access, const Entry &earlier, uint64_t word, int lane) const;
    const char *bytes_at(const Lane &access) const;
    Line &line_of(Block &block, bool shared, uint64_t line);
    Line &own_line(Block &block, uint64_t line);
    void keep_between_blocks(const Now &now, Span span, uint64_t line);
    void report(Block &block, const BlockRace &race);
    bool is_noncoherent(const Entry &entry) const;
    Entry entry_of(const ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) const;
    void report(Block &block, const Clash &clash);
    std::string advise_on_fences(Block &block, const Clash &clash);
    bool find_flag(Block &block, const Clash &clash, Entry &write, Entry &read);
    bool knows(const Block &block, const Clash &clash, const Entry &read) const;

    // In kernel_actors.cpp:
    void collect(ptx::Warp &warp, const ptx::Step &step);
    void finish(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect);
    void finish_copies(const ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect);
    bool add_rows(Accessor &by, const std::vector<Use> &uses);
    void finish_together(const ptx::Warp &warp, const ptx::Step &step);
    void finish_products(const ptx::Warp &warp, const ptx::Step &step);
    uint32_t take_equal_uses(unsigned lane, std::vector<Use> &taken);
    void finish_bulk(const ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect,
                     unsigned lane, Phases::Phase *phase);
    void finish_alone(const ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect);
    void merge_uses();
    void groups(const ptx::Warp &warp, const ptx::Effect &effect, uint32_t lanes);
    void see_phases(const ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect,
                    uint32_t lanes);
    void fence_proxies(const ptx::Warp &warp, const ptx::Effect &effect, uint32_t lanes);
    void find_unseen_writes(const Now &now, uint32_t lanes);
    Accessor accessor(const ptx::Warp &warp, const ptx::Step &step, unsigned lane, unsigned actor,
                      uint32_t time);
    void access(Accessor &by, const Use &use);
    bool add(const Accessor &by, Line &line, const Span &span) const;
    bool may_race(const Accessor &by, const Span &span, const Span &old) const;
    void look(Accessor &by, const Use &use, uint64_t word);
    void keep(const Accessor &by, Cell &cell) const;
    int unknown(const Accessor &by, unsigned lane, const Entry &earlier, uint32_t lanes) const;
    int unfenced(const Accessor &by, const Entry &earlier, uint32_t lanes) const;
    bool is_same_fragment(const Accessor &by, const Entry &earlier) const;
    bool is_async(const Entry &entry) const { return roles_.is_async(actor_of(entry, 0)); }
    static unsigned actor_of(const Entry &entry, unsigned lane) {
        return unsigned(entry.warp) * ptx::warp_size + lane;
    }
    unsigned thread_of(const Block &block, const Entry &entry, unsigned lane) const;
    HazardAccess described(const Block &block, const Entry &entry, unsigned lane) const;
    bool is_of_threads(const Clash &clash) const;
    bool advise_on_actors(const Block &block, const Clash &clash, Hazard &hazard) const;

    ptx::Machine &machine_;
    const Report report_;
    const Describe describe_;
    const Roles roles_;
    std::map<const ptx::ThreadBlock *, std::unique_ptr<Block>> blocks_;
    std::map<const ptx::Cluster *, ClusterPhases> clusters_;
    uint32_t generation_ = 0;
    Shadow global_;
    Signals signals_;     // of strong writes to global memory
    Flags flags_;         // in global memory
    uint32_t writes_ = 1; // the number of the last write; those in spans have the number 1
    // If the blocks are independent: the accesses that are compared between blocks. Each line of
    // global_ then has only the accesses of one block: the one whose first generation the line has.
    std::unique_ptr<BetweenBlocks> between_;
    std::vector<uint32_t> active_; // the first generations of the running blocks
    // The races of this launch that are already reported: the key is both places, and whether the
    // race is benign.
    using Places = std::tuple<uint32_t, uint32_t, bool>;
    Found<Places> found_;
    // For each of these, the lowest threads with this race: the place, the block and the actor of
    // both accesses, and the address.
    using Who = std::tuple<uint32_t, uint32_t, unsigned>;
    using Threads = std::tuple<Who, Who, uint64_t>;
    std::map<Places, Threads> lowest_;
    const ptx::ThreadBlock *last_ = nullptr; // the block of the last call of state_of()
    Block *last_block_ = nullptr;
    Addresses addresses_;    // of the running step
    uint32_t looked_at_ = 0; // the lanes whose access is already handled
    uint32_t testing_ = 0;   // the lanes that test an mbarrier
    // For steps whose accesses only the handler knows: these accesses, and the lanes that run the
    // step.
    bool collects_ = false;
    std::vector<Use> uses_;
    uint32_t running_ = 0;
    // The blocks that have executed a proxy fence for global memory.
    std::set<uint32_t> fenced_blocks_;
};

} // namespace soft::check
