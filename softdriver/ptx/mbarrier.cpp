#include "ptx/mbarrier.h"

#include "ptx/access.h"
#include "ptx/families.h"
#include "ptx/observer.h"

#include <cstdlib>

// This file implements mbarriers, and decodes and runs their instructions.

namespace soft::ptx {

namespace {

// The places of the fields in the word.
constexpr unsigned expected_shift = 20, bytes_shift = 40, phase_shift = 61, mark_shift = 62;
constexpr uint64_t mark = 2, field = Mbarrier::most_arrivals, bytes_field = 2 * field + 1;

} // namespace

Mbarrier::Mbarrier(uint64_t word) {
    odd_phase = (word >> phase_shift & 1) != 0;
    pending = word & field;
    expected = word >> expected_shift & field;
    bytes = int64_t(word >> bytes_shift & bytes_field) - int64_t(field);
}

Mbarrier Mbarrier::expecting(uint64_t arrivals) {
    Mbarrier made;
    made.pending = made.expected = arrivals;
    return made;
}

uint64_t Mbarrier::word() const {
    return mark << mark_shift | uint64_t(odd_phase) << phase_shift |
           uint64_t(bytes + int64_t(field)) << bytes_shift | expected << expected_shift | pending;
}

bool Mbarrier::is(uint64_t word) { return word >> mark_shift == mark; }

void Mbarrier::end_phase_if_complete() {
    if (pending || bytes)
        return;
    odd_phase = !odd_phase;
    pending = expected;
}

std::string Mbarrier::arrive(uint64_t count) {
    if (count == 0 || count > pending)
        return std::to_string(count) +
               " arrivals, and this phase of the mbarrier still waits for " +
               std::to_string(pending);
    pending -= count;
    end_phase_if_complete();
    return {};
}

std::string Mbarrier::drop(uint64_t count) {
    if (count <= expected)
        expected -= count;
    return arrive(count);
}

std::string Mbarrier::expect_bytes(int64_t number) {
    if (std::llabs(bytes + number) > int64_t(field))
        return "the mbarrier would wait for " + std::to_string(bytes + number) +
               " bytes, and it counts at most " + std::to_string(field);
    bytes += number;
    end_phase_if_complete();
    return {};
}

namespace {

// The change that an instruction makes. The value is in Step::detail, with a flag for generic
// addresses.
constexpr unsigned generic_bit = 0x100;
enum class Change : uint16_t {
    Init,
    Invalidate,
    Check, // only checks that there is an mbarrier
    Arrive,
    Drop,
    ArriveBefore, // .noComplete: must not end the phase
    DropBefore,
    Expect,
    Complete,
    ArriveExpect,
    DropExpect,
};

// Changes an mbarrier. `number` is the number of arrivals or bytes. Returns the text of an error,
// which is empty if there is none.
std::string change(Mbarrier &barrier, Change action, uint64_t number) {
    switch (action) {
    case Change::ArriveBefore:
    case Change::DropBefore:
        if (number == barrier.pending && barrier.bytes == 0)
            return std::to_string(number) + " arrivals with .noComplete would end the phase";
        return action == Change::DropBefore ? barrier.drop(number) : barrier.arrive(number);
    case Change::Arrive:
        return barrier.arrive(number);
    case Change::Drop:
        return barrier.drop(number);
    case Change::Complete:
        return barrier.expect_bytes(-int64_t(number));
    case Change::Expect:
        return barrier.expect_bytes(int64_t(number));
    case Change::ArriveExpect:
    case Change::DropExpect: {
        std::string wrong = barrier.expect_bytes(int64_t(number));
        return !wrong.empty()                 ? wrong
               : action == Change::DropExpect ? barrier.drop(1)
                                              : barrier.arrive(1);
    }
    default:
        return {};
    }
}

char *reach_word(Warp &warp, const Step &step, unsigned lane, uint64_t address) {
    return reach_shared(warp, step, lane, address, sizeof(uint64_t), Use::Atomic,
                        (step.detail & generic_bit) != 0);
}

// Tells the checks inside kernels how a lane uses the mbarrier at this place in shared memory.
void tell(const Warp &warp, const Step &step, unsigned lane, const void *place,
          MbarrierUse::Kind kind, const std::string &wrong = {}) {
    if (Observer *observer = warp.machine.observer.get())
        observer->uses_mbarrier(
            warp,
            {step, lane, uint64_t(static_cast<const char *>(place) - warp.block.shared.data()),
             kind, wrong});
}

bool change_or_fail(Warp &warp, const Step &step, unsigned lane, uint64_t &word, Change action,
                    uint64_t number) {
    Mbarrier barrier(word);
    if (std::string wrong = change(barrier, action, number); !wrong.empty()) {
        tell(warp, step, lane, &word, MbarrierUse::Kind::Fails, wrong);
        warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION, wrong);
        return false;
    }
    word = barrier.word();
    warp.machine.progress++;
    return true;
}

void initialize(Warp &warp, const Step &step) {
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        char *place = reach_word(warp, step, lane, warp.row<uint64_t>(step.rows[9])[lane]);
        uint64_t count = warp.row<uint32_t>(step.rows[1])[lane];
        if (!place)
            return;
        if (count == 0 || count > Mbarrier::most_arrivals)
            return warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                     std::to_string(count) +
                                         " arrivals; they must be 1 to 2^20 - 1");
        *reinterpret_cast<uint64_t *>(place) = Mbarrier::expecting(count).word();
        tell(warp, step, lane, place, MbarrierUse::Kind::Initializes);
        warp.machine.progress++;
    }
}

void invalidate(Warp &warp, const Step &step) {
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t *word = find_mbarrier(warp, step, lane, warp.row<uint64_t>(step.rows[9])[lane]);
        if (!word)
            return;
        *word = 0;
        tell(warp, step, lane, word, MbarrierUse::Kind::Invalidates);
    }
}

// The handler of arrivals, .expect_tx and .complete_tx. rows[1] has the numbers, and rows[0]
// receives the previous word of the mbarrier.
void update(Warp &warp, const Step &step) {
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t *word = find_mbarrier(warp, step, lane, warp.row<uint64_t>(step.rows[9])[lane]);
        if (!word)
            return;
        uint64_t before = *word, number = warp.row<uint32_t>(step.rows[1])[lane];
        if (!change_or_fail(warp, step, lane, *word, Change(step.detail & ~generic_bit), number))
            return;
        warp.row<uint64_t>(step.rows[0])[lane] = before;
    }
}

// The handler of test_wait and try_wait. rows[2] has states, or parities of phases. A warp whose
// lanes must go on waiting lets other warps run.
template <bool of_parity> void test(Warp &warp, const Step &step) {
    uint32_t complete = 0;
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t *word = find_mbarrier(warp, step, lane, warp.row<uint64_t>(step.rows[9])[lane]);
        if (!word)
            return;
        bool odd = of_parity ? (warp.row<uint32_t>(step.rows[2])[lane] & 1) != 0
                             : Mbarrier(warp.row<uint64_t>(step.rows[2])[lane]).odd_phase;
        complete |= Mbarrier(*word).odd_phase != odd ? left & -left : 0;
    }
    warp.set_predicate(step.rows[0], complete);
    if (complete && warp.machine.launch.prerequisite)
        warp.block.pass_on_wait(warp);
    if (warp.active & ~complete)
        warp.yield();
}

void count_pending(Warp &warp, const Step &step) {
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        warp.row<uint32_t>(step.rows[0])[lane] =
            uint32_t(Mbarrier(warp.row<uint64_t>(step.rows[2])[lane]).pending);
    }
}

void take_ordering(Decoder &decoder, Effect::Kind kind) {
    if (decoder.take_any({"relaxed", "acquire", "release"}) != 0)
        decoder.effect.kind = kind;
    decoder.take_any({"cta", "cluster"});
}

// Reads the address, and the modifiers that all instructions have.
void take_address(Decoder &decoder, size_t operand) {
    if (decoder.take_any({"shared", "shared::cta", "shared::cluster"}) < 0)
        decoder.step.detail |= generic_bit;
    if (!decoder.take("b64"))
        decoder.refuse_types();
    decoder.step.rows[9] = decoder.whole_address(decoder.operand(operand));
}

void decode_init(Decoder &decoder) {
    decoder.expect_operands(2);
    take_address(decoder, 0);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), Type::U32);
    decoder.emit(initialize);
}

void decode_inval(Decoder &decoder) {
    decoder.expect_operands(1);
    take_address(decoder, 0);
    decoder.emit(invalidate);
}

void decode_arrive(Decoder &decoder, bool drops) {
    bool bytes = decoder.take("expect_tx"), before = decoder.take("noComplete");
    take_ordering(decoder, Effect::Kind::Arrive);
    bool counted = bytes || before;
    decoder.expect_operands(counted ? 3 : 2, 3);
    take_address(decoder, 1);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::B64);
    decoder.step.rows[1] = decoder.operands() == 3 ? decoder.source(decoder.operand(2), Type::U32)
                                                   : decoder.constant(4, 1);
    if (bytes && before)
        decoder.refuse(".expect_tx with .noComplete");
    Change action = bytes    ? (drops ? Change::DropExpect : Change::ArriveExpect)
                    : before ? (drops ? Change::DropBefore : Change::ArriveBefore)
                             : (drops ? Change::Drop : Change::Arrive);
    decoder.step.detail |= uint16_t(action);
    decoder.emit(update);
}

void decode_bytes(Decoder &decoder, Change action) {
    take_ordering(decoder, Effect::Kind::None);
    decoder.expect_operands(2);
    take_address(decoder, 0);
    decoder.step.rows[0] = decoder.temporary(8);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), Type::U32);
    decoder.step.detail |= uint16_t(action);
    decoder.emit(update);
}

void decode_wait(Decoder &decoder, bool may_block) {
    bool parity = decoder.take("parity");
    take_ordering(decoder, Effect::Kind::Test);
    decoder.expect_operands(3, may_block ? 4 : 3);
    take_address(decoder, 1);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::Pred);
    decoder.step.rows[2] = decoder.source(decoder.operand(2), parity ? Type::U32 : Type::B64);
    if (decoder.operands() == 4) // the limit of the suspension, which has no effect
        decoder.source(decoder.operand(3), Type::U32);
    decoder.emit(parity ? test<true> : test<false>);
}

void decode_pending_count(Decoder &decoder) {
    if (!decoder.take("b64"))
        decoder.refuse_types();
    decoder.expect_operands(2);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::U32);
    decoder.step.rows[2] = decoder.source(decoder.operand(1), Type::B64);
    decoder.emit(count_pending);
}

void decode_mbarrier(Decoder &decoder) {
    switch (decoder.take_any({"init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx",
                              "test_wait", "try_wait", "pending_count"})) {
    case 0:
        return decode_init(decoder);
    case 1:
        return decode_inval(decoder);
    case 2:
        return decode_arrive(decoder, false);
    case 3:
        return decode_arrive(decoder, true);
    case 4:
        return decode_bytes(decoder, Change::Expect);
    case 5:
        return decode_bytes(decoder, Change::Complete);
    case 6:
        return decode_wait(decoder, false);
    case 7:
        return decode_wait(decoder, true);
    case 8:
        return decode_pending_count(decoder);
    default:
        decoder.refuse("the operation is unknown");
    }
}

} // namespace

uint64_t *find_mbarrier(Warp &warp, const Step &step, unsigned lane, uint64_t address) {
    char *place = reach_word(warp, step, lane, address);
    if (!place)
        return nullptr;
    tell(warp, step, lane, place, MbarrierUse::Kind::Uses);
    auto *word = reinterpret_cast<uint64_t *>(place);
    if (Mbarrier::is(*word))
        return word;
    warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                      "there is no mbarrier at this address: mbarrier.init must come first");
    return nullptr;
}

bool complete_bytes(Warp &warp, const Step &step, unsigned lane, uint64_t address, uint64_t bytes) {
    uint64_t *word = find_mbarrier(warp, step, lane, address);
    if (!word)
        return false;
    tell(warp, step, lane, word, MbarrierUse::Kind::Copies);
    return change_or_fail(warp, step, lane, *word, Change::Complete, bytes);
}

// The arrival is due when all earlier copies are complete, which they always are. Without .noinc
// the instruction first adds one to the arrivals that the mbarrier expects, so nothing changes.
void decode_arrival_of_copies(Decoder &decoder) {
    if (!decoder.take("arrive"))
        decoder.refuse(".arrive is missing");
    decoder.step.detail |= uint16_t(decoder.take("noinc") ? Change::Arrive : Change::Check);
    decoder.expect_operands(1);
    take_address(decoder, 0);
    decoder.step.rows[0] = decoder.temporary(8);
    decoder.step.rows[1] = decoder.constant(4, 1);
    decoder.effect.kind = Effect::Kind::Arrive;
    decoder.effect.copies = true;
    decoder.emit(update);
}

void add_mbarriers(Opcodes &opcodes) { opcodes["mbarrier"] = decode_mbarrier; }

} // namespace soft::ptx
