#include "base/range.h"
#include "ptx/decoder.h"
#include "ptx/families.h"
#include "ptx/machine.h"

// This file decodes and runs alloca, stacksave and stackrestore.

namespace soft::ptx {

namespace {

// The handler of alloca. rows[1] has the sizes, rows[9] the stack pointers. T is the type of
// pointers and sizes.
template <class T> void allocate(Warp &warp, const Step &step) {
    uint64_t *tops = warp.row<uint64_t>(step.rows[9]);
    const T *sizes = warp.row<T>(step.rows[1]);
    T *pointers = warp.row<T>(step.rows[0]);
    uint64_t alignment = uint64_t(step.offset), highest = 0;
    uint64_t limit = warp.machine.launch.stack_bytes;
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t begin = round_up(tops[lane], alignment);
        if (begin > limit || sizes[lane] > limit - begin)
            return warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_ADDRESS,
                                     "the stack overflows: " + std::to_string(sizes[lane]) +
                                         " bytes are wanted after " + std::to_string(begin) +
                                         ", and the stack of a thread has " +
                                         std::to_string(limit) + " (CU_LIMIT_STACK_SIZE)");
        tops[lane] = begin + sizes[lane];
        highest = tops[lane] > highest ? tops[lane] : highest;
        pointers[lane] = T(begin);
    }
    warp.make_room(highest);
}

template <class T> void save(Warp &warp, const Step &step) {
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        warp.row<T>(step.rows[0])[lane] = T(warp.row<uint64_t>(step.rows[9])[lane]);
    }
}

// The handler of stackrestore. It refuses all positions that stacksave cannot have returned in this
// call of the function.
template <class T> void restore(Warp &warp, const Step &step) {
    uint64_t lowest = warp.frame->local_begin + warp.frame->code->local_bytes;
    uint64_t *tops = warp.row<uint64_t>(step.rows[9]);
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t saved = warp.row<T>(step.rows[1])[lane];
        if (saved < lowest || saved > tops[lane])
            return warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_ADDRESS,
                                     std::to_string(saved) +
                                         " is not a position of the stack that stacksave returned");
        tops[lane] = saved;
    }
}

Type take_pointer(Decoder &decoder) {
    Type type = decoder.take_type();
    if (type != Type::U32 && type != Type::U64)
        decoder.refuse_types();
    decoder.step.rows[9] = decoder.stack_pointer();
    return type;
}

void decode_alloca(Decoder &decoder) {
    constexpr uint64_t least = 8, most = 1 << 23; // limits of the alignment
    Type type = take_pointer(decoder);
    decoder.expect_operands(2, 3);
    uint64_t alignment = decoder.operands() == 3 ? decoder.integer(decoder.operand(2)) : least;
    if (alignment == 0 || (alignment & (alignment - 1)) || alignment > most)
        decoder.refuse("the alignment must be a power of 2, of at most 2^23");
    decoder.step.offset = int64_t(alignment < least ? least : alignment);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    decoder.emit(type == Type::U32 ? allocate<uint32_t> : allocate<uint64_t>);
}

void decode_save(Decoder &decoder) {
    Type type = take_pointer(decoder);
    decoder.expect_operands(1);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
    decoder.emit(type == Type::U32 ? save<uint32_t> : save<uint64_t>);
}

void decode_restore(Decoder &decoder) {
    Type type = take_pointer(decoder);
    decoder.expect_operands(1);
    decoder.step.rows[1] = decoder.source(decoder.operand(0), type);
    decoder.emit(type == Type::U32 ? restore<uint32_t> : restore<uint64_t>);
}

} // namespace

void add_stack(Opcodes &opcodes) {
    opcodes["alloca"] = decode_alloca;
    opcodes["stacksave"] = decode_save;
    opcodes["stackrestore"] = decode_restore;
}

} // namespace soft::ptx
