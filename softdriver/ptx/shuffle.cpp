#include "decode_arithmetic.h"
#include "machine.h"

namespace soft::ptx {
void add_shuffles(Opcodes &) {}
void decode_provided_call(Decoder &decoder, const Function &function, const Operand *) {
    decoder.refuse("function '" + function.name + "' is nowhere defined");
}
} // namespace soft::ptx
