#include "ptx/families.h"
#include "ptx/matrix.h"

// This file decodes mma.

namespace soft::ptx {

namespace {

bool are_alike(Item a, Item b) {
    auto both = [&](Item first, Item second) {
        return (a == first || a == second) && (b == first || b == second);
    };
    return a == b || both(Item::S8, Item::U8) || both(Item::S4, Item::U4) ||
           both(Item::E4M3, Item::E5M2);
}

// Returns whether there are matrices of this shape and type. Most have 128 or 256 bits in a row of
// A.
bool is_shape(unsigned m, unsigned k, Item item) {
    unsigned bits = k * bits_of(item);
    if (item == Item::F64)
        return m == 16 ? bits == 256 || bits == 512 || bits == 1024 : bits == 256;
    return m == 16 ? bits == 128 || bits == 256 : is_integer(item) && bits == 128;
}

// Returns whether the results can have this type.
bool can_be(Item result, Item item) {
    if (is_integer(item))
        return result == Item::S32;
    if (item == Item::F64)
        return result == Item::F64;
    bool narrow = item == Item::F16 || item == Item::E4M3 || item == Item::E5M2;
    return result == Item::F32 || (result == Item::F16 && narrow);
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

MmaShape take_shape(Decoder &decoder) {
    for (const MmaShape &shape : mma_shapes)
        if (decoder.take(shape.name))
            return shape;
    decoder.refuse("this shape is not supported by the software driver");
}

// For items of a single bit, reads how they are multiplied. Returns true for .xor.
bool take_exclusive(Decoder &decoder, Item item) {
    if (item != Item::B1)
        return false;
    int operation = decoder.take_any({"and", "xor"});
    if (operation < 0 || !decoder.take("popc"))
        decoder.refuse(".and.popc or .xor.popc is missing");
    return operation == 1;
}

void decode_mma(Decoder &decoder) {
    constexpr unsigned n = 8;
    take_sync_aligned(decoder);
    MmaShape shape = take_shape(decoder);
    if (!decoder.take("row") || !decoder.take("col"))
        decoder.refuse("only .row.col is supported by the software driver");
    Item items[4]; // of d, a, b and c
    for (Item &item : items)
        item = take_item(decoder);
    if (!are_alike(items[1], items[2]) || !is_shape(shape.m, shape.k, items[1]) ||
        !can_be(items[0], items[1]) || !can_be(items[3], items[1]))
        decoder.refuse("these types are not supported with this shape");
    bool saturates = is_integer(items[1]) && items[1] != Item::B1 && decoder.take("satfinite");
    bool exclusive = take_exclusive(decoder, items[1]);
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
    emit_product(decoder, fragments, saturates, exclusive);
}

} // namespace

void add_matrix_products(Opcodes &opcodes) { opcodes["mma"] = decode_mma; }

} // namespace soft::ptx
