#pragma once

#include "ptx/float_mode.h"
#include "ptx/warp.h"

#include <type_traits>
#include <utility>

// This header has handlers that loop over the lanes of a warp.

namespace soft::ptx {

// The handler of instructions that affect only the speed.
inline void nothing(Warp &, const Step &) {}

constexpr uint32_t lane_bits[warp_size] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
    1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
    1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
    1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31,
};

// Reads the values of a row in the lanes. A row of predicates is a mask with one bit for each lane.
template <class T> struct Source {
    const T *values;
    Source(const Warp &warp, Row row) : values(warp.row<T>(row)) {}
    T operator[](int lane) const { return values[lane]; }
};
template <> struct Source<bool> {
    uint32_t mask;
    Source(const Warp &warp, Row row) : mask(warp.predicate(row)) {}
    bool operator[](int lane) const { return (mask & lane_bits[lane]) != 0; }
};

#if defined(__clang__)
#define SOFT_EVERY_LANE _Pragma("clang loop vectorize(assume_safety)")
#else
#define SOFT_EVERY_LANE _Pragma("GCC ivdep")
#endif

// Handlers whose loops are twice as fast with AVX2 are compiled a second time, for AVX2. SOFT_FMA
// is separate, because a compiler that may use FMA may fuse a multiplication and an addition that
// must be rounded separately. Sanitizer builds use neither, because the second version would double
// the compile time.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <immintrin.h>
#define SOFT_INTRINSICS
#define SOFT_AVX2 __attribute__((target("avx2")))
#define SOFT_AVX512 __attribute__((target("avx512f")))
#define SOFT_FMA __attribute__((target("avx2,fma")))
inline bool has_avx2() { return __builtin_cpu_supports("avx2"); }
inline bool has_avx512() { return __builtin_cpu_supports("avx512f"); }
inline bool has_fma() { return has_avx2() && __builtin_cpu_supports("fma"); }
#else
#define SOFT_AVX2
#define SOFT_AVX512
#define SOFT_FMA
inline bool has_avx2() { return false; }
inline bool has_avx512() { return false; }
inline bool has_fma() { return false; }
#endif
#define SOFT_INLINE __attribute__((always_inline)) inline

// Stores results in a row: for all lanes if all live lanes are active, else only for the active
// lanes.
template <class T> SOFT_INLINE void store_active(const Warp &warp, T *row, const T *results) {
    uint32_t active = warp.active == warp.live ? ~uint32_t{0} : warp.active;
    SOFT_EVERY_LANE
    for (int lane = 0; lane < warp_size; lane++)
        row[lane] = active & lane_bits[lane] ? results[lane] : row[lane];
}

// Computes rows[0] = operation(rows[1], ...) in all active lanes. If all live lanes are active, the
// loop runs over all 32 lanes: compilers can vectorize this loop, and the results in ended lanes
// are never used.
template <auto operation> struct Lanes;
template <class D, class... S, D (*operation)(S...)> struct Lanes<operation> {
    static void run(Warp &warp, const Step &step) {
        call(warp, step, std::index_sequence_for<S...>());
    }
    SOFT_AVX2 static void run_avx2(Warp &warp, const Step &step) {
        call(warp, step, std::index_sequence_for<S...>());
    }
    SOFT_FMA static void run_fma(Warp &warp, const Step &step) {
        call(warp, step, std::index_sequence_for<S...>());
    }

  private:
    template <size_t... n>
    SOFT_INLINE static void call(Warp &warp, const Step &step, std::index_sequence<n...>) {
        if constexpr (std::is_same_v<D, bool>)
            compare(warp, step.rows[0], Source<S>(warp, step.rows[n + 1])...);
        else
            compute(warp, warp.row<D>(step.rows[0]), Source<S>(warp, step.rows[n + 1])...);
    }
    SOFT_INLINE static void compute(Warp &warp, D *result, Source<S>... sources) {
        if (warp.active == warp.live) {
            SOFT_EVERY_LANE
            for (int lane = 0; lane < warp_size; lane++)
                result[lane] = operation(sources[lane]...);
        } else
            for (uint32_t left = warp.active; left; left &= left - 1) {
                int lane = __builtin_ctz(left);
                result[lane] = operation(sources[lane]...);
            }
    }
    SOFT_INLINE static void compare(Warp &warp, Row row, Source<S>... sources) {
        uint32_t result = 0;
        SOFT_EVERY_LANE
        for (int lane = 0; lane < warp_size; lane++)
            result |= operation(sources[lane]...) ? lane_bits[lane] : 0;
        warp.set_predicate(row, result);
    }
};

// Computes all lanes with `operation` if `doubtful` is true for the operand of an active lane, and
// otherwise with `quick`.
template <auto operation, auto quick, auto doubtful> struct QuickLanes;
template <class T, T (*operation)(T), T (*quick)(T), bool (*doubtful)(T)>
struct QuickLanes<operation, quick, doubtful> {
    static void run(Warp &warp, const Step &step) {
        choose(warp, step) ? Lanes<quick>::run(warp, step) : Lanes<operation>::run(warp, step);
    }
    SOFT_AVX2 static void run_avx2(Warp &warp, const Step &step) {
        choose(warp, step) ? Lanes<quick>::run_avx2(warp, step)
                           : Lanes<operation>::run_avx2(warp, step);
    }

  private:
    SOFT_INLINE static bool choose(const Warp &warp, const Step &step) {
        const T *operands = warp.row<T>(step.rows[1]);
        uint32_t doubts = 0;
        SOFT_EVERY_LANE
        for (int lane = 0; lane < warp_size; lane++)
            doubts |= doubtful(operands[lane]) ? lane_bits[lane] : 0;
        return !(doubts & warp.active);
    }
};

template <auto operation> Handler widest() {
    return has_avx2() ? Lanes<operation>::run_avx2 : Lanes<operation>::run;
}
template <auto operation> const Handler lanes = widest<operation>();
template <auto operation, auto quick, auto doubtful>
const Handler quick_lanes = has_avx2() ? QuickLanes<operation, quick, doubtful>::run_avx2
                                       : QuickLanes<operation, quick, doubtful>::run;
// The handler of an operation that is a single fused multiply-add. It may be compiled for
// FMA: it has no other multiplication and addition that the compiler could fuse.
template <auto operation>
const Handler fused_lanes = has_fma() ? Lanes<operation>::run_fma : Lanes<operation>::run;

// Runs a handler of Lanes in FloatMode::Flushing.
template <Handler handler> void flushing(Warp &warp, const Step &step) {
    set_float_mode(FloatMode::Flushing);
    handler(warp, step);
    set_float_mode(FloatMode::Usual);
}
template <auto operation>
const Handler flushing_lanes =
    has_avx2() ? flushing<Lanes<operation>::run_avx2> : flushing<Lanes<operation>::run>;
template <auto operation> const Handler flushing_fused_lanes = flushing<Lanes<operation>::run_fma>;

template <class T> T same(T a) { return a; } // the operation of a move

} // namespace soft::ptx
