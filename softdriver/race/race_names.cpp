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

bool ask_client(const cudadrvSoftWords &client, const RaceText &race, RaceNames &names) {
    auto operation = [&](const RaceLabel &label, std::string &words) {
        return !label.known() || !client.describe_operation ||
               ask([&](char *text,
                       int size) { return client.describe_operation(label.numbers, text, size); },
                   words);
    };
    auto memory = [&](char *text, int size) {
        return client.describe_memory(race.address, text, size);
    };
    return operation(race.later.label, names.later) &&
           operation(race.earlier.label, names.earlier) &&
           (!client.describe_memory || ask(memory, names.memory));
}

} // namespace

void name_races(Lock &lock) {
    RaceList &list = state().races.list;
    while (const RaceText *unnamed = list.first_unnamed()) {
        uint64_t number = list.number_of_first();
        RaceText race = *unnamed;
        cudadrvSoftWords client = state().words;
        RaceNames names;
        lock.unlock();
        bool asked = ask_client(client, race, names);
        acquire(lock);
        if (!asked)
            return;
        list.name(number, names);
    }
    name_hazards(lock);
}

} // namespace soft
