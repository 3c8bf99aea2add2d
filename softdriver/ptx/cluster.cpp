#include "ptx/decoder.h"
#include "ptx/families.h"
#include "ptx/machine.h"
#include "ptx/special.h"

// This file decodes and runs mapa and getctarank. A block reaches only its own shared memory, so
// the addresses of shared::cluster are those of shared::cta.

namespace soft::ptx {

namespace {

// The handler of mapa. rows[1] has the addresses, rows[2] the numbers of the blocks. T is the type
// of the addresses.
template <class T> void map_address(Warp &warp, const Step &step) {
    unsigned own = rank_in_cluster(warp.machine, warp);
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint32_t wanted = warp.row<uint32_t>(step.rows[2])[lane];
        if (wanted != own)
            return warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                     "the shared memory of block " + std::to_string(wanted) +
                                         " of the cluster, which block " + std::to_string(own) +
                                         " cannot reach in the software driver");
        warp.row<T>(step.rows[0])[lane] = warp.row<T>(step.rows[1])[lane];
    }
}

void find_rank(Warp &warp, const Step &step) {
    unsigned own = rank_in_cluster(warp.machine, warp);
    for (uint32_t left = warp.active; left; left &= left - 1)
        warp.row<uint32_t>(step.rows[0])[__builtin_ctz(left)] = own;
}

// Reads the type of an address, which is generic unless a state space precedes it.
Type take_address_type(Decoder &decoder) {
    bool generic = !decoder.take("shared::cluster");
    Type type = decoder.take_type();
    if (type != Type::U64 && (type != Type::U32 || generic))
        decoder.refuse_types();
    return type;
}

void decode_map(Decoder &decoder) {
    Type type = take_address_type(decoder);
    decoder.expect_operands(3);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    decoder.step.rows[2] = decoder.source(decoder.operand(2), Type::U32);
    decoder.emit(type == Type::U32 ? map_address<uint32_t> : map_address<uint64_t>);
}

void decode_rank(Decoder &decoder) {
    Type type = take_address_type(decoder);
    decoder.expect_operands(2);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::U32);
    decoder.source(decoder.operand(1), type);
    decoder.emit(find_rank);
}

} // namespace

void add_clusters(Opcodes &opcodes) {
    opcodes["mapa"] = decode_map;
    opcodes["getctarank"] = decode_rank;
}

} // namespace soft::ptx
