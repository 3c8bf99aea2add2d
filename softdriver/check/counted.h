#pragma once

#include <cstdint>
#include <utility>

// Objects that several owners share. std::shared_ptr counts with atomic operations, which cost more
// than all the rest of a clock. These objects belong to the checks of one machine, so that only one
// thread at a time uses them.

namespace soft::check {

class Counted {
  public:
    Counted() = default;
    Counted(const Counted &) {} // the copy has no owners yet
    virtual ~Counted() = default;
    Counted &operator=(const Counted &) = delete;

  private:
    template <class T> friend class CountedPtr;
    mutable uint32_t owners_ = 0;
};

template <class T> class CountedPtr {
  public:
    CountedPtr() = default;
    CountedPtr(T *object) : object_(object) { take(); }
    CountedPtr(const CountedPtr &other) : object_(other.object_) { take(); }
    CountedPtr(CountedPtr &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    ~CountedPtr() { drop(); }
    CountedPtr &operator=(CountedPtr other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }

    T *get() const { return object_; }
    T &operator*() const { return *object_; }
    T *operator->() const { return object_; }
    explicit operator bool() const { return object_ != nullptr; }
    bool operator==(const CountedPtr &other) const { return object_ == other.object_; }
    bool operator!=(const CountedPtr &other) const { return object_ != other.object_; }
    bool is_only_owner() const { return object_->owners_ == 1; }

  private:
    void take() const {
        if (object_)
            object_->owners_++;
    }
    void drop() const {
        if (object_ && --object_->owners_ == 0)
            delete object_;
    }

    T *object_ = nullptr;
};

} // namespace soft::check
