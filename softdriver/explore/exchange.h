#pragma once

#include "explore/search.h"

#include <string>

// Runs and plans as texts, for a program that is run again and again as a process of its own.

namespace soft::explore {

std::string text_of(const Run &run);
bool parse_run(const std::string &text, Run &run);

std::string text_of(const Search::Plan &plan);
bool parse_plan(const std::string &text, Search::Plan &plan);

} // namespace soft::explore
