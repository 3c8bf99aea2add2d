#pragma once

#include "ptx/ast.h"

// This header lets other instructions update memory as `red` does.

namespace soft::ptx {

// The operations of atom and red, in the order of their names in decode_atomic(). Those from Exch
// on are no reductions.
enum class Operation { Add, Min, Max, And, Or, Xor, Inc, Dec, Exch, Cas };

// Atomically replaces the item at `place` by the result of an operation with the item at `operand`.
// Increments `changes` if the item has another value afterwards.
using UpdateItem = void (*)(char *place, const char *operand, uint64_t &changes);
// Returns null if there is no such reduction.
UpdateItem item_update(Operation operation, Type type);

// Returns whether the order of such operations on a value makes no difference, if no thread reads
// the values in between.
bool commutes(Operation operation, Type type);

} // namespace soft::ptx
