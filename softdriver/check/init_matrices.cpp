#include "check/kernel_init.h"

#include "base/undefined.h"
#include "ptx/matrix.h"
#include "ptx/wgmma.h"

#include <algorithm>
#include <cstring>

// The part of checks=init about instructions on matrices, which the lanes of a warp execute
// together, and about bulk copies.

namespace soft::check {

using ptx::Flow;
using ptx::Fragment;
using ptx::Part;
using ptx::Space;
using ptx::warp_size;

namespace {

constexpr size_t row_bytes = ptx::small_side * sizeof(uint16_t), chunk_bytes = 16;
constexpr unsigned most_side = 256, most_items = 16 * 256; // limits of a matrix
constexpr uint32_t every_lane = ~uint32_t{0};

uint8_t width_of(const Fragment &fragment) {
    return uint8_t(ptx::register_bits(fragment.item) / 8);
}

unsigned items_of_register(const Fragment &fragment) {
    return ptx::register_bits(fragment.item) / ptx::bits_of(fragment.item);
}

// Returns the bits of a register that hold an item.
uint64_t bits_of_item(const Fragment &fragment, unsigned index) {
    unsigned bits = ptx::bits_of(fragment.item);
    return ~uint64_t{0} >> (64 - bits) << index % items_of_register(fragment) * bits;
}

Part register_of(const Fragment &fragment, unsigned index) {
    return {fragment.registers[index / items_of_register(fragment)], width_of(fragment)};
}

// Which rows, columns or items of a matrix are undefined, or have an undefined item.
template <size_t most> struct Undefined {
    std::array<bool, most> any{};
    uint32_t origin = 0; // of one of them
};
using Sides = Undefined<most_side>;
using Items = Undefined<most_items>;

// Notes the undefined items that a warp has of one of its matrices. `number_of` returns the number
// of the row, of the column, or of the item at a place.
template <size_t most, class NumberOf>
void look_at_fragment(const Registers &registers, const Fragment &fragment, unsigned matrix,
                      Undefined<most> &found, NumberOf number_of) {
    for (unsigned i = 0; i < fragment.items_of_lane(); i++) {
        Part part = register_of(fragment, i);
        for (unsigned lane = 0; lane < warp_size && !registers.is_clean(part); lane++) {
            if (fragment.matrix_of(lane) != matrix ||
                !(registers.mask(part, lane) & bits_of_item(fragment, i)))
                continue;
            found.any[number_of(fragment.place(lane, i))] = true;
            found.origin = registers.origin(part);
        }
    }
}

void add_results(const Fragment &fragment, std::vector<Result> &results) {
    for (ptx::Row row : fragment.registers)
        results.emplace_back().part = {row, width_of(fragment)};
}

// An item of D = A * B + C is undefined if its row of A or its column of B has an undefined item,
// or if the same item of C is undefined. The first row of D has the number `first_row`.
void multiply(const Fragment &d, unsigned matrix, unsigned first_row, const Sides &a,
              const Sides &b, const Items &c, Result *results) {
    for (unsigned i = 0; i < d.items_of_lane(); i++)
        for (unsigned lane = 0; lane < warp_size; lane++) {
            if (d.matrix_of(lane) != matrix)
                continue;
            unsigned place = d.place(lane, i), row = first_row + place / d.columns;
            uint32_t origin = a.any[row]                 ? a.origin
                              : b.any[place % d.columns] ? b.origin
                              : c.any[place]             ? c.origin
                                                         : 0;
            if (!origin)
                continue;
            Result &result = results[i / items_of_register(d)];
            result.masks[lane] |= bits_of_item(d, i);
            result.origin = origin;
        }
}

auto rows_of(const Fragment &fragment, unsigned first = 0) {
    return [&fragment, first](unsigned place) { return first + place / fragment.columns; };
}
auto columns_of(const Fragment &fragment) {
    return [&fragment](unsigned place) { return place % fragment.columns; };
}
unsigned same(unsigned place) { return place; }

} // namespace

// ---- products in registers ----

// mma and wmma.mma.
void KernelInit::multiply_matrices() {
    const auto *operands = &now_.warp->frame->code->fragments[now_.step->place];
    const Fragment &d = *operands[0], &a = *operands[1], &b = *operands[2], &c = *operands[3];
    add_results(d, results_);
    for (unsigned matrix = 0; matrix < d.matrices(); matrix++) {
        Sides rows, columns;
        Items sums;
        look_at_fragment(*now_.registers, a, matrix, rows, rows_of(a));
        look_at_fragment(*now_.registers, b, matrix, columns, columns_of(b));
        look_at_fragment(*now_.registers, c, matrix, sums, same);
        multiply(d, matrix, 0, rows, columns, sums, results_.data());
    }
}

// movmatrix
void KernelInit::transpose_matrix() {
    Part from{now_.step->rows[1], 4};
    uint64_t items[ptx::small_side][ptx::small_side];
    auto each = [&](bool transposes, auto act) {
        for (unsigned lane = 0; lane < warp_size; lane++)
            for (unsigned which = 0; which < 2; which++) {
                auto [row, column] = ptx::small_place(lane, which, transposes);
                act(items[row][column], lane, 16 * which);
            }
    };
    each(false, [&](uint64_t &item, unsigned lane, unsigned shift) {
        item = now_.registers->mask(from, lane) >> shift & 0xffff;
    });
    Result &result = results_.emplace_back();
    result.part = {now_.step->rows[0], 4};
    each(true, [&](uint64_t item, unsigned lane, unsigned shift) {
        result.masks[lane] |= item << shift;
    });
    result.origin = now_.registers->origin(from);
}

// ---- matrices in memory ----

// Called after a step that has accessed matrices in memory. `used_` has what it accessed. If that
// is not complete, the warp waits and tries the step again, or the launch has failed.
void KernelInit::finish_matrices() {
    collects_ = false;
    switch (now_.flow->memory) {
    case Flow::Memory::LoadRows:
        return load_rows();
    case Flow::Memory::StoreRows:
        return store_rows();
    case Flow::Memory::LoadFragment:
        return load_fragment();
    case Flow::Memory::StoreFragment:
        return store_fragment();
    default:
        return multiply_together();
    }
}

// Reads what a step has accessed. Returns whether any of it is undefined, and then sets `masks` and
// `origin`.
bool KernelInit::read_used(size_t number, size_t bytes, uint8_t *masks, uint32_t &origin) {
    Bytes read_bytes = used_[number];
    read_bytes.count = bytes;
    uint32_t stored = 0;
    if (!read(read_bytes, masks, stored))
        return false;
    origin = origin_of(read_bytes, masks, stored);
    return true;
}

// ldmatrix
void KernelInit::load_rows() {
    unsigned count = now_.step->detail & ptx::matrices_mask;
    bool transposes = now_.step->detail & ptx::transposes_bit;
    if (used_.size() < count * ptx::small_side)
        return;
    for (unsigned i = 0; i < count; i++) {
        Result &result = results_.emplace_back();
        result.part = {now_.step->rows[i], 4};
        uint16_t masks[ptx::small_side][ptx::small_side] = {};
        for (unsigned row = 0; row < ptx::small_side; row++) {
            uint8_t bytes[row_bytes];
            if (read_used(i * ptx::small_side + row, row_bytes, bytes, result.origin))
                memcpy(masks[row], bytes, row_bytes);
        }
        for (unsigned lane = 0; lane < warp_size && result.origin; lane++)
            for (unsigned which = 0; which < 2; which++) {
                auto [row, column] = ptx::small_place(lane, which, transposes);
                result.masks[lane] |= uint64_t(masks[row][column]) << 16 * which;
            }
    }
}

// stmatrix. What it has written counts as defined until now.
void KernelInit::store_rows() {
    unsigned count = now_.step->detail & ptx::matrices_mask;
    bool transposes = now_.step->detail & ptx::transposes_bit;
    if (used_.size() < count * ptx::small_side)
        return;
    for (unsigned i = 0; i < count; i++) {
        Part part{now_.step->rows[i], 4};
        if (now_.registers->is_clean(part))
            continue;
        uint16_t masks[ptx::small_side][ptx::small_side] = {};
        for (unsigned lane = 0; lane < warp_size; lane++)
            for (unsigned which = 0; which < 2; which++) {
                auto [row, column] = ptx::small_place(lane, which, transposes);
                masks[row][column] = uint16_t(now_.registers->mask(part, lane) >> 16 * which);
            }
        for (unsigned row = 0; row < ptx::small_side; row++) {
            uint8_t bytes[row_bytes];
            memcpy(bytes, masks[row], row_bytes);
            write_used(i * ptx::small_side + row, row_bytes, bytes, now_.registers->origin(part));
        }
    }
}

void KernelInit::write_used(size_t number, size_t bytes, const uint8_t *masks, uint32_t origin) {
    if (std::all_of(masks, masks + bytes, [](uint8_t mask) { return !mask; }))
        return;
    Bytes written = used_[number];
    written.count = bytes;
    write(*now_.warp, written, masks, origin);
}

// wmma.load
void KernelInit::load_fragment() {
    const Fragment &fragment = *now_.warp->frame->code->fragments[now_.step->place];
    unsigned items = fragment.items_of_lane(), bits = ptx::bits_of(fragment.item);
    if (used_.size() < size_t(items) * warp_size)
        return;
    add_results(fragment, results_);
    for (unsigned lane = 0; lane < warp_size; lane++)
        for (unsigned i = 0; i < items; i++) {
            uint8_t bytes[sizeof(uint64_t)] = {};
            Result &result = results_[i / items_of_register(fragment)];
            if (!read_used(lane * items + i, std::max(bits / 8, 1u), bytes, result.origin))
                continue;
            uint64_t mask;
            memcpy(&mask, bytes, sizeof mask);
            uint64_t whole = bits_of_item(fragment, i);
            // Items that are smaller than a byte are undefined as a whole.
            result.masks[lane] |=
                bits < 8 ? whole : mask << i % items_of_register(fragment) * bits & whole;
        }
}

// wmma.store. What it has written counts as defined until now.
void KernelInit::store_fragment() {
    const Fragment &fragment = *now_.warp->frame->code->fragments[now_.step->place];
    unsigned items = fragment.items_of_lane(), bits = ptx::bits_of(fragment.item);
    if (used_.size() < size_t(items) * warp_size || now_.registers->is_clean())
        return;
    for (unsigned lane = 0; lane < warp_size; lane++)
        for (unsigned i = 0; i < items; i++) {
            Part part = register_of(fragment, i);
            uint64_t mask =
                now_.registers->mask(part, lane) >> i % items_of_register(fragment) * bits;
            uint8_t bytes[sizeof mask];
            memcpy(bytes, &mask, sizeof mask);
            write_used(lane * items + i, bits / 8, bytes, now_.registers->origin(part));
        }
}

// ---- wgmma ----

namespace {

// The items of a matrix in shared memory are in chunks. In a transposed matrix, a chunk has items
// of several rows (of A) or columns (of B); otherwise all items of a chunk are in one row or
// column.
struct Chunks {
    unsigned outer; // rows of A, or columns of B
    ptx::Item item;
    bool transposed;

    unsigned items() const { return chunk_bytes * 8 / ptx::bits_of(item); }
    unsigned rows() const { return transposed ? 2 * items() : outer; }
    unsigned in_row() const { return transposed ? outer / items() : 2; }
    unsigned count() const { return rows() * in_row(); }
    // Notes which rows of A, or columns of B, an undefined chunk has.
    void note(unsigned number, const uint8_t *masks, Sides &found) const {
        unsigned row = number / in_row(), first = number % in_row() * items();
        size_t bytes = ptx::bits_of(item) / 8;
        for (size_t i = 0; i < chunk_bytes; i++)
            if (masks[i])
                found.any[transposed ? first + i / bytes : row] = true;
    }
};

} // namespace

// wgmma.mma_async. The instruction reads its operands in shared memory only when the last warp of
// the group executes it. Then `used_` has the chunks of B, followed by those of A.
void KernelInit::multiply_together() {
    using namespace ptx;
    const auto *operands = &now_.warp->frame->code->fragments[now_.step->place];
    const Fragment &d = *operands[0], &a = *operands[1];
    unsigned detail = now_.step->detail;
    Chunks of_b{d.columns, a.item, (detail & transposes_b_bit) != 0};
    Chunks of_a{warps_of_group * rows_of_warp, a.item, (detail & transposes_a_bit) != 0};
    bool a_in_memory = a.registers.empty();
    if (used_.size() < of_b.count() + (a_in_memory ? of_a.count() : 0))
        return;
    Sides rows, columns;
    for (unsigned i = 0; i < used_.size(); i++) {
        uint8_t masks[chunk_bytes];
        bool is_b = i < of_b.count();
        if (!read_used(i, chunk_bytes, masks, is_b ? columns.origin : rows.origin))
            continue;
        is_b ? of_b.note(i, masks, columns) : of_a.note(i - of_b.count(), masks, rows);
    }
    unsigned first = now_.warp->number / warps_of_group * warps_of_group;
    bool adds = now_.warp->predicate(now_.step->rows[adds_to_d]) != 0;
    for (unsigned i = 0; i < warps_of_group; i++) {
        Registers &registers = registers_of(*now_.warp->block.warps[first + i]->frame);
        if (!a_in_memory)
            look_at_fragment(registers, a, 0, rows, rows_of(a, i * rows_of_warp));
        Items sums;
        if (adds)
            look_at_fragment(registers, d, 0, sums, same);
        std::vector<Result> results;
        add_results(d, results);
        multiply(d, 0, i * rows_of_warp, rows, columns, sums, results.data());
        for (const Result &result : results)
            registers.set(result.part, every_lane, result.masks, result.origin);
    }
}

// ---- bulk copies ----

// Without items, the target gets the undefined bits of the source. With items, the copy updates the
// items of the target as atomics do, so it is a mistake if nobody has written them.
void KernelInit::moves(const ptx::Warp &, const ptx::Step &, const ptx::Move &move) {
    if (move.item_bytes)
        return update_items(move);
    for (size_t done = 0; done < move.bytes; done += most_accessed) {
        size_t count = std::min(move.bytes - done, most_accessed);
        Bytes from{move.lane, move.from, move.from_address + done, count};
        Bytes to{move.lane, move.to, move.to_address + done, count};
        std::array<uint8_t, most_accessed> masks;
        uint32_t stored = 0;
        if (read(from, masks.data(), stored)) // the target is known to be written
            write(*now_.warp, to, masks.data(), origin_of(from, masks.data(), stored));
    }
}

void KernelInit::update_items(const ptx::Move &move) {
    for (size_t done = 0; done < move.bytes; done += move.item_bytes) {
        Bytes from{move.lane, move.from, move.from_address + done, move.item_bytes};
        Bytes to{move.lane, move.to, move.to_address + done, move.item_bytes};
        std::array<uint8_t, most_accessed> masks{};
        uint32_t stored = 0, origin = 0;
        if (read(to, masks.data(), stored))
            found(origin_of(to, masks.data(), stored, true), move.lane, "update", !stored);
        masks.fill(0);
        stored = 0;
        if (read(from, masks.data(), stored)) {
            origin = origin_of(from, masks.data(), stored);
            masks.fill(0xff);
        }
        write(*now_.warp, to, masks.data(), origin);
    }
}

} // namespace soft::check
