#pragma once

#include "race_record.h"

namespace soft {

// The race detector.
class Races {
  public:
    RaceRecord record;
};

} // namespace soft
