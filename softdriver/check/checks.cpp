#include "check/checks.h"

#include "check/kernel_init.h"
#include "check/kernel_races.h"
#include "check/kernel_sync.h"

namespace soft::check {

namespace {

// Several checks of the same launch. Each may be null.
class Several final : public ptx::Observer {
  public:
    Several(std::unique_ptr<KernelRaces> races, std::unique_ptr<KernelInit> init,
            std::unique_ptr<KernelSync> sync)
        : races_(std::move(races)), init_(std::move(init)), sync_(std::move(sync)) {
        if (races_ && init_)
            init_->share(&races_->addresses());
    }

    void run(ptx::Warp &warp, const ptx::Step &step) override {
        const ptx::Effect &effect = effect_of(warp, step);
        if (effect.kind == ptx::Effect::Kind::None && !(init_ && init_->looks_at(warp, effect)))
            return step.run(warp, step);
        if (races_)
            races_->addresses().clear();
        each([&](auto &check) { check.before(warp, step, effect); });
        knows_uses = effect.says_all();
        step.run(warp, step);
        knows_uses = false;
        each([&](auto &check) { check.after(warp, step, effect); });
    }
    void starts(ptx::ThreadBlock &block) override {
        each([&](auto &check) { check.starts(block); });
    }
    void ends(const ptx::ThreadBlock &block) override {
        each([&](auto &check) { check.ends(block); });
    }
    void hangs(const ptx::ThreadBlock &block) override {
        each([&](auto &check) { check.hangs(block); });
    }
    void joins(ptx::Observer &other) override {
        auto &several = static_cast<Several &>(other);
        if (races_)
            races_->joins(*several.races_);
    }
    void ends_launch() override {
        each([&](auto &check) { check.ends_launch(); });
    }
    void arrives(const ptx::Warp &warp, const ptx::Arrival &arrival) override {
        each([&](auto &check) { check.arrives(warp, arrival); });
    }
    void completes(const ptx::ThreadBlock &block, unsigned barrier) override {
        each([&](auto &check) { check.completes(block, barrier); });
    }
    void meets(const ptx::Warp &warp, uint32_t members) override {
        each([&](auto &check) { check.meets(warp, members); });
    }
    void uses_cluster(const ptx::Warp &warp, const ptx::ClusterUse &use) override {
        each([&](auto &check) { check.uses_cluster(warp, use); });
    }
    void completes_cluster(const ptx::Cluster &cluster) override {
        each([&](auto &check) { check.completes_cluster(cluster); });
    }
    void uses_mbarrier(const ptx::Warp &warp, const ptx::MbarrierUse &use) override {
        each([&](auto &check) { check.uses_mbarrier(warp, use); });
    }
    void calls(const ptx::Warp &warp, const ptx::Frame &frame) override {
        each([&](auto &check) { check.calls(warp, frame); });
    }
    void passes(const ptx::Warp &warp, const ptx::Frame &from, const ptx::Frame &to,
                const std::vector<ptx::Transfer> &transfers) override {
        each([&](auto &check) { check.passes(warp, from, to, transfers); });
    }
    void uses(const ptx::Warp &warp, unsigned lane, ptx::Space space, uint64_t address,
              size_t bytes, ptx::Use use) override {
        each([&](auto &check) { check.uses(warp, lane, space, address, bytes, use); });
    }
    void moves(const ptx::Warp &warp, const ptx::Step &step, const ptx::Move &move) override {
        each([&](auto &check) { check.moves(warp, step, move); });
    }
    void prints(const ptx::Warp &warp, const ptx::Step &step, unsigned lane, ptx::Space space,
                uint64_t address, size_t bytes) override {
        each([&](auto &check) { check.prints(warp, step, lane, space, address, bytes); });
    }

  private:
    template <class Call> void each(Call call) const {
        if (races_)
            call(*races_);
        if (init_)
            call(*init_);
        if (sync_)
            call(*sync_);
    }

    const std::unique_ptr<KernelRaces> races_;
    const std::unique_ptr<KernelInit> init_;
    const std::unique_ptr<KernelSync> sync_;
};

} // namespace

std::unique_ptr<ptx::Observer> make_observer(ptx::Machine &machine, unsigned checks,
                                             const Report &report, const Describe &describe) {
    std::unique_ptr<KernelRaces> races;
    std::unique_ptr<KernelInit> init;
    std::unique_ptr<KernelSync> sync;
    if (checks & check_race)
        races = std::make_unique<KernelRaces>(machine, report, describe);
    if (checks & check_init)
        init = std::make_unique<KernelInit>(machine, report, describe);
    if (checks & check_sync)
        sync = std::make_unique<KernelSync>(machine, report);
    switch (checks) {
    case check_race:
        return races;
    case check_init:
        return init;
    case check_sync:
        return sync;
    default:
        return std::make_unique<Several>(std::move(races), std::move(init), std::move(sync));
    }
}

} // namespace soft::check
