#pragma once

#include "ptx/reader.h"

namespace soft::ptx {

// The value of a constant expression: of 64 bits, with a sign or without, or a float.
struct Constant {
    enum class Kind : uint8_t { Signed, Unsigned, Double, Single };

    Kind kind = Kind::Signed;
    uint64_t bits = 0; // of a Double, of a double; of a Single, of a float

    bool is_float() const { return kind == Kind::Double || kind == Kind::Single; }
};

bool starts_constant(const Reader &reader);
Constant read_constant(Reader &reader);
// One that must be an integer.
uint64_t read_integer(Reader &reader);
// As the bits of an item of this type.
uint64_t converted(const Constant &value, Type type);

} // namespace soft::ptx
