#pragma once

#include <mutex>
#include <pthread.h>
#include <time.h>

namespace soft {

using Lock = std::unique_lock<std::mutex>;

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Takes the state lock. Threads hold it for less than a microsecond, so spinning first usually
// avoids a sleep.
inline void acquire(Lock &lock) {
    for (int i = 0; i < 200; i++) {
        if (lock.try_lock())
            return;
        relax();
    }
    lock.lock();
}

// A condition variable on the monotonic clock. std::condition_variable would call
// pthread_cond_clockwait, which older thread sanitizers do not intercept.
class Signal {
  public:
    Signal() {
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&condition_, &attributes);
        pthread_condattr_destroy(&attributes);
    }
    Signal(const Signal &) = delete;
    Signal &operator=(const Signal &) = delete;

    void wait(Lock &lock) { pthread_cond_wait(&condition_, lock.mutex()->native_handle()); }

    void wait_for(Lock &lock, long microseconds) {
        timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += microseconds * 1000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&condition_, lock.mutex()->native_handle(), &until);
    }

    void notify_one() { pthread_cond_signal(&condition_); }
    void notify_all() { pthread_cond_broadcast(&condition_); }

  private:
    pthread_cond_t condition_;
};

// Returns growing pauses, in microseconds, for a thread that polls a condition such as a flag in
// host memory, whose change wakes no thread.
class Backoff {
  public:
    long next() {
        long now = pause_;
        pause_ = pause_ < 500 ? pause_ * 2 : 1000;
        return now;
    }
    void reset() { pause_ = 20; }
    bool slept() const { return pause_ > 20; }

  private:
    long pause_ = 20;
};

} // namespace soft
