#include "check/hazards.h"

#include "api/state.h"
#include "base/json.h"
#include "base/notes.h"
#include "base/settings.h"
#include "ptx/machine.h"
#include "race/race_names.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace soft {

namespace {

constexpr size_t room = 1000, most_lost = 1'000'000;

std::string list(const unsigned index[3]) {
    return "[" + std::to_string(index[0]) + ", " + std::to_string(index[1]) + ", " +
           std::to_string(index[2]) + "]";
}

std::string object(const HazardAccess &access) {
    return R"({"mode": )" + quoted(access.mode) + R"(, "file": )" +
           (access.file.empty() ? "null" : quoted(access.file)) + R"(, "line": )" +
           std::to_string(access.line) + R"(, "inner": )" +
           (access.inner.empty() ? "null" : quoted(access.inner)) + R"(, "ptx_line": )" +
           std::to_string(access.ptx_line) + R"(, "thread": )" + list(access.thread) +
           R"(, "block": )" + list(access.block) + "}";
}

// Returns whether the threads of a hazard come before those of another one in the grid.
bool is_before(const Hazard &one, const Hazard &other) {
    auto place = [](const HazardAccess &of) {
        return std::make_tuple(of.block[2], of.block[1], of.block[0], of.thread[2], of.thread[1],
                               of.thread[0]);
    };
    auto places = [&](const Hazard &of) {
        return std::make_tuple(place(of.first), place(of.second), of.start);
    };
    return places(one) < places(other);
}

// Returns a hash of a key. Different keys hardly ever have the same hash.
size_t number_of(const Hazards::Key &key) {
    auto [kernel, kind, memory, low, high] = key;
    std::string all = kernel + '\n' + kind + '\n' + memory + '\n' + std::to_string(low) + '\n' +
                      std::to_string(high);
    return std::hash<std::string>()(all);
}

// Writes a number as 1,234,567.
std::string with_commas(size_t number) {
    std::string digits = std::to_string(number);
    for (size_t at = digits.size(); at > 3;)
        digits.insert(at -= 3, ",");
    return digits;
}

// Sets the place of a copy from the client's words, such as "copy_to_host on the stream, queued at
// train.py:12".
void set_place(HazardAccess &access, const std::string &words) {
    access.place = words;
    size_t at = words.rfind(" at "), colon = words.rfind(':');
    if (at == std::string::npos || colon == std::string::npos || colon < at)
        return;
    access.file = words.substr(at + 4, colon - at - 4);
    access.line = std::atoi(words.c_str() + colon + 1);
}

} // namespace

std::string HazardAccess::told() const {
    return mode + " by thread " + ptx::triple(thread) + " of block " + ptx::triple(block) + " at " +
           place;
}

void Hazards::add(const Key &key, bool benign, RaceMode mode, const std::function<Hazard()> &make) {
    auto [known, is_new] = known_.try_emplace(key, hazards_.size());
    if (!is_new) {
        Hazard &hazard = hazards_[known->second];
        uint64_t count = ++hazard.count;
        bool reported = !hazard.benign, same = hazard.benign == benign;
        if ((benign && reported) || !make)
            return;
        Hazard other = make();
        if (same && !is_before(other, hazard))
            return;
        other.count = count;
        other.print = hazard.print;
        if (other.address == hazard.address) { // perhaps the client's names
            other.memory = hazard.memory;
            other.made = hazard.made;
        }
        hazard = std::move(other);
        if (same)
            return;
        // The earlier races of this hazard stored equal bytes, but this one does not, so the hazard
        // is reported again.
    } else if (!make || hazards_.size() == room) {
        if (make && lost_.size() < most_lost)
            lost_.insert(number_of(key));
        known_.erase(known);
        return;
    } else
        hazards_.push_back(make());
    unnamed_.push_back(known->second);
    hazards_[known->second].print = mode == RaceMode::Print || mode == RaceMode::Abort;
    if (mode == RaceMode::Abort && !hazards_[known->second].benign) {
        flush();
        std::abort();
    }
}

void Hazards::name_first(const std::string &memory, const std::string &made,
                         const std::string &copy) {
    Hazard &hazard = hazards_[unnamed_.front()];
    unnamed_.pop_front();
    if (!memory.empty())
        hazard.memory = memory;
    hazard.made = made;
    if (!copy.empty())
        set_place(hazard.second, copy);
    if (hazard.benign)
        return;
    note(Note::Hazard, hazard.told());
    if (hazard.print)
        std::fprintf(stderr, "%s\n", hazard.told().c_str());
}

void Hazards::flush() {
    while (first_unnamed())
        name_first("", "", "");
}

void Hazards::clear() {
    flush();
    uint64_t cleared = cleared_ + 1;
    *this = Hazards();
    cleared_ = cleared;
}

namespace {

std::string thread_of(const HazardAccess &access) {
    return "thread " + ptx::triple(access.thread) + " of block " + ptx::triple(access.block);
}

// An undefined value: where it was read, and what it was used for.
std::string told_undefined(const Hazard &hazard) {
    std::string text = "uninitialized value";
    if (!hazard.kernel.empty())
        text += " in kernel '" + hazard.kernel + "'";
    std::string bytes = hazard.where();
    if (hazard.has_first)
        text += ": " + thread_of(hazard.first) +
                (hazard.first.mode == "read" ? " reads " : " updates ") + bytes + " at " +
                hazard.first.place + ", which nobody has written";
    else
        text += ": nobody has written " + bytes;
    bool is_long = hazard.second.place.find(',') != std::string::npos; // "..., queued at ...,"
    if (hazard.second.mode == "copy")
        text += ", and " + hazard.second.place + (is_long ? ", copies " : " copies ") +
                (hazard.has_first ? "the value" : "them") + " to the host";
    else if (hazard.has_second)
        text += ", and the value is used as the " + hazard.second.mode + " at " +
                hazard.second.place + " in " + thread_of(hazard.second);
    return text + ". " + hazard.remedy;
}

} // namespace

std::string Hazard::where() const {
    return "bytes " + std::to_string(start) + " to " + std::to_string(stop) + " of " + memory +
           (made.empty() ? "" : " (made at " + made + ")");
}

std::string Hazard::told() const {
    if (kind == "uninitialized")
        return told_undefined(*this);
    std::string text = kind + " in kernel '" + kernel + "'";
    if (!story.empty())
        return text + ": " + story + "; " + remedy;
    return text + " on " + where() + ": " + first.told() + ", and " + second.told() + ". " +
           (reason.empty() ? "Nothing orders them" : reason) + ": " + remedy;
}

std::string Hazards::text(size_t index) const {
    const Hazard &hazard = hazards_[index];
    std::string text = hazard.told();
    if (hazard.count > 1)
        text += " (" + std::to_string(hazard.count) + " times)";
    if (!lost_.empty() && index + 1 == hazards_.size())
        text += " (and " + with_commas(lost_.size()) + " more hazards)";
    return text;
}

std::string Hazards::json(size_t index) const {
    const Hazard &hazard = hazards_[index];
    return R"({"kind": )" + quoted(hazard.kind) + R"(, "kernel": )" + quoted(hazard.kernel) +
           R"(, "memory": )" + quoted(hazard.memory) + R"(, "start": )" +
           std::to_string(hazard.start) + R"(, "stop": )" + std::to_string(hazard.stop) +
           R"(, "first": )" + (hazard.has_first ? object(hazard.first) : "null") +
           R"(, "second": )" + (hazard.has_second ? object(hazard.second) : "null") +
           R"(, "benign": )" + (hazard.benign ? "true" : "false") + R"(, "count": )" +
           std::to_string(hazard.count) + R"(, "text": )" + quoted(text(index)) + "}";
}

void name_hazards(Lock &lock) {
    while (const Hazard *unnamed = state().hazards.first_unnamed()) {
        Hazard hazard = *unnamed;
        uint64_t cleared = state().hazards.cleared();
        cudadrvSoftWords client = state().words;
        std::string memory, made, copy;
        bool freed = is_freed(hazard.address);
        lock.unlock();
        bool asked = name_memory(client, hazard.address, freed, memory, made) &&
                     name_operation(client, hazard.copy, copy);
        acquire(lock);
        if (!asked)
            return;
        if (cleared == state().hazards.cleared() && state().hazards.first_unnamed() == unnamed)
            state().hazards.name_first(memory, made, copy);
    }
}

} // namespace soft
