#pragma once

#include <cstdint>

namespace soft {

// The random generator splitmix64. A seed produces the same sequence on every machine.
class Random {
  public:
    explicit Random(uint64_t seed = 1) : state_(seed) {}

    uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    // Returns a number from 0 to bound - 1.
    uint64_t below(uint64_t bound) { return next() % bound; }

  private:
    uint64_t state_;
};

} // namespace soft
