#pragma once

#include "ptx/code.h"

#include <map>
#include <vector>

// Which steps of a function can run after which others.

namespace soft::check {

class ControlFlow {
  public:
    explicit ControlFlow(const ptx::Code &code) : code_(code) {}

    // Returns whether step `to` can run after step `from`. Steps are given by their indices.
    bool leads_to(size_t from, size_t to);

  private:
    const ptx::Code &code_;
    std::map<size_t, std::vector<bool>> after_; // for each step: the steps that can run after it
};

} // namespace soft::check
