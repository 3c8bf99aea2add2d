#pragma once

#include "check/found.h"
#include "check/places.h"
#include "check/propagation.h"
#include "check/step_addresses.h"
#include "ptx/observer.h"
#include "work/operation.h"

#include <map>
#include <unordered_map>

// Finds uses of values that depend on memory that nobody has written. As long as such a value is
// only copied or computed with, nothing is reported.

namespace soft::check {

// Which bits of the shared memory of a block, or of the local memory of a thread, are undefined.
// Bytes past the end are undefined.
class UndefinedBytes {
  public:
    void begin(size_t bytes); // nothing has been written
    void undefine(size_t begin, size_t end);
    bool is_clean() const { return !undefined_; } // without the bytes past the end
    // The functions are like those of UndefinedMemory.
    bool read(uint64_t begin, size_t bytes, uint8_t *masks, uint32_t &origin) const;
    void write(uint64_t begin, size_t bytes, const uint8_t *masks, uint32_t origin);

  private:
    static constexpr size_t word_bytes = 4;
    std::vector<uint8_t> masks_;
    std::vector<uint32_t> origins_; // for each word
    size_t undefined_ = 0;          // bytes with an undefined bit
};

class KernelInit final : public ptx::Observer {
  public:
    KernelInit(ptx::Machine &machine, Report report, Describe describe)
        : machine_(machine), report_(std::move(report)), describe_(std::move(describe)) {}

    // Uses these addresses of a step if another check has found them already.
    void share(const Addresses *addresses) { shared_addresses_ = addresses; }
    // Returns whether a step may matter.
    bool looks_at(const ptx::Warp &warp, const ptx::Effect &effect) {
        return effect.kind != ptx::Effect::Kind::None || !registers_of(*warp.frame).is_clean();
    }
    void run(ptx::Warp &warp, const ptx::Step &step) override;
    void before(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) override;
    void after(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) override;
    void starts(ptx::ThreadBlock &block) override;
    void calls(const ptx::Warp &warp, const ptx::Frame &frame) override;
    void passes(const ptx::Warp &warp, const ptx::Frame &from, const ptx::Frame &to,
                const std::vector<ptx::Transfer> &transfers) override;
    void uses(const ptx::Warp &warp, unsigned lane, ptx::Space space, uint64_t address,
              size_t bytes, ptx::Use use) override;
    void moves(const ptx::Warp &warp, const ptx::Step &step, const ptx::Move &move) override;
    void prints(const ptx::Warp &warp, const ptx::Step &step, unsigned lane, ptx::Space space,
                uint64_t address, size_t bytes) override;

  private:
    static constexpr size_t most_accessed = 64; // most bytes that a lane accesses at once
    // The step that runs.
    struct Now {
        const ptx::Warp *warp = nullptr;
        const ptx::Step *step = nullptr;
        const ptx::Effect *effect = nullptr;
        const ptx::Flow *flow = nullptr;
        const ptx::Part *results = nullptr, *sources = nullptr;
        Registers *registers = nullptr;
        uint32_t lanes = 0;
    };
    // Memory that a lane accesses.
    struct Bytes {
        unsigned lane;
        ptx::Space space;
        uint64_t address;
        size_t count;
    };
    struct Store { // what a step stores, until it has run
        Bytes bytes;
        std::array<uint8_t, most_accessed> masks;
        uint32_t origin;
    };

    Registers &registers_of(const ptx::Frame &frame);
    bool read(const Bytes &bytes, uint8_t *masks, uint32_t &origin);
    void write(const ptx::Warp &warp, const Bytes &bytes, const uint8_t *masks, uint32_t origin);
    bool is_clean(uint64_t address, size_t bytes);
    bool accesses_clean_memory();
    UndefinedBytes &shared_of(const ptx::ThreadBlock &block);
    bool finds_address(unsigned lane, Bytes &bytes) const;
    void check_guard();
    void check_sources();
    void load();
    void store();
    void update();
    void give_back(const Store &store, uint32_t origin);
    void copy();
    void look_at_results();
    uint32_t origin_of(const Bytes &bytes, const uint8_t *masks, uint32_t stored,
                       bool updates = false);
    void found(uint32_t origin, unsigned lane, const char *use, bool only_first = false);
    void check_register(ptx::Part part, uint32_t lanes, const char *use);

    // In init_matrices.cpp:
    void multiply_matrices();
    void transpose_matrix();
    void finish_matrices();
    bool read_used(size_t number, size_t bytes, uint8_t *masks, uint32_t &origin);
    void write_used(size_t number, size_t bytes, const uint8_t *masks, uint32_t origin);
    void load_rows();
    void store_rows();
    void load_fragment();
    void store_fragment();
    void multiply_together();
    void update_items(const ptx::Move &move);

    ptx::Machine &machine_;
    const Report report_;
    const Describe describe_;
    Now now_;
    Addresses addresses_;
    const Addresses *shared_addresses_ = nullptr;
    std::vector<Result> results_; // the results that the running step will write to registers
    std::vector<Store> stores_;   // and to memory
    // If the running step is a matrix operation: what it accesses, in the order of its handler.
    bool collects_ = false;
    std::vector<Bytes> used_;
    bool moves_ = false; // it is a bulk copy, which moves() looks at
    std::unordered_map<const ptx::Frame *, std::unique_ptr<Registers>> registers_;
    const ptx::Frame *last_frame_ = nullptr;
    Registers *last_registers_ = nullptr;
    std::map<const ptx::ThreadBlock *, UndefinedBytes> shared_;
    const ptx::ThreadBlock *last_block_ = nullptr;
    UndefinedBytes *last_shared_ = nullptr;
    struct Local {
        bool written = false;
        std::array<UndefinedBytes, ptx::warp_size> lanes;
    };
    std::unordered_map<const ptx::Warp *, Local> local_;
    // The pages of global memory that were defined when UndefinedMemory::changed() was `version`.
    struct Clean {
        uint64_t page = 0, version = ~uint64_t{0};
    };
    std::array<Clean, 64> clean_;
    Found<std::tuple<uint32_t, uint32_t, std::string>> found_;
};

// Reports undefined bytes that a copy gives to the host (stream/transfer.h).
void report_undefined_copy(const Operation &copy, uintptr_t begin, uintptr_t end, uint32_t origin);

} // namespace soft::check
