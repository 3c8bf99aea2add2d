#include "explore/choices.h"

namespace soft::explore {
namespace {

enum Rule { Weakest, Searched };

constexpr Rule rules[] = {
#define SOFT_CHOICE(name, rule, why) rule,
#include "explore/choices.def"
};

} // namespace

bool is_weakest_first(Choice choice) { return rules[static_cast<size_t>(choice)] == Weakest; }

const std::string &text_of(Limit limit) {
    static const std::string texts[] = {
#define SOFT_LIMIT(name, text) text,
#include "explore/choices.def"
    };
    return texts[static_cast<size_t>(limit)];
}

} // namespace soft::explore
