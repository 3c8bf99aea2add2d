#include "ptx/access.h"
#include "ptx/atomic.h"
#include "ptx/families.h"
#include "ptx/lanes.h"
#include "ptx/mbarrier.h"
#include "ptx/observer.h"
#include "ptx/tensor_map.h"

#include <algorithm>
#include <cstring>

// This file decodes and runs cp.async, cp.async.bulk and cp.reduce.async.bulk. Copies are complete
// when the instruction ends, so there is nothing to wait for.

namespace soft::ptx {

namespace {

// The handler of cp.async. rows[0] and rows[1] have the addresses of the target and of the source,
// rows[2] the number of bytes to read, and `detail` the number of bytes to write. The bytes that
// are written but not read become zero.
void copy_small(Warp &warp, const Step &step) {
    Access target{warp, step, Space::Shared, Use::Write};
    Access source{warp, step, Space::Global, Use::Read};
    size_t bytes = step.detail;
    warp.machine.progress++;
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        size_t read = warp.row<uint32_t>(step.rows[2])[lane];
        if (read > bytes)
            return warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                     std::to_string(read) + " bytes are to be read, and only " +
                                         std::to_string(bytes) + " written");
        char *to = target.reach_or_fail(lane, warp.row<uint64_t>(step.rows[0])[lane], bytes);
        if (!to)
            return;
        uint64_t from = warp.row<uint64_t>(step.rows[1])[lane];
        memset(to + read, 0, bytes - read);
        if (!read)
            continue;
        const char *found = source.reach_or_fail(lane, from, read, bytes);
        if (!found)
            return;
        memcpy(to, found, read);
    }
}

// Computes rows[2] of copy_small() from a predicate that says whether to ignore the source.
uint32_t unless_ignored(bool ignored, uint32_t bytes) { return ignored ? 0 : bytes; }

Row bytes_to_read(Decoder &decoder, uint32_t bytes, bool policy) {
    size_t count = decoder.operands() - (policy ? 1 : 0);
    Row all = decoder.constant(4, bytes);
    if (count < 4)
        return all;
    const Operand &last = decoder.operand(3);
    if (!decoder.is_register(last) || decoder.type_of(last) != Type::Pred)
        return decoder.source(last, Type::U32);
    Step choice;
    choice.run = lanes<unless_ignored>;
    choice.rows[1] = decoder.predicate(last);
    choice.rows[0] = decoder.temporary(4);
    choice.rows[2] = all;
    decoder.emit_before(choice);
    return choice.rows[0];
}

void decode_small(Decoder &decoder) {
    int level = decoder.take_any({"ca", "cg"});
    bool spaces = decoder.take_any({"shared", "shared::cta"}) >= 0 && decoder.take("global");
    bool policy = decoder.take("L2::cache_hint");
    decoder.take_any({"L2::64B", "L2::128B", "L2::256B"});
    if (level < 0 || !spaces)
        decoder.refuse("only copies from global to shared memory, with .ca or .cg, are known");
    decoder.expect_operands(policy ? 4 : 3, policy ? 5 : 4);
    uint64_t bytes = decoder.integer(decoder.operand(2));
    if (bytes != 16 && (level == 1 || (bytes != 4 && bytes != 8)))
        decoder.refuse("this number of bytes cannot be copied");
    decoder.step.rows[0] = decoder.whole_address(decoder.operand(0));
    decoder.step.rows[1] = decoder.whole_address(decoder.operand(1));
    decoder.step.rows[2] = bytes_to_read(decoder, uint32_t(bytes), policy);
    decoder.step.detail = uint16_t(bytes);
    decoder.step.rows[9] = decoder.step.rows[0];
    decoder.effect.kind = Effect::Kind::Write;
    decoder.effect.copies = true;
    decoder.effect.actor = Effect::Actor::Copy;
    decoder.effect.space = Space::Shared;
    decoder.effect.item_bytes = uint8_t(bytes);
    decoder.emit(copy_small);
}

// If the launch has no clusters, ends it with an error and returns false. Without clusters, a GPU
// cannot copy within shared memory. A cluster may be a single block.
bool check_cluster(Warp &warp, const Step &step) {
    if (warp.machine.launch.clustered)
        return true;
    warp.machine.fail(warp, step, unsigned(__builtin_ctz(warp.active)),
                      CUDA_ERROR_ILLEGAL_INSTRUCTION,
                      "a bulk copy within shared memory, in a launch without clusters");
    return false;
}

constexpr size_t unit_of_bulk = 16;
bool check_bytes(Warp &warp, const Step &step, unsigned lane, size_t bytes) {
    if (bytes % unit_of_bulk == 0)
        return true;
    warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                      std::to_string(bytes) + " bytes; they must be a multiple of " +
                          std::to_string(unit_of_bulk));
    return false;
}

// The handler of cp.async.bulk. rows[0] and rows[1] have the addresses of the target and of the
// source, rows[2] the number of bytes. If the copy tells an mbarrier, rows[3] has the address of
// this mbarrier.
template <Space to, Space from, bool tells> void copy_bulk(Warp &warp, const Step &step) {
    if (to == Space::Shared && from == Space::Shared && !check_cluster(warp, step))
        return;
    Access target{warp, step, to, Use::Write}, source{warp, step, from, Use::Read};
    warp.machine.progress++;
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        size_t bytes = warp.row<uint32_t>(step.rows[2])[lane];
        if (!check_bytes(warp, step, lane, bytes))
            return;
        uint64_t to_address = warp.row<uint64_t>(step.rows[0])[lane];
        uint64_t from_address = warp.row<uint64_t>(step.rows[1])[lane];
        if (bytes) {
            char *to_bytes = target.reach_or_fail(lane, to_address, bytes, unit_of_bulk);
            const char *from_bytes =
                to_bytes ? source.reach_or_fail(lane, from_address, bytes, unit_of_bulk) : nullptr;
            if (!from_bytes)
                return;
            memmove(to_bytes, from_bytes, bytes);
            note_move(warp, step, {lane, to, from, to_address, from_address, bytes, 0});
        }
        if (tells &&
            !complete_bytes(warp, step, lane, warp.row<uint64_t>(step.rows[3])[lane], bytes))
            return;
    }
}

// Reads the operands of any bulk copy: the target, the source and the number of bytes.
void take_bulk(Decoder &decoder) {
    decoder.effect.kind = Effect::Kind::Other;
    decoder.effect.actor = Effect::Actor::Bulk;
    decoder.step.rows[0] = decoder.whole_address(decoder.operand(0));
    decoder.step.rows[1] = decoder.whole_address(decoder.operand(1));
    decoder.step.rows[2] = decoder.source(decoder.operand(2), Type::U32);
}

// Decodes a copy to shared memory, which tells an mbarrier how many bytes it has copied.
void decode_bulk_load(Decoder &decoder) {
    bool policy = decoder.take("L2::cache_hint");
    int cluster = decoder.take_any({"shared::cluster", "shared::cta"});
    bool global = decoder.take("global");
    if (cluster < 0 || (!global && (cluster != 0 || !decoder.take("shared::cta"))))
        decoder.refuse("these state spaces are not supported");
    decoder.expect_operands(policy ? 5 : 4);
    take_bulk(decoder);
    decoder.step.rows[3] = decoder.whole_address(decoder.operand(3));
    decoder.emit(global ? copy_bulk<Space::Shared, Space::Global, true>
                        : copy_bulk<Space::Shared, Space::Shared, true>);
}

void decode_bulk_store(Decoder &decoder) {
    bool policy = decoder.take("L2::cache_hint");
    if (!decoder.take("global") || !decoder.take("shared::cta"))
        decoder.refuse("these state spaces are not supported");
    decoder.expect_operands(policy ? 4 : 3);
    take_bulk(decoder);
    decoder.emit(copy_bulk<Space::Global, Space::Shared, false>);
}

// Decodes an instruction that ends or awaits a group of copies. The instruction does nothing.
void decode_group(Decoder &decoder, size_t operands) {
    decoder.expect_operands(operands);
    uint64_t left = operands ? decoder.integer(decoder.operand(0)) : 0;
    decoder.effect.count = uint8_t(std::min<uint64_t>(left, 255));
    decoder.emit(nothing);
}

void decode_prefetch(Decoder &decoder) {
    bool policy = decoder.take("L2::cache_hint");
    if (!decoder.take("L2") || !decoder.take("global"))
        decoder.refuse("only .prefetch.L2.global is supported");
    decoder.expect_operands(policy ? 3 : 2);
    decoder.address(decoder.operand(0));
    decoder.source(decoder.operand(1), Type::U32);
    decoder.emit(nothing);
}

void decode_bulk(Decoder &decoder) {
    decoder.effect.actor = Effect::Actor::Bulk;
    decoder.effect.kind = Effect::Kind::Commit;
    if (decoder.take("commit_group"))
        return decode_group(decoder, 0);
    decoder.effect.kind = Effect::Kind::Await;
    if (decoder.take("wait_group")) {
        decoder.effect.only_reads = decoder.take("read");
        return decode_group(decoder, 1);
    }
    decoder.effect = {};
    bool tensor = decoder.take("tensor");
    if (decoder.take("prefetch"))
        return tensor ? decode_tensor_prefetch(decoder) : decode_prefetch(decoder);
    if (tensor)
        return decode_tensor_copy(decoder);
    if (decoder.take("mbarrier::complete_tx::bytes"))
        return decode_bulk_load(decoder);
    if (decoder.take("bulk_group"))
        return decode_bulk_store(decoder);
    decoder.refuse("not supported by the software driver");
}

// The handler of cp.reduce.async.bulk. rows[0] and rows[1] have the addresses of the target and of
// the source, rows[2] the number of bytes. `detail` has the operation and the type.
constexpr unsigned reduction_shift = 8;
void reduce_bulk(Warp &warp, const Step &step) {
    auto type = Type(step.detail & ((1u << reduction_shift) - 1));
    UpdateItem update_item = item_update(Operation(step.detail >> reduction_shift), type);
    Access target{warp, step, Space::Global, Use::Atomic};
    Access source{warp, step, Space::Shared, Use::Read};
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        size_t bytes = warp.row<uint32_t>(step.rows[2])[lane];
        if (!check_bytes(warp, step, lane, bytes))
            return;
        if (!bytes)
            continue;
        uint64_t to = warp.row<uint64_t>(step.rows[0])[lane];
        uint64_t from = warp.row<uint64_t>(step.rows[1])[lane];
        const char *items = source.reach_or_fail(lane, from, bytes, unit_of_bulk);
        char *places = items ? target.reach_or_fail(lane, to, bytes, unit_of_bulk) : nullptr;
        if (!places)
            return;
        for (size_t i = 0; i < bytes; i += size_of(type))
            update_item(places + i, items + i, warp.machine.progress);
        note_move(warp, step, {lane, Space::Global, Space::Shared, to, from, bytes, size_of(type)});
    }
}

void decode_reduction_of_bulk(Decoder &decoder) {
    if (!decoder.take("async") || !decoder.take("bulk"))
        decoder.refuse("only cp.reduce.async.bulk is supported");
    int operation = decoder.take_any({"add", "min", "max", "and", "or", "xor", "inc", "dec"});
    if (operation < 0)
        decoder.refuse("the operation is unknown");
    if (decoder.take("tensor"))
        return decode_tensor_reduction(decoder, Operation(operation));
    bool subnormals = decoder.take("noftz");
    Type type = decoder.take_type();
    bool adds = Operation(operation) == Operation::Add;
    bool pairs = type == Type::F16x2 || type == Type::BF16x2;
    if (pairs || (adds && type == Type::S64) || !item_update(Operation(operation), type))
        decoder.refuse_types();
    if (subnormals != (adds && (type == Type::F16 || type == Type::BF16)))
        decoder.refuse(".noftz belongs to .add of .f16 and .bf16");
    bool policy = decoder.take("L2::cache_hint");
    if (!decoder.take("global") || !decoder.take("shared::cta") || !decoder.take("bulk_group"))
        decoder.refuse("only .global.shared::cta.bulk_group is supported");
    decoder.expect_operands(policy ? 4 : 3);
    if (!commutes(Operation(operation), type))
        decoder.code().communicates = true;
    take_bulk(decoder);
    decoder.effect.item_bytes = uint8_t(size_of(type));
    decoder.step.detail = uint16_t(unsigned(type) | unsigned(operation) << reduction_shift);
    decoder.emit(reduce_bulk);
}

void decode_copy(Decoder &decoder) {
    if (decoder.take("reduce"))
        return decode_reduction_of_bulk(decoder);
    if (!decoder.take("async"))
        decoder.refuse("only cp.async is supported");
    if (decoder.take("bulk"))
        return decode_bulk(decoder);
    if (decoder.take("mbarrier"))
        return decode_arrival_of_copies(decoder);
    decoder.effect.actor = Effect::Actor::Copy;
    decoder.effect.kind = Effect::Kind::Await;
    if (decoder.take("wait_group"))
        return decode_group(decoder, 1);
    decoder.effect.copies = true;
    if (decoder.take("wait_all"))
        return decode_group(decoder, 0);
    decoder.effect.copies = false;
    decoder.effect.kind = Effect::Kind::Commit;
    if (decoder.take("commit_group"))
        return decode_group(decoder, 0);
    decode_small(decoder);
}

} // namespace

void add_copies(Opcodes &opcodes) { opcodes["cp"] = decode_copy; }

} // namespace soft::ptx
