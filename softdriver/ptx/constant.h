#pragma once

#include "ptx/reader.h"

namespace soft::ptx {

// The value of a constant expression: a signed or unsigned 64-bit integer, or a float.
struct Constant {
    enum class Kind : uint8_t { Signed, Unsigned, Double, Single };

    Kind kind = Kind::Signed;
    // The bits of the value, which is a float for Single, a double for Double, and otherwise an
    // integer.
    uint64_t bits = 0;

    bool is_float() const { return kind == Kind::Double || kind == Kind::Single; }
};

bool starts_constant(const Reader &reader);
Constant read_constant(Reader &reader);
// Reads a constant expression. Fails if its value is not an integer.
uint64_t read_integer(Reader &reader);
// Converts the value to this type. Returns the bits of the result.
uint64_t converted(const Constant &value, Type type);

} // namespace soft::ptx
