#pragma once

#include <cstdint>

// This header has the modes of the processor's floating-point unit. One of them does what .ftz
// does, without further instructions.

namespace soft::ptx {

#if defined(__x86_64__)

// Values of the register MXCSR. In both modes nothing traps, and results are rounded to nearest.
enum class FloatMode : uint32_t {
    Usual = 0x1f80,
    // Subnormal operands and results become zero and keep their sign. A result counts as subnormal
    // if it is subnormal when rounded with unlimited exponents, as on a GPU.
    Flushing = 0x9fc0,
};

// The compiler moves no access to memory across the assignment of a mode, so what is computed from
// memory, and stored in memory, before the next assignment is computed in this mode.
inline void set_float_mode(FloatMode mode) { asm volatile("ldmxcsr %0" : : "m"(mode) : "memory"); }
inline FloatMode float_mode() {
    FloatMode mode;
    asm volatile("stmxcsr %0" : "=m"(mode) : : "memory");
    return mode;
}

// Returns whether FloatMode::Flushing works: emulators of processors may ignore it.
inline bool can_flush() {
    auto product = [](float a, float b) {
        volatile float x = a, y = b, result;
        set_float_mode(FloatMode::Flushing);
        result = x * y;
        set_float_mode(FloatMode::Usual);
        return result;
    };
    FloatMode before = float_mode();
    constexpr float normal = 0x1p-126f, nearly_1 = 0x1.fffffep-1f;
    bool can = product(normal, nearly_1) == 0 && product(0x1p-127f, 1) == 0 &&
               product(0x1.000002p-126f, nearly_1) == normal;
    set_float_mode(before);
    return can;
}

#else

enum class FloatMode { Usual, Flushing };
inline void set_float_mode(FloatMode) {}
inline FloatMode float_mode() { return FloatMode::Usual; }
inline bool can_flush() { return false; }

#endif

} // namespace soft::ptx
