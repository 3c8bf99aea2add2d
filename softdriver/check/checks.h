#pragma once

#include "base/settings.h"
#include "check/places.h"
#include "ptx/observer.h"

#include <memory>

namespace soft::check {

// Makes the observer of a launch for the checks whose bits (Check) are set.
std::unique_ptr<ptx::Observer> make_observer(ptx::Machine &machine, unsigned checks,
                                             const Report &report, const Describe &describe);

} // namespace soft::check
