#include "race_record.h"

#include <cstdio>
#include <cstdlib>

namespace soft {
namespace {

constexpr size_t room = 500;

} // namespace

void RaceRecord::add(const RaceKey &key, RaceMode mode,
                     const std::function<std::string()> &describe) {
    auto [known, is_new] = known_.try_emplace(key, entries_.size());
    if (!is_new) {
        entries_[known->second].count++;
        return;
    }
    if (entries_.size() == room) {
        known_.erase(known);
        lost_++;
        return;
    }
    entries_.push_back({describe(), 1});
    if (mode == RaceMode::Print || mode == RaceMode::Abort)
        std::fprintf(stderr, "%s\n", entries_.back().text.c_str());
    if (mode == RaceMode::Abort)
        std::abort();
}

std::string RaceRecord::text(size_t index) const {
    const Entry &entry = entries_[index];
    std::string text = entry.text;
    if (entry.count > 1)
        text += " (" + std::to_string(entry.count) + " times)";
    if (lost_ && index + 1 == entries_.size())
        text += " (and " + std::to_string(lost_) + " reports for which there was no room)";
    return text;
}

void RaceRecord::clear() { *this = RaceRecord(); }

} // namespace soft
