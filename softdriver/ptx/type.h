#pragma once

#include <cstddef>
#include <cstdint>

namespace soft::ptx {

// The fundamental types of PTX that this driver supports.
enum class Type : uint8_t {
    None,
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    F32,
    F64,
};

// Returns the size of a type in bytes, which is 0 for None and Pred.
constexpr size_t size_of(Type type) {
    switch (type) {
    case Type::B8:
    case Type::U8:
    case Type::S8:
        return 1;
    case Type::B16:
    case Type::U16:
    case Type::S16:
    case Type::F16:
    case Type::BF16:
        return 2;
    case Type::B32:
    case Type::U32:
    case Type::S32:
    case Type::F16x2:
    case Type::BF16x2:
    case Type::F32:
        return 4;
    case Type::B64:
    case Type::U64:
    case Type::S64:
    case Type::F64:
        return 8;
    case Type::B128:
        return 16;
    default:
        return 0;
    }
}

enum class Space : uint8_t { Generic, Register, Const, Global, Local, Param, Shared };

} // namespace soft::ptx
