#include "ptx/access.h"
#include "ptx/families.h"
#include "ptx/matrix.h"

#include <cstring>

// This file decodes wmma, and runs its loads and stores. PTX does not define which lane has which
// items. In this driver each lane has consecutive items.

namespace soft::ptx {

namespace {

enum class Which { A, B, C };

struct WmmaShape {
    const char *name;
    unsigned m, n, k;
};
constexpr WmmaShape wmma_shapes[] = {
    {"m16n16k16", 16, 16, 16}, {"m8n32k16", 8, 32, 16}, {"m32n8k16", 32, 8, 16},
    {"m16n16k8", 16, 16, 8},   {"m8n8k4", 8, 8, 4},     {"m8n8k32", 8, 8, 32},
    {"m8n8k128", 8, 8, 128},
};

// Returns whether matrices A and B of this type can have the shape.
bool fits(const WmmaShape &shape, Item item) {
    switch (item) {
    case Item::F16:
    case Item::BF16:
    case Item::S8:
    case Item::U8:
        return shape.k == 16;
    case Item::TF32:
        return shape.k == 8;
    case Item::F64:
        return shape.k == 4;
    case Item::S4:
    case Item::U4:
        return shape.k == 32;
    case Item::B1:
        return shape.k == 128;
    default:
        return false;
    }
}

// Returns whether matrices C and D of this type can have the shape.
bool sum_fits(const WmmaShape &shape, Item item) {
    switch (item) {
    case Item::F16:
        return shape.k == 16;
    case Item::F32:
        return shape.k == 16 || shape.k == 8;
    case Item::S32:
        return shape.k == 16 || shape.k >= 32;
    case Item::F64:
        return shape.k == 4;
    default:
        return false;
    }
}

Fragment fragment_of(Decoder &decoder, Which which, const WmmaShape &shape, Item item,
                     const Operand &operand, bool is_result) {
    Fragment made;
    made.layout = Fragment::Layout::Consecutive;
    made.item = item;
    made.rows = which == Which::B ? shape.k : shape.m;
    made.columns = which == Which::A ? shape.k : shape.n;
    made.by_columns = which == Which::B;
    size_t bits = made.rows * made.columns * bits_of(item);
    bool repeats = which != Which::C && item == Item::F16; // these have 8 registers in all shapes
    take_registers(decoder, operand, made, repeats ? 8 : bits / (warp_size * register_bits(item)),
                   is_result);
    return made;
}

// The parts of Step::detail of a load or store: the state space, and a flag for columns that are
// contiguous in memory.
constexpr unsigned space_mask = 0xf, column_bit = 0x10;

// Where an item is in memory. An item of less than 8 bits shares its byte with others.
struct ItemBytes {
    uint64_t address;
    size_t bytes;
    unsigned shift; // position of the item in its byte
};

// The place of a matrix in memory, as a lane gives it: the address, and the distance between rows
// (or columns) in items.
struct InMemory {
    uint64_t base, stride;
    bool by_columns;

    ItemBytes of(const Fragment &fragment, unsigned place) const {
        uint64_t row = place / fragment.columns, column = place % fragment.columns;
        uint64_t number = by_columns ? column * stride + row : row * stride + column;
        unsigned bits = bits_of(fragment.item);
        return {base + number * bits / 8, bits < 8 ? 1 : bits / 8, unsigned(number * bits % 8)};
    }
};

// The handler of loads and stores. rows[9] has the addresses, and rows[1] the distances. A load may
// overwrite these registers, so they are read before any item is loaded.
template <bool is_load> void transfer_matrix(Warp &warp, const Step &step) {
    if (!whole_warp(warp, step))
        return;
    const Fragment &fragment = *warp.frame->code->fragments[step.place];
    Access access{warp, step, Space(step.detail & space_mask), is_load ? Use::Read : Use::Write};
    warp.machine.progress += !is_load;
    for (unsigned lane = 0; lane < warp_size; lane++) {
        const InMemory matrix{warp.row<uint64_t>(step.rows[9])[lane],
                              warp.row<uint32_t>(step.rows[1])[lane],
                              (step.detail & column_bit) != 0};
        for (unsigned i = 0; i < fragment.items_of_lane(); i++) {
            ItemBytes item = matrix.of(fragment, fragment.place(lane, i));
            char *found = access.reach_or_fail(lane, item.address, item.bytes);
            if (!found)
                return;
            uint64_t bits = is_load ? 0 : fragment.read(warp, lane, i);
            if (is_load) {
                memcpy(&bits, found, item.bytes);
                fragment.write(warp, lane, i, bits >> item.shift);
            } else
                memcpy(found, &bits, item.bytes);
        }
    }
}

Space take_state_space(Decoder &decoder) {
    int space = decoder.take_any({"global", "shared", "shared::cta"});
    return space < 0 ? Space::Generic : space == 0 ? Space::Global : Space::Shared;
}

template <bool is_load> void decode_transfer(Decoder &decoder, Which which) {
    take_sync_aligned(decoder);
    bool by_columns = take_by_columns(decoder);
    WmmaShape shape = take_shape(decoder, wmma_shapes);
    Space space = take_state_space(decoder);
    Item item = take_item(decoder);
    if (which == Which::C ? !sum_fits(shape, item) : !fits(shape, item))
        decoder.refuse_types();
    decoder.expect_operands(2, 3);
    decoder.step.rows[9] = decoder.whole_address(decoder.operand(is_load ? 1 : 0));
    if (decoder.operands() == 3)
        decoder.step.rows[1] = decoder.source(decoder.operand(2), Type::U32);
    Fragment fragment =
        fragment_of(decoder, which, shape, item, decoder.operand(is_load ? 0 : 1), is_load);
    if (bits_of(item) < 8 && by_columns != fragment.by_columns)
        decoder.refuse("such items must be contiguous along the dimension k");
    if (decoder.operands() < 3)
        decoder.step.rows[1] = decoder.constant(4, by_columns ? fragment.rows : fragment.columns);
    decoder.step.detail = uint16_t(unsigned(space) | (by_columns ? column_bit : 0));
    decoder.step.place = uint32_t(decoder.code().fragments.size());
    decoder.code().fragments.push_back(std::make_shared<Fragment>(fragment));
    decoder.effect.kind = Effect::Kind::Other;
    decoder.effect.actor = Effect::Actor::Warp;
    decoder.emit(transfer_matrix<is_load>);
}

void decode_product(Decoder &decoder) {
    take_sync_aligned(decoder);
    take_by_columns(decoder);
    take_by_columns(decoder);
    WmmaShape shape = take_shape(decoder, wmma_shapes);
    decoder.expect_operands(4);
    Item d = take_item(decoder), a = take_item(decoder), b, c = a;
    if (take_item(decoder, b))
        c = take_item(decoder);
    else
        a = b = Item::F16; // only the types of D and C are written
    int rounding = a == Item::F64 ? decoder.take_any({"rn", "rz", "rm", "rp"}) : -1;
    if (!types_fit(d, a, b, c) || !fits(shape, a) || !sum_fits(shape, d) || !sum_fits(shape, c))
        decoder.refuse("these types are not supported with this shape");
    Fragment fragments[4] = {
        fragment_of(decoder, Which::C, shape, d, decoder.operand(0), true),
        fragment_of(decoder, Which::A, shape, a, decoder.operand(1), false),
        fragment_of(decoder, Which::B, shape, b, decoder.operand(2), false),
        fragment_of(decoder, Which::C, shape, c, decoder.operand(3), false),
    };
    emit_product(decoder, fragments, floating::Rounding(rounding < 0 ? 0 : rounding));
}

void decode_wmma(Decoder &decoder) {
    if (decoder.take("load")) {
        int which = decoder.take_any({"a", "b", "c"});
        if (which < 0)
            decoder.refuse(".a, .b or .c is missing");
        return decode_transfer<true>(decoder, Which(which));
    }
    if (decoder.take("store")) {
        if (!decoder.take("d"))
            decoder.refuse(".d is missing");
        return decode_transfer<false>(decoder, Which::C);
    }
    if (!decoder.take("mma"))
        decoder.refuse(".load, .store or .mma is missing");
    decode_product(decoder);
}

} // namespace

void add_wmma(Opcodes &opcodes) { opcodes["wmma"] = decode_wmma; }

} // namespace soft::ptx
