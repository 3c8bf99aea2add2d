#pragma once

#include "ptx/reader.h"

namespace soft::ptx {

// The value of a constant expression: a signed or unsigned 64-bit integer, or a float.
struct Constant {
    enum class Kind : uint8_t { Signed, Unsigned, Double, Single };

    Kind kind = Kind::Signed;
    // The bits of a float for Single, of a double for Double, else of the integer.
    uint64_t bits = 0;

    bool is_float() const { return kind == Kind::Double || kind == Kind::Single; }
};

bool starts_constant(const Reader &reader);
Constant read_constant(Reader &reader);
// Reads a constant expression whose value must be an integer.
uint64_t read_integer(Reader &reader);
// Returns the bits of the value after a conversion to this type.
uint64_t converted(const Constant &value, Type type);

} // namespace soft::ptx
