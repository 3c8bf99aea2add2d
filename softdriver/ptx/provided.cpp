#include "ptx/provided.h"

#include "ptx/observer.h"

#include <cstring>

namespace soft::ptx {

namespace {

// These handlers copy values between rows and local memory, where they are at the offset `place`.
template <class T> void load(Warp &warp, const Step &step) {
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        memcpy(warp.row<T>(step.rows[0]) + lane,
               warp.local(lane) + warp.frame->local_begin + step.place, sizeof(T));
    }
}
template <class T> void store(Warp &warp, const Step &step) {
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t address = warp.frame->local_begin + step.place;
        memcpy(warp.local(lane) + address, warp.row<T>(step.rows[1]) + lane, sizeof(T));
        if (warp.machine.observer)
            warp.machine.observer->uses(warp, lane, Space::Local, address, sizeof(T), Use::Write);
    }
}
template <class T> void move(Warp &warp, const Step &step) {
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        warp.row<T>(step.rows[0])[lane] = warp.row<T>(step.rows[1])[lane];
    }
}

Type type_of(size_t bytes) { return bytes == 8 ? Type::B64 : Type::B32; }

} // namespace

Row provided_argument(Decoder &decoder, const Operand &operand, size_t bytes) {
    if (!decoder.named(operand))
        return decoder.source(operand, type_of(bytes));
    Step before;
    before.run = bytes == 8 ? load<uint64_t> : load<uint32_t>;
    before.rows[0] = decoder.temporary(bytes);
    before.place = decoder.place_of_parameter(operand, bytes);
    decoder.emit_before(before);
    return before.rows[0];
}

Row provided_result(Decoder &decoder, const Operand *operand, size_t bytes) {
    if (operand && decoder.named(*operand))
        decoder.place_of_parameter(*operand, bytes); // refuses a variable that is too small
    return decoder.temporary(bytes);
}

void emit_result(Decoder &decoder, const Operand *operand, size_t bytes) {
    if (!operand)
        return;
    decoder.step.rows[1] = decoder.step.rows[0];
    if (decoder.named(*operand)) {
        decoder.step.place = decoder.place_of_parameter(*operand, bytes);
        return decoder.emit(bytes == 8 ? store<uint64_t> : store<uint32_t>);
    }
    decoder.step.rows[0] = decoder.destination(*operand, type_of(bytes));
    decoder.emit(bytes == 8 ? move<uint64_t> : move<uint32_t>);
}

} // namespace soft::ptx
