#include "ptx/matrix.h"

#include "ptx/arithmetic_exact.h"
#include "ptx/arithmetic_f8.h"
#include "ptx/machine.h"

#include <array>

// This file implements fragments of matrices and their multiplication.

namespace soft::ptx {

namespace {

using namespace floating;

constexpr size_t most_items = 16 * 256; // limit of the items of a matrix

template <class T> T value_of(Item item, uint64_t bits);
template <> double value_of<double>(Item item, uint64_t bits) {
    switch (item) {
    case Item::F16:
        return double(widen(Half{uint16_t(bits)}));
    case Item::BF16:
        return double(widen(Bfloat{uint16_t(bits)}));
    case Item::TF32: // the lowest 13 bits are ignored
        return double(from_bits<float>(uint32_t(bits) & ~0x1fffu));
    case Item::F32:
        return double(from_bits<float>(uint32_t(bits)));
    case Item::E4M3:
        return double(widen(half_of<E4M3>(uint8_t(bits))));
    case Item::E5M2:
        return double(widen(half_of<E5M2>(uint8_t(bits))));
    default:
        return from_bits<double>(bits);
    }
}
template <> int64_t value_of<int64_t>(Item item, uint64_t bits) {
    switch (item) {
    case Item::S8:
        return int8_t(bits);
    case Item::S4:
        return int64_t(bits << 60) >> 60;
    case Item::S32:
        return int32_t(bits);
    default:
        return int64_t(bits);
    }
}

uint64_t bits_of_result(Item item, double value, bool) {
    switch (item) {
    case Item::F16:
        return to_bits(narrow<Half>(value));
    case Item::F32:
        return to_bits(narrow<float>(value));
    default:
        return to_bits(settle(value));
    }
}
uint64_t bits_of_result(Item, int64_t value, bool saturates) {
    if (saturates)
        value = value < INT32_MIN ? INT32_MIN : value > INT32_MAX ? INT32_MAX : value;
    return uint32_t(value);
}

// Adds a product. Products of narrow numbers are exact in double precision. Sums of doubles are
// rounded once for each product.
double add_product(double sum, double a, double b, Rounding rounding) {
    return rounding == Rounding::Nearest ? __builtin_fma(a, b, sum)
                                         : exact_fma(a, b, sum, rounding);
}
int64_t add_product(int64_t sum, int64_t a, int64_t b, Rounding) { return sum + a * b; }

template <class T>
void read_all(const Warp &warp, const Fragment &fragment, unsigned matrix,
              std::array<T, most_items> &items) {
    for (unsigned lane = 0; lane < warp_size; lane++)
        for (unsigned i = 0; i < fragment.items_of_lane(); i++)
            if (fragment.matrix_of(lane) == matrix)
                items[fragment.place(lane, i)] =
                    value_of<T>(fragment.item, fragment.read(warp, lane, i));
}

// The parts of Step::detail of a multiplication: two flags, and the position of the field that has
// the rounding.
constexpr unsigned saturating_bit = 1, exclusive_bit = 2, rounding_shift = 4;

// Computes D = A * B + C for one of the matrices. Only lanes that have items of this matrix are
// read or written. D may overwrite the other operands, because these are read completely before D
// is written.
template <class T>
void multiply_matrix(Warp &warp, const std::shared_ptr<const Fragment> *operands, unsigned matrix,
                     unsigned detail) {
    const Fragment &d = *operands[0], &a = *operands[1], &b = *operands[2], &c = *operands[3];
    static thread_local std::array<T, most_items> left, right, sums;
    read_all(warp, a, matrix, left);
    read_all(warp, b, matrix, right);
    read_all(warp, c, matrix, sums);
    bool exclusive = (detail & exclusive_bit) != 0, saturates = (detail & saturating_bit) != 0;
    auto rounding = Rounding(detail >> rounding_shift);
    for (unsigned row = 0; row < d.rows; row++)
        for (unsigned column = 0; column < d.columns; column++) {
            T sum = sums[row * d.columns + column];
            const T *x = &left[row * a.columns], *y = &right[column];
            for (unsigned k = 0; k < a.columns; k++, x++, y += b.columns)
                sum = exclusive ? sum + T(*x != *y) : add_product(sum, *x, *y, rounding);
            sums[row * d.columns + column] = sum;
        }
    for (unsigned lane = 0; lane < warp_size; lane++)
        for (unsigned i = 0; i < d.items_of_lane(); i++)
            if (d.matrix_of(lane) == matrix)
                d.write(warp, lane, i, bits_of_result(d.item, sums[d.place(lane, i)], saturates));
}

// The handler of multiplications. T is the type for the items.
template <class T> void multiply(Warp &warp, const Step &step) {
    if (!whole_warp(warp, step))
        return;
    auto *operands = &warp.frame->code->fragments[step.place];
    const Fragment &d = *operands[0];
    for (unsigned matrix = 0; matrix < d.matrices(); matrix++)
        multiply_matrix<T>(warp, operands, matrix, step.detail);
}

bool are_factors(Item a, Item b) {
    auto both = [&](Item first, Item second) {
        return (a == first || a == second) && (b == first || b == second);
    };
    return a == b || both(Item::S8, Item::U8) || both(Item::S4, Item::U4) ||
           both(Item::E4M3, Item::E5M2);
}

// Returns whether products of such factors can be added to items of this type.
bool is_sum(Item item, Item factor) {
    if (is_integer(factor))
        return item == Item::S32;
    if (factor == Item::F64)
        return item == Item::F64;
    bool narrow = factor == Item::F16 || factor == Item::E4M3 || factor == Item::E5M2;
    return item == Item::F32 || (item == Item::F16 && narrow);
}

// For items of a single bit, reads the modifiers of the multiplication. Returns true for .xor.
bool take_exclusive(Decoder &decoder, Item item) {
    if (item != Item::B1)
        return false;
    int operation = decoder.take_any({"and", "xor"});
    if (operation < 0 || !decoder.take("popc"))
        decoder.refuse(".and.popc or .xor.popc is missing");
    return operation == 1;
}

} // namespace

// In the layouts of m8n8k4 each lane has 4 items of A and of B: a row of A, or half a column if A
// is stored by columns; a column of B, or half a row if B is stored by rows. The first half of the
// lanes of a matrix has the upper rows of A and D and the left columns of B.
unsigned Fragment::place_in_quad(unsigned lane, unsigned index) const {
    unsigned member = lane % 4, half = lane < 16 ? 0 : 4;
    if (layout == Layout::QuadC && item == Item::F32) {
        unsigned row = member % 2 + index / 2 % 2 * 2 + half;
        return row * columns + index / 4 * 4 + member / 2 * 2 + index % 2;
    }
    if (layout == Layout::QuadC)
        return (member + half) * columns + index;
    // `outer` is the row of A or the column of B, from 0 to 7. `inner` is the position in it, from
    // 0 to 3.
    bool a = layout == Layout::QuadA, swapped = a == by_columns;
    unsigned outer = (swapped ? index : member) + half, inner = swapped ? member : index;
    return a ? outer * columns + inner : inner * columns + outer;
}

// In the layouts A, B and C four lanes share a row (in B: a column), and each register of a lane
// has neighbouring items. The registers of 8 rows alternate with those of the next 8 rows.
unsigned Fragment::place(unsigned lane, unsigned index) const {
    if (layout >= Layout::QuadA)
        return place_in_quad(lane, index);
    unsigned in_register = register_bits(item) / bits_of(item);
    if (layout == Layout::Consecutive) {
        unsigned unique = rows * columns / warp_size; // items may be repeated
        unsigned number = lane * unique + index % unique;
        return by_columns ? number % rows * columns + number / rows : number;
    }
    unsigned group = lane / 4, member = lane % 4;
    if (layout == Layout::C) {
        unsigned pair = index / 2, halves = rows / 8;
        unsigned column = pair / halves * 8 + 2 * member + index % 2;
        return (group + 8 * (pair % halves)) * columns + column;
    }
    unsigned reg = index / in_register, halves = layout == Layout::A ? rows / 8 : 1;
    unsigned k = (reg / halves * 4 + member) * in_register + index % in_register;
    return layout == Layout::A ? (group + 8 * (reg % halves)) * columns + k : k * columns + group;
}

uint64_t Fragment::read(const Warp &warp, unsigned lane, unsigned index) const {
    if (item == Item::F64)
        return warp.row<uint64_t>(registers[index])[lane];
    unsigned bits = bits_of(item), in_register = 32 / bits;
    uint32_t whole = warp.row<uint32_t>(registers[index / in_register])[lane];
    return whole >> (index % in_register * bits) & (~uint32_t{0} >> (32 - bits));
}

void Fragment::write(const Warp &warp, unsigned lane, unsigned index, uint64_t value) const {
    if (item == Item::F64) {
        warp.row<uint64_t>(registers[index])[lane] = value;
        return;
    }
    unsigned bits = bits_of(item), in_register = 32 / bits, shift = index % in_register * bits;
    uint32_t &whole = warp.row<uint32_t>(registers[index / in_register])[lane];
    uint32_t mask = ~uint32_t{0} >> (32 - bits) << shift;
    whole = (whole & ~mask) | (uint32_t(value) << shift & mask);
}

bool take_item(Decoder &decoder, Item &item) {
    int found = decoder.take_first(
        {"f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "b1", "s32"});
    item = Item(found);
    return found >= 0;
}

Item take_item(Decoder &decoder) {
    Item item;
    if (!take_item(decoder, item))
        decoder.refuse("a type is missing");
    return item;
}

void take_sync_aligned(Decoder &decoder) {
    if (!decoder.take("sync") || !decoder.take("aligned"))
        decoder.refuse(".sync.aligned is missing");
}

bool take_by_columns(Decoder &decoder) {
    int layout = decoder.take_first({"row", "col"});
    if (layout < 0)
        decoder.refuse(".row or .col is missing");
    return layout == 1;
}

void take_registers(Decoder &decoder, const Operand &operand, Fragment &fragment, size_t count,
                    bool is_result) {
    bool vector = operand.kind == Operand::Kind::Vector;
    size_t given = vector ? operand.parts.size() : 1;
    if (given != count)
        decoder.refuse(std::to_string(given) + " registers where " + std::to_string(count) +
                       " are needed");
    Type type = register_bits(fragment.item) == 64 ? Type::B64 : Type::B32;
    for (size_t i = 0; i < count; i++) {
        const Operand &part = vector ? operand.parts[i] : operand;
        fragment.registers.push_back(is_result ? decoder.destination(part, type)
                                               : decoder.source(part, type));
    }
}

bool types_fit(Item d, Item a, Item b, Item c) {
    return are_factors(a, b) && is_sum(d, a) && is_sum(c, a);
}

void emit_product(Decoder &decoder, const Fragment (&fragments)[4], Rounding rounding) {
    Item item = fragments[1].item;
    bool exclusive = take_exclusive(decoder, item);
    bool saturates = is_integer(item) && item != Item::B1 && decoder.take("satfinite");
    auto &all = decoder.code().fragments;
    decoder.step.place = uint32_t(all.size());
    for (const Fragment &fragment : fragments)
        all.push_back(std::make_shared<Fragment>(fragment));
    decoder.step.detail =
        uint16_t((saturates ? saturating_bit : 0) | (exclusive ? exclusive_bit : 0) |
                 unsigned(rounding) << rounding_shift);
    decoder.emit(is_integer(item) ? multiply<int64_t> : multiply<double>);
}

bool whole_warp(Warp &warp, const Step &step) {
    if (!warp.meet(step, ~uint32_t{0}))
        return false;
    if (warp.active == ~uint32_t{0})
        return true;
    warp.machine.fail(warp, step, warp.lane_of_fault(), CUDA_ERROR_ILLEGAL_INSTRUCTION,
                      "all 32 lanes of a warp must execute this instruction together");
    return false;
}

} // namespace soft::ptx
