#include "race/race_list.h"

#include "base/notes.h"

#include <cstdio>
#include <cstdlib>

namespace soft {
namespace {

constexpr size_t room = 500;

} // namespace

void RaceList::tell(Entry &entry, const RaceNames &names) {
    entry.text = entry.parts.told(names);
    note(Note::Race, entry.text);
    if (entry.print)
        std::fprintf(stderr, "%s\n", entry.text.c_str());
}

void RaceList::add(const RaceKey &key, RaceMode mode, bool ask,
                   const std::function<RaceText()> &describe) {
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
    bool print = mode == RaceMode::Print || mode == RaceMode::Abort;
    entries_.push_back({describe(), "", 1, print});
    if (ask && mode != RaceMode::Abort)
        return;
    flush();
    if (mode == RaceMode::Abort)
        std::abort();
}

const RaceText *RaceList::first_unnamed() const {
    return unnamed_ < entries_.size() ? &entries_[unnamed_].parts : nullptr;
}

void RaceList::name(uint64_t number, const RaceNames &names) {
    if (first_unnamed() && number == number_of_first())
        tell(entries_[unnamed_++], names);
}

void RaceList::flush() {
    while (unnamed_ < entries_.size())
        tell(entries_[unnamed_++], RaceNames());
}

std::string RaceList::text(size_t index) const {
    const Entry &entry = entries_[index];
    std::string text = index < unnamed_ ? entry.text : entry.parts.told(RaceNames());
    if (entry.count > 1)
        text += " (" + std::to_string(entry.count) + " times)";
    if (lost_ && index + 1 == entries_.size())
        text += " (and " + std::to_string(lost_) + " more races)";
    return text;
}

void RaceList::clear() {
    flush();
    uint64_t cleared = cleared_ + 1;
    *this = RaceList();
    cleared_ = cleared;
}

} // namespace soft
