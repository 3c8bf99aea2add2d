#include "ptx/shuffle.h"

#include "ptx/arithmetic_float.h"
#include "ptx/decode_arithmetic.h"
#include "ptx/machine.h"

// This file decodes and runs shfl, vote, match, redux and elect, by which the lanes of a warp
// exchange values.

namespace soft::ptx {

namespace {

// With .sync, `offset` of a step is 1, and all lanes of the mask in rows[9] must have arrived. If
// they have not, the warp tries the step again later.

// The handler of a step that exchanges values among the lanes of a mask.
template <Handler exchange> void together(Warp &warp, const Step &step) {
    if (!step.offset)
        return exchange(warp, step);
    warp.meet_named(step, warp.row<uint32_t>(step.rows[9]), [&] { exchange(warp, step); });
}
// Returns the lanes that take part in the exchange.
uint32_t participants(const Warp &warp, const Step &step) {
    uint32_t members = step.offset ? warp.row<uint32_t>(step.rows[9])[warp.lane_of_fault()] : ~0u;
    return warp.active & members;
}

void take_sync(Decoder &decoder, size_t mask_operand) {
    decoder.effect.kind = Effect::Kind::Meet;
    decoder.step.offset = 1;
    decoder.step.rows[9] = decoder.source(decoder.operand(mask_operand), Type::B32);
}

// The value is in Step::detail of a shuffle, plus 1. In other steps of this file, it is 0.
enum class Shuffle { Up, Down, Bfly, Idx };

// Returns the source lane of a lane. Sets `inside` to whether the source lane is in the segment of
// the lane. If it is not, the lane keeps its own value.
template <Shuffle mode> int source_lane(int lane, uint32_t b, uint32_t c, bool &inside) {
    int offset = int(b & 31), clamp = int(c & 31), segment = int(c >> 8 & 31);
    int highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
    int from = mode == Shuffle::Up     ? lane - offset
               : mode == Shuffle::Down ? lane + offset
               : mode == Shuffle::Bfly ? lane ^ offset
                                       : lowest | (offset & ~segment);
    inside = mode == Shuffle::Up ? from >= highest : from <= highest;
    return inside ? from : lane;
}

// Set values[lane] to a[from[lane]] in all lanes. Processors permute vectors in registers faster
// than they load from 32 places.
void permute(const uint32_t *a, const int *from, uint32_t *values) {
    for (int lane = 0; lane < warp_size; lane++)
        values[lane] = a[from[lane]];
}
#ifdef SOFT_INTRINSICS
SOFT_AVX2 inline __m256 permute_quarter(const uint32_t *quarter, __m256i from) {
    __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(quarter));
    return _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(values, from));
}
// Permutes each quarter of `a`. Then bits 3 and 4 of `from` select the quarter: blends use signs.
SOFT_AVX2 void permute_avx2(const uint32_t *a, const int *from, uint32_t *values) {
    for (int lane = 0; lane < warp_size; lane += 8) {
        __m256i index = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + lane));
        __m256 bit_3 = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
        __m256 bit_4 = _mm256_castsi256_ps(_mm256_slli_epi32(index, 27));
        __m256 low =
            _mm256_blendv_ps(permute_quarter(a, index), permute_quarter(a + 8, index), bit_3);
        __m256 high =
            _mm256_blendv_ps(permute_quarter(a + 16, index), permute_quarter(a + 24, index), bit_3);
        _mm256_storeu_ps(reinterpret_cast<float *>(values + lane),
                         _mm256_blendv_ps(low, high, bit_4));
    }
}
SOFT_AVX512 void permute_avx512(const uint32_t *a, const int *from, uint32_t *values) {
    __m512i low = _mm512_loadu_si512(a), high = _mm512_loadu_si512(a + 16);
    for (int lane = 0; lane < warp_size; lane += 16)
        _mm512_storeu_si512(values + lane,
                            _mm512_permutex2var_epi32(low, _mm512_loadu_si512(from + lane), high));
}
#else
constexpr auto permute_avx2 = permute, permute_avx512 = permute;
#endif

// The handler of shfl. Sets rows[0] to the value of rows[1] in the source lane, and rows[4] to
// whether the source lane is inside the segment.
template <Shuffle mode> struct Shuffling {
    static void run(Warp &warp, const Step &step) { shuffle<permute>(warp, step); }
    SOFT_AVX2 static void run_avx2(Warp &warp, const Step &step) {
        shuffle<permute_avx2>(warp, step);
    }
    SOFT_AVX512 static void run_avx512(Warp &warp, const Step &step) {
        shuffle<permute_avx512>(warp, step);
    }

  private:
    template <auto permuted> SOFT_INLINE static void shuffle(Warp &warp, const Step &step) {
        if (step.offset && !warp.meet_all_named(step, warp.row<uint32_t>(step.rows[9])))
            return;
        int from[warp_size];
        uint32_t values[warp_size];
        uint32_t found =
            sources(warp.row<uint32_t>(step.rows[2]), warp.row<uint32_t>(step.rows[3]), from);
        permuted(warp.row<uint32_t>(step.rows[1]), from, values);
        store_active(warp, warp.row<uint32_t>(step.rows[0]), values);
        warp.set_predicate(step.rows[4], found);
    }
    // Sets `from` to the source lane of each lane, and returns the lanes whose source lane is
    // inside the segment.
    SOFT_INLINE static uint32_t sources(const uint32_t *b, const uint32_t *c, int *from) {
        uint32_t found = 0;
        SOFT_EVERY_LANE
        for (int lane = 0; lane < warp_size; lane++) {
            bool inside;
            from[lane] = source_lane<mode>(lane, b[lane], c[lane], inside) & 31;
            found |= inside ? lane_bits[lane] : 0;
        }
        return found;
    }
};
template <Shuffle mode> Handler shuffling() {
    return has_avx512() ? Shuffling<mode>::run_avx512
           : has_avx2() ? Shuffling<mode>::run_avx2
                        : Shuffling<mode>::run;
}

void decode_shuffle(Decoder &decoder) {
    bool sync = decoder.take("sync");
    int mode = decoder.take_any({"up", "down", "bfly", "idx"});
    if (mode < 0 || !decoder.take("b32"))
        decoder.refuse_types();
    decoder.expect_operands(sync ? 5 : 4);
    const Operand &results = decoder.operand(0);
    bool pair = results.kind == Operand::Kind::Pair;
    decoder.step.rows[0] = decoder.destination(pair ? results.parts.at(0) : results, Type::B32);
    decoder.step.rows[4] =
        pair ? decoder.destination(results.parts.at(1), Type::Pred) : decoder.temporary(0);
    for (size_t i = 1; i <= 3; i++)
        decoder.step.rows[i] = decoder.source(decoder.operand(i), Type::B32);
    decoder.effect.kind = Effect::Kind::Meet;
    if (sync)
        take_sync(decoder, 4);
    decoder.step.detail = uint16_t(mode + 1);
    static const Handler handlers[] = {shuffling<Shuffle::Up>(), shuffling<Shuffle::Down>(),
                                       shuffling<Shuffle::Bfly>(), shuffling<Shuffle::Idx>()};
    decoder.emit(handlers[mode]);
}

enum class Vote { All, Any, Uni, Ballot };

template <Vote mode> void vote(Warp &warp, const Step &step) {
    uint32_t all = participants(warp, step), holds = warp.predicate(step.rows[1]) & all;
    if constexpr (mode == Vote::Ballot) {
        uint32_t *result = warp.row<uint32_t>(step.rows[0]);
        for (uint32_t left = warp.active; left; left &= left - 1)
            result[__builtin_ctz(left)] = holds;
    } else {
        bool result = mode == Vote::All   ? holds == all
                      : mode == Vote::Any ? holds != 0
                                          : holds == all || holds == 0;
        warp.set_predicate(step.rows[0], result ? ~uint32_t{0} : 0);
    }
}

void decode_vote(Decoder &decoder) {
    bool sync = decoder.take("sync");
    int mode = decoder.take_any({"all", "any", "uni", "ballot"});
    bool ballot = mode == int(Vote::Ballot);
    if (mode < 0 || !decoder.take(ballot ? "b32" : "pred"))
        decoder.refuse_types();
    decoder.expect_operands(sync ? 3 : 2);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), ballot ? Type::B32 : Type::Pred);
    decoder.step.rows[1] = decoder.predicate(decoder.operand(1));
    if (sync)
        take_sync(decoder, 2);
    static const Handler handlers[] = {together<vote<Vote::All>>, together<vote<Vote::Any>>,
                                       together<vote<Vote::Uni>>, together<vote<Vote::Ballot>>};
    decoder.emit(handlers[mode]);
}

// The handler of match. With .any, sets rows[0] to the lanes that have the same value. With .all,
// sets rows[0] to all lanes if their values are equal, and otherwise to 0.
template <class T, bool all> void match(Warp &warp, const Step &step) {
    const T *values = warp.row<T>(step.rows[1]);
    uint32_t *result = warp.row<uint32_t>(step.rows[0]);
    uint32_t lanes_here = participants(warp, step), results[warp_size];
    bool same = true;
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        results[lane] = 0;
        for (uint32_t others = lanes_here; others; others &= others - 1)
            if (values[__builtin_ctz(others)] == values[lane])
                results[lane] |= others & -others;
        same = same && results[lane] == lanes_here;
    }
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        result[lane] = all && !same ? 0 : results[lane];
    }
    if (all)
        warp.set_predicate(step.rows[4], same ? ~uint32_t{0} : 0);
}

void decode_match(Decoder &decoder) {
    int mode = decoder.take_any({"any", "all"});
    if (mode < 0 || !decoder.take("sync"))
        decoder.refuse("only match.any.sync and match.all.sync are supported");
    Type type = decoder.take_type();
    decoder.expect_operands(3);
    const Operand &results = decoder.operand(0);
    bool pair = mode == 1 && results.kind == Operand::Kind::Pair;
    decoder.step.rows[0] = decoder.destination(pair ? results.parts.at(0) : results, Type::B32);
    decoder.step.rows[4] =
        pair ? decoder.destination(results.parts.at(1), Type::Pred) : decoder.temporary(0);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    take_sync(decoder, 2);
    Handler of_32 = mode ? together<match<uint32_t, true>> : together<match<uint32_t, false>>;
    Handler of_64 = mode ? together<match<uint64_t, true>> : together<match<uint64_t, false>>;
    decoder.emit(type == Type::B32 ? of_32 : type == Type::B64 ? of_64 : nullptr);
}

template <class T> T sum(T a, T b) { return T(uint32_t(a) + uint32_t(b)); }
template <class T> T least(T a, T b) { return a < b ? a : b; }
template <class T> T greatest(T a, T b) { return a < b ? b : a; }
uint32_t conjunction(uint32_t a, uint32_t b) { return a & b; }
uint32_t disjunction(uint32_t a, uint32_t b) { return a | b; }
uint32_t difference(uint32_t a, uint32_t b) { return a ^ b; }

template <class T, T (*operation)(T, T)> void reduce(Warp &warp, const Step &step) {
    const T *values = warp.row<T>(step.rows[1]);
    uint32_t left = participants(warp, step);
    if (!left)
        return;
    T result = values[__builtin_ctz(left)];
    for (left &= left - 1; left; left &= left - 1)
        result = operation(result, values[__builtin_ctz(left)]);
    for (left = warp.active; left; left &= left - 1)
        warp.row<T>(step.rows[0])[__builtin_ctz(left)] = result;
}

// The handler of redux for floats. It begins with NaN, which min and max replace by any number.
template <bool greatest, bool absolute, bool nan> void reduce_float(Warp &warp, const Step &step) {
    const float *values = warp.row<float>(step.rows[1]);
    uint32_t members = participants(warp, step);
    float result = floating::nan_of<float>();
    for (uint32_t left = members; left; left &= left - 1) {
        float value = values[__builtin_ctz(left)];
        value = absolute ? floating::abs(value) : value;
        if (nan && left != members)
            result = greatest ? floating::max_nan(result, value) : floating::min_nan(result, value);
        else if (nan)
            result = floating::settle(value, value);
        else
            result = greatest ? floating::max(result, value) : floating::min(result, value);
    }
    for (uint32_t left = warp.active; left; left &= left - 1)
        warp.row<float>(step.rows[0])[__builtin_ctz(left)] = result;
}
template <bool greatest> Handler float_reduction(bool absolute, bool nan) {
    return absolute ? (nan ? together<reduce_float<greatest, true, true>>
                           : together<reduce_float<greatest, true, false>>)
           : nan    ? together<reduce_float<greatest, false, true>>
                    : together<reduce_float<greatest, false, false>>;
}

template <class T> Handler reduction(int which) {
    return which == 0   ? together<reduce<T, sum<T>>>
           : which == 1 ? together<reduce<T, least<T>>>
                        : together<reduce<T, greatest<T>>>;
}

void decode_redux(Decoder &decoder) {
    if (!decoder.take("sync"))
        decoder.refuse(".sync is missing");
    int which = decoder.take_any({"add", "min", "max", "and", "or", "xor"});
    bool is_float = decoder.any_left("f32");
    bool absolute = is_float && decoder.take("abs"), nan = is_float && decoder.take("NaN");
    Type type = decoder.take_type();
    decoder.expect_operands(3);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), type);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), type);
    take_sync(decoder, 2);
    static const Handler of_bits[] = {together<reduce<uint32_t, conjunction>>,
                                      together<reduce<uint32_t, disjunction>>,
                                      together<reduce<uint32_t, difference>>};
    bool logical = which >= 3;
    if (is_float)
        return decoder.emit(which == 1   ? float_reduction<false>(absolute, nan)
                            : which == 2 ? float_reduction<true>(absolute, nan)
                                         : nullptr);
    decoder.emit(which < 0 || logical != (type == Type::B32) ? nullptr
                 : logical                                   ? of_bits[which - 3]
                 : type == Type::S32                         ? reduction<int32_t>(which)
                 : type == Type::U32                         ? reduction<uint32_t>(which)
                                                             : nullptr);
}

// Elects the lowest lane that takes part. Sets rows[0] to the number of this lane, and rows[4] to
// true in this lane only.
void elect(Warp &warp, const Step &step) {
    uint32_t all = participants(warp, step);
    if (!all)
        all = warp.active;
    for (uint32_t left = warp.active; left; left &= left - 1)
        warp.row<uint32_t>(step.rows[0])[__builtin_ctz(left)] = uint32_t(__builtin_ctz(all));
    warp.set_predicate(step.rows[4], all & -all);
}

void decode_elect(Decoder &decoder) {
    if (!decoder.take("sync"))
        decoder.refuse(".sync is missing");
    decoder.expect_operands(2);
    const Operand &results = decoder.operand(0);
    if (results.kind != Operand::Kind::Pair)
        decoder.refuse("d|p is needed");
    decoder.step.rows[0] = decoder.destination(results.parts.at(0), Type::B32);
    decoder.step.rows[4] = decoder.destination(results.parts.at(1), Type::Pred);
    take_sync(decoder, 1);
    decoder.emit(together<elect>);
}

} // namespace

int lane_read_by(const Warp &warp, const Step &step, unsigned lane) {
    if (!step.detail)
        return -1;
    uint32_t b = warp.row<uint32_t>(step.rows[2])[lane], c = warp.row<uint32_t>(step.rows[3])[lane];
    auto mode = Shuffle(step.detail - 1);
    bool inside = false;
    int from = mode == Shuffle::Up     ? source_lane<Shuffle::Up>(int(lane), b, c, inside)
               : mode == Shuffle::Down ? source_lane<Shuffle::Down>(int(lane), b, c, inside)
               : mode == Shuffle::Bfly ? source_lane<Shuffle::Bfly>(int(lane), b, c, inside)
                                       : source_lane<Shuffle::Idx>(int(lane), b, c, inside);
    return inside ? from : -1;
}

void add_shuffles(Opcodes &opcodes) {
    opcodes["shfl"] = decode_shuffle;
    opcodes["vote"] = decode_vote;
    opcodes["match"] = decode_match;
    opcodes["redux"] = decode_redux;
    opcodes["elect"] = decode_elect;
}

} // namespace soft::ptx
