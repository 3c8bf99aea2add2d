#include "ptx/families.h"
#include "ptx/matrix.h"

// This file decodes mma.

namespace soft::ptx {

namespace {

// Returns whether mma has this shape for factors of this type. In most shapes a row of A has 128 or
// 256 bits.
bool is_shape(unsigned m, unsigned k, Item item) {
    unsigned bits = k * bits_of(item);
    if (item == Item::F64)
        return m == 16 ? bits == 256 || bits == 512 || bits == 1024 : bits == 256;
    return m == 16 ? bits == 128 || bits == 256 : is_integer(item) && bits == 128;
}

struct MmaShape {
    const char *name;
    unsigned m, k;
};
constexpr MmaShape mma_shapes[] = {
    {"m8n8k4", 8, 4},     {"m8n8k16", 8, 16},     {"m8n8k32", 8, 32},     {"m8n8k128", 8, 128},
    {"m16n8k4", 16, 4},   {"m16n8k8", 16, 8},     {"m16n8k16", 16, 16},   {"m16n8k32", 16, 32},
    {"m16n8k64", 16, 64}, {"m16n8k128", 16, 128}, {"m16n8k256", 16, 256},
};

// Decodes mma.m8n8k4 of f16, which multiplies four pairs of matrices.
void decode_quads(Decoder &decoder, bool a_by_columns, bool b_by_columns, const Item (&items)[4]) {
    auto is_sum = [](Item item) { return item == Item::F16 || item == Item::F32; };
    if (items[2] != Item::F16 || !is_sum(items[0]) || !is_sum(items[3]) ||
        (items[3] == Item::F32 && items[0] == Item::F16))
        decoder.refuse("these types are not supported with this shape");
    decoder.expect_operands(4);
    using Layout = Fragment::Layout;
    Fragment fragments[4] = {{Layout::QuadC, items[0], 8, 8, false, {}},
                             {Layout::QuadA, Item::F16, 8, 4, a_by_columns, {}},
                             {Layout::QuadB, Item::F16, 4, 8, b_by_columns, {}},
                             {Layout::QuadC, items[3], 8, 8, false, {}}};
    for (size_t i = 0; i < 4; i++)
        take_registers(decoder, decoder.operand(i), fragments[i],
                       i == 1 || i == 2        ? 2
                       : items[i] == Item::F16 ? 4
                                               : 8,
                       i == 0);
    emit_product(decoder, fragments);
}

void decode_mma(Decoder &decoder) {
    constexpr unsigned n = 8;
    take_sync_aligned(decoder);
    MmaShape shape = take_shape(decoder, mma_shapes);
    bool a_by_columns = take_by_columns(decoder), b_by_columns = take_by_columns(decoder);
    Item items[4]; // the formats of d, a, b and c
    for (Item &item : items)
        item = take_item(decoder);
    if (shape.m == 8 && shape.k == 4 && items[1] == Item::F16)
        return decode_quads(decoder, a_by_columns, b_by_columns, items);
    if (a_by_columns || !b_by_columns)
        decoder.refuse("with this shape and these types, only .row.col is possible");
    if (!types_fit(items[0], items[1], items[2], items[3]) || !is_shape(shape.m, shape.k, items[1]))
        decoder.refuse("these types are not supported with this shape");
    decoder.expect_operands(4);
    using Layout = Fragment::Layout;
    Fragment fragments[4] = {{Layout::C, items[0], shape.m, n, false, {}},
                             {Layout::A, items[1], shape.m, shape.k, false, {}},
                             {Layout::B, items[2], shape.k, n, false, {}},
                             {Layout::C, items[3], shape.m, n, false, {}}};
    for (size_t i = 0; i < 4; i++) {
        Fragment &each = fragments[i];
        size_t bits = each.rows * each.columns * bits_of(each.item);
        take_registers(decoder, decoder.operand(i), each,
                       bits / (warp_size * register_bits(each.item)), i == 0);
    }
    emit_product(decoder, fragments);
}

} // namespace

void add_matrix_products(Opcodes &opcodes) { opcodes["mma"] = decode_mma; }

} // namespace soft::ptx
