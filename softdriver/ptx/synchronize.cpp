// This file decodes and runs the instructions bar, barrier, membar and fence.

#include "ptx/decode_arithmetic.h"
#include "ptx/families.h"
#include "ptx/observer.h"

#include <atomic>

namespace soft::ptx {

namespace {

// What a barrier does. The value is in Step::detail.
enum class Action : uint16_t { Wait, Arrive, Count, And, Or };

// The handler of `bar` and `barrier`. rows[1] has the barrier's number, rows[2] the number of
// threads (0 means all), and rows[3] the predicate of bar.red. barrier_result() stores the result
// of bar.red.
void barrier(Warp &warp, const Step &step) {
    unsigned lane = warp.lane_of_fault();
    unsigned number = warp.row<uint32_t>(step.rows[1])[lane];
    unsigned expected = warp.row<uint32_t>(step.rows[2])[lane];
    if (number >= barriers_of_block)
        return warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                 "barrier number out of range 0 to 15: " + std::to_string(number));
    Action kind = Action(step.detail);
    uint32_t holds = kind >= Action::Count ? warp.predicate(step.rows[3]) : 0;
    uint32_t lanes = warp.active;
    if (kind != Action::Arrive)
        warp.wait_barrier(number);
    if (Observer *observer = warp.machine.observer.get())
        observer->arrives(warp, {step, number, expected, lanes, kind != Action::Arrive});
    warp.block.arrive(number, expected, warp, lanes, holds);
}

void fence(Warp &, const Step &) { std::atomic_thread_fence(std::memory_order_seq_cst); }

// The handler of bar.warp. Waits until all live lanes of the mask in rows[9] have arrived.
void warp_barrier(Warp &warp, const Step &step) {
    const auto *members = warp.row<uint32_t>(step.rows[9]);
    warp.meet_named(step, members, [&] {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (Observer *observer = warp.machine.observer.get())
            observer->meets(warp, members[warp.lane_of_fault()]);
    });
}

void decode_warp_barrier(Decoder &decoder) {
    decoder.take("sync");
    decoder.expect_operands(1);
    decoder.step.rows[9] = decoder.source(decoder.operand(0), Type::B32);
    decoder.step.offset = 1;
    decoder.effect.kind = Effect::Kind::Meet;
    decoder.emit(warp_barrier);
}

// Returns the result of bar.red. `count` is the number of lanes with a true predicate, and `all`
// the number of all lanes that have arrived.
template <Action kind, class T> T result_of(uint32_t count, uint32_t all) {
    return kind == Action::Count ? T(count) : kind == Action::And ? T(count == all) : T(count != 0);
}
template <Action kind> void barrier_result(Warp &warp, const Step &step) {
    unsigned number = warp.row<uint32_t>(step.rows[1])[warp.lane_of_fault()];
    const Barrier &barrier = warp.block.barriers[number % barriers_of_block];
    uint32_t result = result_of<kind, uint32_t>(barrier.last_trues, barrier.last_count);
    if (kind != Action::Count)
        return warp.set_predicate(step.rows[0], result ? ~uint32_t{0} : 0);
    for (uint32_t left = warp.active; left; left &= left - 1)
        warp.row<uint32_t>(step.rows[0])[__builtin_ctz(left)] = result;
}

// Sets the effect of a barrier, whose number is this operand.
void set_effect(Decoder &decoder, const Operand &number, bool aligned, bool counted) {
    decoder.effect.kind = Effect::Kind::Barrier;
    decoder.effect.aligned = aligned;
    decoder.effect.whole_block =
        !counted && number.kind == Operand::Kind::Integer && number.bits == 0;
}

void decode_reduction(Decoder &decoder, bool aligned) {
    int which = decoder.take_any({"popc", "and", "or"});
    if (which < 0)
        decoder.refuse("the operation is unknown");
    Action kind = Action(int(Action::Count) + which);
    if (!decoder.take(kind == Action::Count ? "u32" : "pred"))
        decoder.refuse_types();
    decoder.expect_operands(3, 4);
    bool counted = decoder.operands() == 4;
    set_effect(decoder, decoder.operand(1), aligned, counted);
    Row result = decoder.destination(decoder.operand(0), which ? Type::Pred : Type::U32);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), Type::U32);
    decoder.step.rows[2] =
        counted ? decoder.source(decoder.operand(2), Type::U32) : decoder.constant(4, 0);
    decoder.step.rows[3] = decoder.predicate(decoder.operand(counted ? 3 : 2));
    decoder.step.detail = uint16_t(kind);
    decoder.emit(barrier);
    decoder.step.rows[0] = result;
    decoder.emit(kind == Action::Count ? barrier_result<Action::Count>
                 : kind == Action::And ? barrier_result<Action::And>
                                       : barrier_result<Action::Or>);
}

void decode_barrier(Decoder &decoder, bool aligned) {
    if (decoder.take("warp"))
        return decode_warp_barrier(decoder);
    if (decoder.take("cluster"))
        return decode_cluster_barrier(decoder);
    decoder.take("cta");
    aligned |= decoder.take("aligned");
    int kind = decoder.take_any({"sync", "arrive", "red"});
    if (kind < 0)
        decoder.refuse(".sync, .arrive or .red is missing");
    if (kind == 2)
        return decode_reduction(decoder, aligned);
    decoder.expect_operands(kind == 1 ? 2 : 1, 2);
    set_effect(decoder, decoder.operand(0), aligned, decoder.operands() == 2);
    decoder.step.rows[1] = decoder.source(decoder.operand(0), Type::U32);
    decoder.step.rows[2] = decoder.operands() == 2 ? decoder.source(decoder.operand(1), Type::U32)
                                                   : decoder.constant(4, 0);
    decoder.step.detail = uint16_t(kind == 1 ? Action::Arrive : Action::Wait);
    decoder.emit(barrier);
}

// Decodes the rest of fence.proxy.tensormap::generic. An acquiring fence has an address and a size.
void decode_map_fence(Decoder &decoder) {
    bool acquires = decoder.take("acquire");
    if (!acquires && !decoder.take("release"))
        decoder.refuse(".acquire or .release is missing");
    if (!decoder.take("cta"))
        decoder.code().communicates = true;
    decoder.take_any({"cluster", "gpu", "sys"});
    decoder.expect_operands(acquires ? 2 : 0);
    if (acquires) {
        decoder.address(decoder.operand(0));
        decoder.integer(decoder.operand(1));
    }
    decoder.emit(fence);
}

// Decodes the rest of fence.proxy. Copies are complete when their instruction ends, so there is
// nothing to wait for.
void decode_proxy_fence(Decoder &decoder) {
    if (decoder.take("tensormap::generic"))
        return decode_map_fence(decoder);
    int proxy = decoder.take_any({"async", "alias"});
    if (proxy < 0)
        decoder.refuse("only .async, .alias and .tensormap::generic are supported");
    int space = decoder.take_any({"global", "shared::cta", "shared::cluster"});
    decoder.expect_operands(0);
    if (proxy == 0) {
        decoder.effect.kind = Effect::Kind::Proxy;
        decoder.effect.space = space < 0 ? Space::Generic : space ? Space::Shared : Space::Global;
    }
    decoder.emit(fence);
}

void decode_fence(Decoder &decoder) {
    if (decoder.take("proxy"))
        return decode_proxy_fence(decoder);
    decoder.take("mbarrier_init");
    Effect &effect = decoder.effect;
    effect.kind = Effect::Kind::Fence;
    effect.scope = take_scope(decoder);
    if (effect.scope != Effect::Scope::Block)
        decoder.code().communicates = true;
    int order = decoder.take_any({"acquire", "release", "sc", "acq_rel"});
    effect.acquires = order != 1;
    effect.releases = order != 0;
    decoder.expect_operands(0);
    decoder.emit(fence);
}

} // namespace

void add_barriers(Opcodes &opcodes) {
    opcodes["bar"] = [](Decoder &decoder) { decode_barrier(decoder, true); };
    opcodes["barrier"] = [](Decoder &decoder) { decode_barrier(decoder, false); };
    opcodes["membar"] = decode_fence;
    opcodes["fence"] = decode_fence;
}

} // namespace soft::ptx
