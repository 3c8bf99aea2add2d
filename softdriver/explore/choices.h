#pragma once

#include <string>

// What decides in the driver, and why a search may not have explored all orders: the tables of
// choices.def as types.

namespace soft::explore {

enum class Choice {
#define SOFT_CHOICE(name, rule, why) name,
#include "explore/choices.def"
};

enum class Limit {
#define SOFT_LIMIT(name, text) name,
#include "explore/choices.def"
};

// Returns whether the first option of the choice permits everything that the others permit.
bool is_weakest_first(Choice choice);

const std::string &text_of(Limit limit);

} // namespace soft::explore
