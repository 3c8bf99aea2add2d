#pragma once

#include "base/random.h"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace soft {

// A table of objects by handle. Handles are keys and never addresses, so that the driver can report
// a stale handle instead of crashing. Real drivers reuse handle values. To find programs that do
// not expect this, insert() returns an erased handle half of the time if `reuse` is a generator.
template <class Object> class HandleTable {
  public:
    explicit HandleTable(uintptr_t base) : first_(base), next_(base) {}

    uintptr_t insert(std::shared_ptr<Object> object, Random *reuse) {
        uintptr_t handle;
        if (reuse && !freed_.empty() && reuse->below(2)) {
            handle = freed_.back();
            freed_.pop_back();
        } else {
            handle = next_;
            next_ += step;
        }
        objects_.emplace(handle, std::move(object));
        return handle;
    }

    std::shared_ptr<Object> find(uintptr_t handle) const {
        auto found = objects_.find(handle);
        return found == objects_.end() ? nullptr : found->second;
    }

    void erase(uintptr_t handle) {
        if (objects_.erase(handle) && freed_.size() < max_freed)
            freed_.push_back(handle);
    }

    // Returns whether the handle belonged to an object that was erased.
    bool was_erased(uintptr_t handle) const {
        return handle >= first_ && handle < next_ && (handle - first_) % step == 0 &&
               !objects_.count(handle);
    }

    // Erases all objects. Their handles are not used again.
    void clear() {
        auto objects = std::move(objects_); // their destructors may look at the table
        objects_.clear();
    }

    // Forgets the erased handles, so that later handles do not depend on earlier erasures.
    void clear_freed() { freed_.clear(); }

    size_t size() const { return objects_.size(); }
    auto begin() const { return objects_.begin(); }
    auto end() const { return objects_.end(); }

  private:
    static constexpr uintptr_t step = 16;
    static constexpr size_t max_freed = 64;

    const uintptr_t first_;
    uintptr_t next_;
    // An ordered map, so that runs with the same seed iterate in the same order.
    std::map<uintptr_t, std::shared_ptr<Object>> objects_;
    std::vector<uintptr_t> freed_;
};

} // namespace soft
