#include "ptx/access.h"
#include "ptx/families.h"
#include "ptx/matrix.h"

#include <cstring>

// This file decodes and runs ldmatrix, stmatrix and movmatrix.

namespace soft::ptx {

namespace {

constexpr unsigned side = small_side;
constexpr size_t row_bytes = side * sizeof(uint16_t);
using Matrix = uint16_t[side][side];

uint16_t &item_of(Matrix &matrix, int lane, unsigned which, bool transposes) {
    SmallPlace place = small_place(unsigned(lane), which, transposes);
    return matrix[place.row][place.column];
}

uint32_t register_of(Matrix &matrix, int lane, bool transposes) {
    return item_of(matrix, lane, 0, transposes) | uint32_t(item_of(matrix, lane, 1, transposes))
                                                      << 16;
}

void put_register(Matrix &matrix, int lane, bool transposes, uint32_t value) {
    item_of(matrix, lane, 0, transposes) = uint16_t(value);
    item_of(matrix, lane, 1, transposes) = uint16_t(value >> 16);
}

// Returns the host address of row n. The rows are numbered through all matrices, and lane n has the
// address of row n.
char *reach_row(Warp &warp, const Step &step, unsigned n, Use use) {
    return reach_shared(warp, step, n, warp.row<uint64_t>(step.rows[9])[n], row_bytes, use,
                        (step.detail & is_generic_bit) != 0);
}

void load_matrices(Warp &warp, const Step &step) {
    if (!whole_warp(warp, step))
        return;
    Matrix matrices[4];
    unsigned count = step.detail & matrices_mask;
    for (unsigned n = 0; n < count * side; n++) {
        const char *row = reach_row(warp, step, n, Use::Read);
        if (!row)
            return;
        memcpy(matrices[n / side][n % side], row, row_bytes);
    }
    for (unsigned i = 0; i < count; i++)
        for (int lane = 0; lane < warp_size; lane++)
            warp.row<uint32_t>(step.rows[i])[lane] =
                register_of(matrices[i], lane, (step.detail & transposes_bit) != 0);
}

void store_matrices(Warp &warp, const Step &step) {
    if (!whole_warp(warp, step))
        return;
    Matrix matrices[4];
    unsigned count = step.detail & matrices_mask;
    for (unsigned i = 0; i < count; i++)
        for (int lane = 0; lane < warp_size; lane++)
            put_register(matrices[i], lane, (step.detail & transposes_bit) != 0,
                         warp.row<uint32_t>(step.rows[i])[lane]);
    warp.machine.progress++;
    for (unsigned n = 0; n < count * side; n++) {
        char *row = reach_row(warp, step, n, Use::Write);
        if (!row)
            return;
        memcpy(row, matrices[n / side][n % side], row_bytes);
    }
}

void transpose(Warp &warp, const Step &step) {
    if (!whole_warp(warp, step))
        return;
    Matrix matrix;
    for (int lane = 0; lane < warp_size; lane++)
        put_register(matrix, lane, false, warp.row<uint32_t>(step.rows[1])[lane]);
    for (int lane = 0; lane < warp_size; lane++)
        warp.row<uint32_t>(step.rows[0])[lane] = register_of(matrix, lane, true);
}

void take_form(Decoder &decoder) {
    if (!decoder.take("sync") || !decoder.take("aligned") || !decoder.take("m8n8") ||
        !decoder.take("b16"))
        decoder.refuse("only .sync.aligned.m8n8.b16 is supported by the software driver");
}

template <bool is_load> void decode_matrices(Decoder &decoder) {
    take_form(decoder);
    int log = decoder.take_any({"x1", "x2", "x4"});
    bool transposes = decoder.take("trans");
    bool generic = decoder.take_any({"shared", "shared::cta"}) < 0;
    if (log < 0)
        decoder.refuse(".x1, .x2 or .x4 is missing");
    unsigned count = 1u << log;
    decoder.expect_operands(2);
    decoder.step.rows[9] = decoder.whole_address(decoder.operand(is_load ? 1 : 0));
    Fragment fragment;
    take_registers(decoder, decoder.operand(is_load ? 0 : 1), fragment, count, is_load);
    for (unsigned i = 0; i < count; i++)
        decoder.step.rows[i] = fragment.registers[i];
    decoder.step.detail =
        uint16_t(count | (transposes ? transposes_bit : 0) | (generic ? is_generic_bit : 0));
    decoder.effect.kind = is_load ? Effect::Kind::Read : Effect::Kind::Write;
    decoder.effect.space = generic ? Space::Generic : Space::Shared;
    decoder.effect.actor = Effect::Actor::Warp;
    decoder.effect.item_bytes = uint8_t(row_bytes);
    decoder.effect.lanes = ~uint32_t{0} >> (warp_size - count * side);
    decoder.emit(is_load ? load_matrices : store_matrices);
}

void decode_transposition(Decoder &decoder) {
    take_form(decoder);
    if (!decoder.take("trans"))
        decoder.refuse(".trans is missing");
    decoder.expect_operands(2);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::B32);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), Type::B32);
    decoder.emit(transpose);
}

} // namespace

void add_matrix_moves(Opcodes &opcodes) {
    opcodes["ldmatrix"] = decode_matrices<true>;
    opcodes["stmatrix"] = decode_matrices<false>;
    opcodes["movmatrix"] = decode_transposition;
}

} // namespace soft::ptx
