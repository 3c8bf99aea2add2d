#include "check/checks.h"

#include "check/kernel_init.h"
#include "check/kernel_races.h"
#include "check/kernel_sync.h"

namespace soft::check {

namespace {

// Several checks of the same launch.
class Several : public ptx::Observer {
  public:
    explicit Several(std::vector<std::unique_ptr<ptx::Observer>> all) : all_(std::move(all)) {}

    void before(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) override {
        for (auto &each : all_)
            each->before(warp, step, effect);
    }
    void after(ptx::Warp &warp, const ptx::Step &step, const ptx::Effect &effect) override {
        for (auto &each : all_)
            each->after(warp, step, effect);
    }
    void starts(ptx::ThreadBlock &block) override {
        for (auto &each : all_)
            each->starts(block);
    }
    void ends(const ptx::ThreadBlock &block) override {
        for (auto &each : all_)
            each->ends(block);
    }
    void hangs(const ptx::ThreadBlock &block) override {
        for (auto &each : all_)
            each->hangs(block);
    }
    void arrives(const ptx::Warp &warp, const ptx::Arrival &arrival) override {
        for (auto &each : all_)
            each->arrives(warp, arrival);
    }
    void completes(const ptx::ThreadBlock &block, unsigned barrier) override {
        for (auto &each : all_)
            each->completes(block, barrier);
    }
    void meets(const ptx::Warp &warp, uint32_t members) override {
        for (auto &each : all_)
            each->meets(warp, members);
    }
    void uses_mbarrier(const ptx::Warp &warp, const ptx::MbarrierUse &use) override {
        for (auto &each : all_)
            each->uses_mbarrier(warp, use);
    }
    void calls(const ptx::Warp &warp, const ptx::Frame &frame) override {
        for (auto &each : all_)
            each->calls(warp, frame);
    }
    void passes(const ptx::Warp &warp, const ptx::Frame &from, const ptx::Frame &to,
                const std::vector<ptx::Transfer> &transfers) override {
        for (auto &each : all_)
            each->passes(warp, from, to, transfers);
    }
    void writes(const ptx::Warp &warp, unsigned lane, ptx::Space space, uint64_t address,
                size_t bytes) override {
        for (auto &each : all_)
            each->writes(warp, lane, space, address, bytes);
    }

  private:
    const std::vector<std::unique_ptr<ptx::Observer>> all_;
};

} // namespace

std::unique_ptr<ptx::Observer> make_observer(ptx::Machine &machine, unsigned checks,
                                             const Report &report, const Describe &describe) {
    std::vector<std::unique_ptr<ptx::Observer>> all;
    if (checks & check_race)
        all.push_back(std::make_unique<KernelRaces>(machine, report, describe));
    if (checks & check_init)
        all.push_back(std::make_unique<KernelInit>(machine, report, describe));
    if (checks & check_sync)
        all.push_back(std::make_unique<KernelSync>(machine, report));
    if (all.size() == 1)
        return std::move(all.front());
    return std::make_unique<Several>(std::move(all));
}

} // namespace soft::check
