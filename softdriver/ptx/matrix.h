#pragma once

#include "ptx/arithmetic_format.h"
#include "ptx/decoder.h"
#include "ptx/warp.h"

// This header has the types and functions that all instructions on matrices share. A warp holds a
// matrix in fragments: each lane has some of its items in its registers.

namespace soft::ptx {

// The formats of items, in the order of their names in take_item().
enum class Item : uint8_t { F16, BF16, TF32, F32, F64, E4M3, E5M2, S8, U8, S4, U4, B1, S32 };

constexpr unsigned bits_of(Item item) {
    switch (item) {
    case Item::F64:
        return 64;
    case Item::TF32:
    case Item::F32:
    case Item::S32:
        return 32;
    case Item::F16:
    case Item::BF16:
        return 16;
    case Item::S4:
    case Item::U4:
        return 4;
    case Item::B1:
        return 1;
    default:
        return 8;
    }
}
constexpr bool is_integer(Item item) { return item >= Item::S8; }
// Returns the width in bits of the registers that hold such items.
constexpr unsigned register_bits(Item item) { return item == Item::F64 ? 64 : 32; }

// The part of a matrix that each lane has in these registers. In the layouts with Quad, the warp
// has four matrices.
struct Fragment {
    // In the layouts with Quad, lanes n to n + 3 and n + 16 to n + 19 share one matrix, for n = 0,
    // 4, 8 and 12.
    enum class Layout : uint8_t { A, B, C, Consecutive, QuadA, QuadB, QuadC };
    Layout layout = Layout::C;
    Item item = Item::F32;
    unsigned rows = 0, columns = 0; // size of a matrix
    bool by_columns =
        false; // for Consecutive, QuadA and QuadB: the order of the items in the lanes
    std::vector<Row> registers;

    // The number of matrices of the warp, and the index of the matrix that has the items of a lane.
    unsigned matrices() const { return layout >= Layout::QuadA ? 4 : 1; }
    unsigned matrix_of(unsigned lane) const { return lane / 4 % matrices(); }

    unsigned items_of_lane() const {
        return unsigned(registers.size()) * register_bits(item) / bits_of(item);
    }
    // Returns the place in the matrix of an item of a lane, as row * columns + column.
    unsigned place(unsigned lane, unsigned index) const;
    uint64_t read(const Warp &warp, unsigned lane, unsigned index) const;
    void write(const Warp &warp, unsigned lane, unsigned index, uint64_t bits) const;

  private:
    unsigned place_in_quad(unsigned lane, unsigned index) const;
};

// ldmatrix, stmatrix and movmatrix move matrices of 8 rows of eight 16-bit items. Four lanes share
// a row, and each has two neighbouring items in a register. Step::detail of the first two has the
// number of matrices and two flags, and Step::rows begins with the registers.
constexpr unsigned small_side = 8;
constexpr unsigned matrices_mask = 0x7, transposes_bit = 0x8, is_generic_bit = 0x10;
struct SmallPlace {
    unsigned row, column;
};
// Returns where an item of a lane is: the first or the second one in its register.
constexpr SmallPlace small_place(unsigned lane, unsigned which, bool transposes) {
    unsigned group = lane / 4, member = 2 * (lane % 4) + which;
    return transposes ? SmallPlace{member, group} : SmallPlace{group, member};
}

// Takes the next modifier that is the name of a format. Returns false if there is none.
bool take_item(Decoder &decoder, Item &item);
// Like the above, but refuses the instruction if there is none.
Item take_item(Decoder &decoder);
void take_sync_aligned(Decoder &decoder);
// Takes the next .row or .col, and returns whether it is .col.
bool take_by_columns(Decoder &decoder);
// Reads the registers of an operand: a vector, or a single register. The operand must have `count`
// registers.
void take_registers(Decoder &decoder, const Operand &operand, Fragment &fragment, size_t count,
                    bool is_result);
// Takes the first of these shapes whose name is a modifier of the instruction.
template <class Shape, size_t count>
Shape take_shape(Decoder &decoder, const Shape (&shapes)[count]) {
    for (const Shape &shape : shapes)
        if (decoder.take(shape.name))
            return shape;
    decoder.refuse("this shape is not supported by the software driver");
}
// Returns whether D = A * B + C is supported for items of these types, in at least one shape.
bool types_fit(Item d, Item a, Item b, Item c);
// Decodes a multiplication and its last modifiers. The fragments are those of the matrices d, a, b
// and c in D = A * B + C.
void emit_product(Decoder &decoder, const Fragment (&fragments)[4],
                  floating::Rounding rounding = floating::Rounding::Nearest);

// Returns whether all lanes of the warp are at this step. If they are not, the step must do
// nothing: the warp tries it again later, or the launch has ended with an error.
bool whole_warp(Warp &warp, const Step &step);

} // namespace soft::ptx
