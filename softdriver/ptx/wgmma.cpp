#include "ptx/wgmma.h"

#include "ptx/access.h"
#include "ptx/arithmetic_f8.h"
#include "ptx/lanes.h"
#include "ptx/machine.h"

#include <algorithm>
#include <array>
#include <cstring>

// This file runs wgmma.mma_async. The four warps of a warpgroup wait for each other. The last one
// computes for all of them, so that shared memory is read once, and no warp goes on before all of
// it is read.

namespace soft::ptx {

namespace {

using namespace floating;

constexpr unsigned chunk_bytes = 16; // a row of A and a column of B have two chunks
constexpr unsigned most_inner = 32;  // the most items or words in a row of A
constexpr unsigned group_rows = warps_of_group * rows_of_warp;

// Says where a matrix is in shared memory. The matrix consists of patterns of 8 rows of 1, 2, 4 or
// 8 chunks.
class Descriptor {
  public:
    // `transposed` says whether a row of the pattern has items of a column of A, or a row of B.
    Descriptor(uint64_t bits, bool transposed)
        : start_(field(bits)), leading_(field(bits >> 16)), stride_(field(bits >> 32)),
          base_(bits >> 49 & 7), width_(bits >> 62 ? 16u >> (bits >> 62) : 1) {
        // Only without swizzling, the strides of transposed matrices are exchanged.
        if (transposed && width_ == 1)
            std::swap(leading_, stride_);
    }
    // Returns the address of a chunk. `row` is the number of the row, and `chunk` the number of the
    // chunk in the row. Both are counted through all patterns.
    uint64_t address(unsigned row, unsigned chunk) const {
        uint64_t address = start_ + row / 8 * stride_ + row % 8 * width_ * chunk_bytes +
                           chunk / width_ * leading_ + chunk % width_ * chunk_bytes;
        return address ^ (((address >> 7) - base_) & (width_ - 1)) * chunk_bytes;
    }

  private:
    static uint64_t field(uint64_t bits) { return (bits & 0x3fff) << 4; }

    uint64_t start_, leading_, stride_, base_;
    uint64_t width_; // chunks in a row of the pattern
};

// Four values, which a processor can handle together.
template <class T> struct FourOf {
    typedef T Type __attribute__((vector_size(4 * sizeof(T))));
};
template <class T> using Four = typename FourOf<T>::Type;

// How items are multiplied: the type of a converted item, the type of a sum of products, and a
// function that adds the products of an item of A with items of four columns of B. Products of
// narrow numbers are exact in double precision.
struct Numbers {
    using In = float;
    using Sum = double;
    static SOFT_INLINE void add(Four<Sum> &sums, Sum a, const Four<Sum> &b) { sums += a * b; }
};
struct Integers {
    using In = int32_t;
    using Sum = int32_t;
    static SOFT_INLINE void add(Four<Sum> &sums, Sum a, const Four<Sum> &b) { sums += a * b; }
};
// Words of 32 single bits. The product is the number of bits that are in both words.
struct BitWords {
    using In = uint32_t;
    using Sum = uint32_t;
    static SOFT_INLINE void add(Four<Sum> &sums, Sum a, const Four<Sum> &b) {
        Four<Sum> both = a & b;
        both -= both >> 1 & 0x55555555u;
        both = (both & 0x33333333u) + (both >> 2 & 0x33333333u);
        both = (both + (both >> 4)) & 0x0f0f0f0fu;
        sums += both * 0x01010101u >> 24;
    }
};

template <class Raw, class In, class Convert>
SOFT_INLINE void convert_each(const char *chunk, In *items, Convert convert) {
    Raw raw[chunk_bytes / sizeof(Raw)];
    memcpy(raw, chunk, chunk_bytes);
    for (size_t i = 0; i < chunk_bytes / sizeof(Raw); i++)
        items[i] = convert(raw[i]);
}

// All numbers of an 8-bit format.
template <class F>
const std::array<float, 256> all_f8 = [] {
    std::array<float, 256> numbers;
    for (unsigned bits = 0; bits < numbers.size(); bits++)
        numbers[bits] = widen(half_of<F>(uint8_t(bits)));
    return numbers;
}();

// Converts the items of a chunk.
void convert(Item item, const char *chunk, float *items) {
    switch (item) {
    case Item::F16:
        return convert_each<uint16_t>(chunk, items, [](uint16_t x) { return widen(Half{x}); });
    case Item::BF16:
        return convert_each<uint16_t>(chunk, items, [](uint16_t x) { return widen(Bfloat{x}); });
    case Item::E4M3:
        return convert_each<uint8_t>(chunk, items, [](uint8_t x) { return all_f8<E4M3>[x]; });
    case Item::E5M2:
        return convert_each<uint8_t>(chunk, items, [](uint8_t x) { return all_f8<E5M2>[x]; });
    default: // TF32: the lowest 13 bits are ignored
        return convert_each<uint32_t>(chunk, items,
                                      [](uint32_t x) { return from_bits<float>(x & ~0x1fffu); });
    }
}
void convert(Item item, const char *chunk, int32_t *items) {
    if (item == Item::S8)
        return convert_each<int8_t>(chunk, items, [](int8_t x) { return int32_t(x); });
    convert_each<uint8_t>(chunk, items, [](uint8_t x) { return int32_t(x); });
}
void convert(Item, const char *chunk, uint32_t *words) { memcpy(words, chunk, chunk_bytes); }

// The number of items in a chunk; of words if the items are bits.
unsigned items_of_chunk(Item item) { return item == Item::B1 ? 4 : 128 / bits_of(item); }

// A matrix A or B whose items have been converted. `outer` is the row of A, or the column of B, and
// `inner` the position in it.
template <class In> struct Converted {
    In *items;
    unsigned outer_stride, inner_stride;

    void put(const In *values, unsigned count, unsigned outer, unsigned inner, bool transposed) {
        In *place = items + outer * outer_stride + inner * inner_stride;
        unsigned stride = transposed ? outer_stride : inner_stride;
        for (unsigned i = 0; i < count; i++)
            place[i * stride] = values[i];
    }
};

// Reads a matrix of `outer` rows (of A) or columns (of B) from shared memory. Returns false if this
// is an illegal access, which ends the launch.
template <class In>
bool read_shared(Warp &warp, const Step &step, Item item, Descriptor descriptor, unsigned outer,
                 bool transposed, Converted<In> into) {
    unsigned count = items_of_chunk(item), lane = warp.lane_of_fault();
    unsigned rows = transposed ? 2 * count : outer, chunks = transposed ? outer / count : 2;
    for (unsigned row = 0; row < rows; row++)
        for (unsigned chunk = 0; chunk < chunks; chunk++) {
            const char *found = reach_shared(warp, step, lane, descriptor.address(row, chunk),
                                             chunk_bytes, Use::Read, false);
            if (!found)
                return false;
            In values[chunk_bytes];
            convert(item, found, values);
            unsigned along = chunk * count;
            into.put(values, count, transposed ? along : row, transposed ? row : along, transposed);
        }
    return true;
}

// Reads the rows of A that a warp has in its registers. In each of its four registers a lane has
// neighbouring items.
template <class In>
void read_registers(const Warp &warp, const Fragment &a, unsigned first_row, Converted<In> into) {
    unsigned in_register = items_of_chunk(a.item) / 4;
    for (unsigned lane = 0; lane < warp_size; lane++) {
        uint32_t words[4];
        for (unsigned i = 0; i < 4; i++)
            words[i] = warp.row<uint32_t>(a.registers[i])[lane];
        In values[chunk_bytes];
        convert(a.item, reinterpret_cast<const char *>(words), values);
        for (unsigned i = 0; i < 4; i++)
            into.put(values + i * in_register, in_register, first_row + lane / 4 + 8 * (i % 2),
                     (i / 2 * 4 + lane % 4) * in_register, false);
    }
}

// Multiplies the 16 rows of A that belong to a warp by B. A row of A has `inner` items.
template <class Kind>
SOFT_INLINE void multiply_rows(const typename Kind::In *a, const typename Kind::In *b,
                               unsigned inner, unsigned columns, typename Kind::Sum *sums) {
    using In = typename Kind::In;
    using Sum = typename Kind::Sum;
    // The sums of a block of this size stay in the processor's registers.
    constexpr unsigned high = 4, fours = 2;
    for (unsigned row = 0; row < rows_of_warp; row += high)
        for (unsigned column = 0; column < columns; column += 4 * fours) {
            Four<Sum> block[high][fours] = {};
            for (unsigned k = 0; k < inner; k++) {
                Four<In> items[fours];
                memcpy(items, b + k * columns + column, sizeof items);
                for (unsigned j = 0; j < fours; j++) {
                    Four<Sum> right = __builtin_convertvector(items[j], Four<Sum>);
                    for (unsigned i = 0; i < high; i++)
                        Kind::add(block[i][j], Sum(a[(row + i) * inner + k]), right);
                }
            }
            for (unsigned i = 0; i < high; i++)
                memcpy(sums + (row + i) * columns + column, block[i], sizeof block[i]);
        }
}
template <class Kind>
void multiply_rows_plain(const typename Kind::In *a, const typename Kind::In *b, unsigned inner,
                         unsigned columns, typename Kind::Sum *sums) {
    multiply_rows<Kind>(a, b, inner, columns, sums);
}
template <class Kind>
SOFT_AVX2 void multiply_rows_avx2(const typename Kind::In *a, const typename Kind::In *b,
                                  unsigned inner, unsigned columns, typename Kind::Sum *sums) {
    multiply_rows<Kind>(a, b, inner, columns, sums);
}
template <class Kind>
const auto multiplier = has_avx2() ? multiply_rows_avx2<Kind> : multiply_rows_plain<Kind>;

// How the sums of products become items of D.
struct Ending {
    bool adds, negates, saturates;

    float of(float old, double sum) const { return settle(float(whole(double(old), sum))); }
    Half of(Half old, double sum) const { return narrow<Half>(whole(double(widen(old)), sum)); }
    int32_t of(int32_t old, int32_t sum) const {
        int64_t value = (adds ? int64_t(old) : 0) + sum;
        if (saturates)
            value = std::clamp(value, int64_t(INT32_MIN), int64_t(INT32_MAX));
        return int32_t(value);
    }

  private:
    double whole(double old, double sum) const {
        sum = negates ? -sum : sum;
        return adds ? old + sum : sum;
    }
};

// Writes the rows of D that a warp has. `sums` are the sums of products of these rows. T is the
// type of the items in the registers.
template <class T, class Sum>
void write_result(const Warp &warp, const Fragment &d, const Ending &ending, const Sum *sums) {
    constexpr unsigned in_register = sizeof(uint32_t) / sizeof(T);
    for (unsigned i = 0; i < d.registers.size(); i++) {
        T *items = warp.row<T>(d.registers[i]);
        unsigned pair = i * in_register / 2; // number of the pair of neighbours in a row of D
        const Sum *corner = sums + pair % 2 * 8 * d.columns + pair / 2 * 8 + i * in_register % 2;
        for (unsigned lane = 0; lane < warp_size; lane++)
            for (unsigned j = 0; j < in_register; j++) {
                T &item = items[lane * in_register + j];
                item = ending.of(item, corner[lane / 4 * d.columns + lane % 4 * 2 + j]);
            }
    }
}
template <class Sum>
void write_rows(const Warp &warp, const Fragment &d, const Ending &ending, const Sum *sums) {
    if constexpr (std::is_integral_v<Sum>)
        write_result<int32_t>(warp, d, ending, sums);
    else if (d.item == Item::F16)
        write_result<Half>(warp, d, ending, sums);
    else
        write_result<float>(warp, d, ending, sums);
}

// The warps of a warpgroup, whose lanes must all have the same descriptors and predicate.
struct Warpgroup {
    Warp &last; // the warp that arrived last, and runs the step for all
    const Step &step;

    Warp &member(unsigned i) const {
        return *last.block.warps[last.number / warps_of_group * warps_of_group + i];
    }
    bool agree(Row row, const char *what) const;
    bool agree_on_predicate() const;
};

bool disagree(Warp &warp, const Step &step, const std::string &what) {
    warp.machine.fail(warp, step, warp.lane_of_fault(), CUDA_ERROR_ILLEGAL_INSTRUCTION,
                      what + " must be the same in all threads of the warpgroup");
    return false;
}

bool Warpgroup::agree(Row row, const char *what) const {
    uint64_t wanted = last.row<uint64_t>(row)[0];
    for (unsigned i = 0; i < warps_of_group; i++)
        for (unsigned lane = 0; lane < warp_size; lane++)
            if (member(i).row<uint64_t>(row)[lane] != wanted)
                return disagree(last, step, what);
    return true;
}

bool Warpgroup::agree_on_predicate() const {
    uint32_t wanted = last.predicate(step.rows[adds_to_d]);
    for (unsigned i = 0; i < warps_of_group; i++)
        if (member(i).predicate(step.rows[adds_to_d]) != wanted || (wanted && ~wanted))
            return disagree(last, step, "the predicate scale-d");
    return true;
}

template <class Kind> void multiply_group(const Warpgroup &group) {
    using In = typename Kind::In;
    static thread_local In left[group_rows * most_inner], right[most_inner * most_columns];
    static thread_local typename Kind::Sum sums[rows_of_warp * most_columns];
    const Step &step = group.step;
    Warp &warp = group.last;
    const auto *operands = &warp.frame->code->fragments[step.place];
    const Fragment &d = *operands[0], &a = *operands[1], &b = *operands[2];
    const unsigned inner = 2 * items_of_chunk(a.item);
    Converted<In> rows{left, inner, 1}, columns{right, 1, d.columns};

    bool transposes_a = step.detail & transposes_a_bit,
         transposes_b = step.detail & transposes_b_bit;
    auto descriptor = [&](unsigned row, bool transposes) {
        return Descriptor(warp.row<uint64_t>(step.rows[row])[0], transposes);
    };
    if (!read_shared(warp, step, b.item, descriptor(descriptor_of_b, transposes_b), d.columns,
                     transposes_b, columns))
        return;
    if (!a.registers.empty())
        for (unsigned i = 0; i < warps_of_group; i++)
            read_registers(group.member(i), a, i * rows_of_warp, rows);
    else if (!read_shared(warp, step, a.item, descriptor(descriptor_of_a, transposes_a), group_rows,
                          transposes_a, rows))
        return;
    const Ending ending{warp.predicate(step.rows[adds_to_d]) != 0, (step.detail & negates_bit) != 0,
                        (step.detail & saturates_bit) != 0};
    for (unsigned i = 0; i < warps_of_group; i++) {
        multiplier<Kind>(left + i * rows_of_warp * inner, right, inner, d.columns, sums);
        write_rows(group.member(i), d, ending, sums);
    }
}

// Returns whether the other warps of the warpgroup wait at this step. If not, this warp waits, too,
// or the launch has ended with an error.
bool whole_warpgroup(Warp &warp, const Step &step) {
    auto &warps = warp.block.warps;
    unsigned first = warp.number / warps_of_group * warps_of_group;
    unsigned barrier = barriers_of_block + first / warps_of_group;
    auto fail = [&](const std::string &what) {
        warp.machine.fail(warp, step, warp.lane_of_fault(), CUDA_ERROR_ILLEGAL_INSTRUCTION, what);
        return false;
    };
    if (first + warps_of_group > warps.size())
        return fail("a warpgroup has four warps, and the block has " +
                    std::to_string(warps.size() - first) + " from warp " + std::to_string(first));
    bool all = true;
    for (unsigned i = first; i < first + warps_of_group; i++) {
        const Step *other = i == warp.number ? &step : warps[i]->waits_at(barrier);
        if (other && other != &step)
            return fail("warp " + std::to_string(i) + " of the warpgroup is at another wgmma");
        all = all && other;
    }
    if (!all)
        warp.wait_barrier(barrier);
    return all;
}

} // namespace

void multiply_together(Warp &warp, const Step &step) {
    if (!whole_warp(warp, step) || !whole_warpgroup(warp, step))
        return;
    Warpgroup group{warp, step};
    const Code &code = *warp.frame->code;
    const Item item = code.fragments[step.place + 1]->item;
    bool a_in_memory = code.fragments[step.place + 1]->registers.empty();
    if (!group.agree_on_predicate() ||
        !group.agree(step.rows[descriptor_of_b], "the descriptor of B") ||
        (a_in_memory && !group.agree(step.rows[descriptor_of_a], "the descriptor of A")))
        return;
    if (item == Item::B1)
        multiply_group<BitWords>(group);
    else if (is_integer(item))
        multiply_group<Integers>(group);
    else
        multiply_group<Numbers>(group);
    warp.machine.progress++;
    for (unsigned i = 0; i < warps_of_group; i++)
        if (&group.member(i) != &warp)
            group.member(i).release(barriers_of_block + warp.number / warps_of_group);
}

} // namespace soft::ptx
