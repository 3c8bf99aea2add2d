// Draws each choice of softdriver/explore/choices.def under replay, as code would that forgot to
// let a search make it. Prints a line for each: its name, the option, and the limits of the run.

#include "explore/chooser.h"

#include <cstdio>

int main() {
    using soft::explore::Choice;
    const std::pair<const char *, Choice> choices[] = {
#define SOFT_CHOICE(name, rule, why) {#name, Choice::name},
#include "explore/choices.def"
    };
    for (const auto &[name, choice] : choices) {
        soft::explore::Chooser chooser;
        chooser.start_replay({});
        unsigned long long alone = chooser.draw(choice, 1);
        bool quiet = chooser.run().limits.empty();
        unsigned long long drawn = chooser.draw(choice, 7);
        std::printf("%s\t%llu\t%d\t%llu\t", name, alone, quiet, drawn);
        for (const std::string &limit : chooser.run().limits)
            std::printf("%s", limit.c_str());
        std::printf("\n");
    }
}
