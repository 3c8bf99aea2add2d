#pragma once

#include "ptx/reader.h"

namespace soft::ptx {

// The value of a constant expression: a signed or unsigned 64-bit integer, or a float.
struct Constant {
    enum class Kind : uint8_t { Signed, Unsigned, Double, Single };

    Kind kind = Kind::Signed;
    uint64_t bits = 0; // a Single's are those of a float, a Double's those of a double

    bool is_float() const { return kind == Kind::Double || kind == Kind::Single; }
};

bool starts_constant(const Reader &reader);
Constant read_constant(Reader &reader);
// The same, but the value must be an integer.
uint64_t read_integer(Reader &reader);
// The value converted to the bits of this type.
uint64_t converted(const Constant &value, Type type);

} // namespace soft::ptx
