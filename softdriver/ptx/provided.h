#pragma once

#include "ptx/decoder.h"

// The arguments and results of calls of functions that the driver provides. Each is a .param
// variable or a register; an argument may also be a constant.

namespace soft::ptx {

// Returns a row that has an argument of 4 or 8 bytes when the step runs.
Row provided_argument(Decoder &decoder, const Operand &operand, size_t bytes);
// Returns the row into which the step has to put the result. After emit() of this step,
// emit_result() moves the result to where it belongs. `operand` is null if the call has no result.
Row provided_result(Decoder &decoder, const Operand *operand, size_t bytes);
void emit_result(Decoder &decoder, const Operand *operand, size_t bytes);

} // namespace soft::ptx
