#include "race/race_names.h"

#include "api/state.h"

namespace soft {
namespace {

constexpr int longest = 1000;

// Asks the client for a description. Returns false if the client cannot answer this thread.
template <class Ask> bool ask(const Ask &describe, std::string &words) {
    char text[longest];
    int length = describe(text, longest);
    if (length > 0)
        words.assign(text, static_cast<size_t>(length));
    return length >= 0;
}

} // namespace

bool name_operation(const cudadrvSoftWords &client, const RaceLabel &label, std::string &name) {
    auto describe = [&](char *text, int size) {
        return client.describe_operation(label.numbers, text, size);
    };
    return !label.known() || !client.describe_operation || ask(describe, name);
}

bool name_memory(const cudadrvSoftWords &client, uintptr_t address, bool freed, std::string &name,
                 std::string &made) {
    std::string words;
    auto ask_by = [&](auto function) {
        auto describe = [&](char *text, int size) { return function(address, text, size); };
        return !address || !function || ask(describe, words);
    };
    if (!ask_by(client.describe_memory))
        return false;
    // The client may have other memory at the address, such as a view of memory that it does not
    // own.
    if (freed && words.empty() && !ask_by(client.describe_freed))
        return false;
    const std::string between = ", made at ";
    size_t at = words.rfind(between);
    name = words.substr(0, at);
    made = at == std::string::npos ? "" : words.substr(at + between.size());
    return true;
}

void name_races(Lock &lock) {
    RaceList &list = state().races.list;
    while (const RaceText *unnamed = list.first_unnamed()) {
        uint64_t number = list.number_of_first();
        RaceText race = *unnamed;
        cudadrvSoftWords client = state().words;
        RaceNames names;
        std::string made; // the report of a race has two places already
        bool freed = is_freed(race.address);
        lock.unlock();
        bool asked = name_operation(client, race.later.label, names.later) &&
                     name_operation(client, race.earlier.label, names.earlier) &&
                     name_memory(client, race.address, freed, names.memory, made);
        acquire(lock);
        if (!asked)
            return;
        list.name(number, names);
    }
    name_hazards(lock);
    name_kernel_fault(lock);
}

} // namespace soft
