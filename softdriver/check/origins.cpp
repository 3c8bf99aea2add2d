#include "check/origins.h"

namespace soft::check {

uint32_t Origins::add(const std::string &kernel, int ptx_line, const std::string &memory,
                      const std::function<Origin()> &make) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto [known, is_new] = known_.try_emplace({kernel, ptx_line, memory}, uint32_t(all_.size()));
    if (is_new && all_.size() == most)
        known_.erase(known);
    else if (is_new) {
        all_.push_back(make());
        known->second = uint32_t(all_.size());
    } else
        return known->second;
    return uint32_t(all_.size());
}

Origin Origins::operator[](uint32_t number) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return all_.at(number - 1);
}

Origins &origins() {
    static auto &all = *new Origins; // never destroyed: kernels may still run
    return all;
}

} // namespace soft::check
