#include "ptx/access.h"
#include "ptx/arithmetic_format.h"
#include "ptx/lanes.h"
#include "ptx/mbarrier.h"
#include "ptx/observer.h"
#include "ptx/special.h"
#include "ptx/tensor_map.h"

#include <algorithm>
#include <cstring>

// This file decodes and runs cp.async.bulk.tensor. Copies are complete when the instruction ends.

namespace soft::ptx {

namespace {

constexpr size_t chunk_of_copy = 16, alignment_of_box = 128;

// The rows of a step: the address in shared memory, the address of the tensor map, the address of
// the mbarrier, and the coordinates.
constexpr unsigned box_row = 0, map_row = 1, barrier_row = 2, first_coordinate = 3;
// In Step::detail: the number of dimensions, a flag, and the operation of a reduction.
constexpr unsigned dimensions_mask = 0x7, multicasts_bit = 0x8, operation_shift = 4;
constexpr unsigned blocks_row = 8; // with .multicast::cluster: a mask of blocks

// A copy of a box of a tensor between shared and global memory, by one lane.
class BoxCopy {
  public:
    BoxCopy(Warp &warp, const Step &step, unsigned lane)
        : warp_(warp), step_(step), lane_(lane), global_{warp, step, Space::Global, Use::Read},
          shared_{warp, step, Space::Shared, Use::Read} {}

    // Copies the box to shared memory, or from there. Returns false if there is an error, which
    // ends the launch.
    bool run(bool loads);
    // Like run(false), but updates the tensor with the items in shared memory.
    bool reduce(Operation operation);
    uint64_t bytes() const { return rows_ * map_.row_bytes(); }

  private:
    struct Part {
        uint64_t address = 0; // of the part of a row that is in the tensor
        size_t begin = 0, end = 0;
    };

    bool fail(CUresult status, const std::string &what) const {
        warp_.machine.fail(warp_, step_, lane_, status, what);
        return false;
    }
    bool read_map(bool loads);
    Part part_of(uint64_t row) const;
    void add_rest_of_chunk(Part &part) const;
    bool copy_global(const Part &part, char *row, bool loads) const;
    void convert(char *row) const;
    bool copy_shared(uint64_t row, char *bytes, bool loads) const;
    uint64_t shared_address(uint64_t row, size_t offset) const;
    void note(const Part &part, uint64_t row, bool loads) const;

    Warp &warp_;
    const Step &step_;
    const unsigned lane_;
    Access global_, shared_;
    TensorMap map_;
    int64_t corner_[TensorMap::most_dimensions] = {};
    uint64_t rows_ = 1; // number of rows of the box
    UpdateItem update_ = nullptr;
};

bool BoxCopy::read_map(bool loads) {
    Access access{warp_, step_, Space::Generic, Use::Read};
    uint64_t address = warp_.row<uint64_t>(step_.rows[map_row])[lane_];
    // This read is not reported as a use (Observer), because tensor maps have a separate proxy.
    const char *found =
        address % TensorMap::alignment ? nullptr : access.reach(lane_, address, TensorMap::bytes);
    if (!found) {
        access.reach_or_fail(lane_, address, TensorMap::bytes, TensorMap::alignment);
        return false;
    }
    map_ = TensorMap::read(found);
    if (std::string wrong = map_.mistake(); !wrong.empty())
        return fail(CUDA_ERROR_ILLEGAL_INSTRUCTION, wrong);
    unsigned dimensions = step_.detail & dimensions_mask;
    if (map_.dimensions() != dimensions)
        return fail(CUDA_ERROR_ILLEGAL_INSTRUCTION,
                    "the tensor has " + std::to_string(map_.dimensions()) +
                        " dimensions, and the instruction " + std::to_string(dimensions));
    for (unsigned i = 0; i < dimensions; i++) {
        corner_[i] = warp_.row<int32_t>(step_.rows[first_coordinate + i])[lane_];
        if (corner_[i] < 0 && !loads)
            return fail(CUDA_ERROR_ILLEGAL_INSTRUCTION,
                        "coordinate " + std::to_string(i) + " is " + std::to_string(corner_[i]) +
                            ", and only a load can begin before the tensor");
        rows_ *= i ? map_.count(i) : 1;
    }
    int64_t bytes = corner_[0] * int64_t(map_.element_bytes());
    if (bytes % int64_t(chunk_of_copy))
        return fail(CUDA_ERROR_ILLEGAL_INSTRUCTION,
                    "the first coordinate is " + std::to_string(corner_[0]) +
                        ", so the box begins " + std::to_string(bytes) +
                        " bytes from the tensor's first column: "
                        "not a multiple of 16");
    return true;
}

// Returns which bytes of a row are in the tensor, and where.
BoxCopy::Part BoxCopy::part_of(uint64_t row) const {
    uint64_t address = map_.address;
    for (unsigned i = 1; i < map_.dimensions(); i++) {
        int64_t place = corner_[i] + int64_t(row % map_.count(i)) * map_.steps[i];
        row /= map_.count(i);
        if (place < 0 || uint64_t(place) >= map_.sizes[i])
            return {};
        address += uint64_t(place) * map_.strides[i - 1];
    }
    int64_t width = map_.box[0], left = std::clamp<int64_t>(-corner_[0], 0, width);
    int64_t right = std::clamp<int64_t>(int64_t(map_.sizes[0]) - corner_[0], left, width);
    size_t element = map_.element_bytes();
    return {address + uint64_t(corner_[0] + left) * element, size_t(left) * element,
            size_t(right) * element};
}

// Stores and reductions change whole chunks. If the tensor's row ends inside a chunk, an H200 also
// changes the memory up to the end of this chunk. Bytes past the end of the allocation are left
// out: no other memory begins in this chunk.
void BoxCopy::add_rest_of_chunk(Part &part) const {
    size_t rest = (chunk_of_copy - part.end % chunk_of_copy) % chunk_of_copy;
    Segment segment;
    uint64_t end = part.address + (part.end - part.begin);
    if (!rest || !warp_.machine.memory.find(end - 1, segment))
        return;
    rest = std::min<uint64_t>(rest, segment.begin + segment.bytes - end);
    part.end += update_ ? rest - rest % map_.element_bytes() : rest; // only whole items are updated
}

bool BoxCopy::copy_global(const Part &part, char *row, bool loads) const {
    size_t bytes = part.end - part.begin;
    if (!bytes)
        return true;
    char *found = global_.reach_or_fail(lane_, part.address, bytes, map_.element_bytes());
    if (found && update_)
        for (size_t i = 0; i < bytes; i += map_.element_bytes())
            update_(found + i, row + part.begin + i, warp_.machine.progress);
    else if (found)
        memcpy(loads ? row + part.begin : found, loads ? found : row + part.begin, bytes);
    return found != nullptr;
}

// Rounds to the nearest number with 10 fraction bits, ties to even.
uint32_t round_to_tf32(uint32_t bits) {
    constexpr uint32_t dropped = 0x1fff;
    if (floating::is_nan(floating::from_bits<float>(bits)))
        return floating::Format<float>::nan & ~dropped;
    return (bits + (dropped >> 1) + (bits >> 13 & 1)) & ~dropped;
}

// Converts the floats of a row that is loaded.
void BoxCopy::convert(char *row) const {
    for (char *place = row; place < row + map_.row_bytes(); place += sizeof(uint32_t)) {
        uint32_t bits;
        memcpy(&bits, place, sizeof bits);
        bits = round_to_tf32(bits);
        memcpy(place, &bits, sizeof bits);
    }
}

// Returns where a chunk of a row is in shared memory.
uint64_t BoxCopy::shared_address(uint64_t row, size_t offset) const {
    uint64_t address =
        warp_.row<uint64_t>(step_.rows[box_row])[lane_] + row * map_.pitch() + offset;
    return address ^ (address >> 7 & (map_.swizzled_chunks() - 1)) * chunk_of_copy;
}

// Tells the observer which bytes of a row have been copied.
void BoxCopy::note(const Part &part, uint64_t row, bool loads) const {
    for (size_t offset = 0; offset < part.end; offset += chunk_of_copy) {
        size_t begin = std::max(offset, part.begin);
        size_t end = std::min(offset + chunk_of_copy, part.end);
        if (begin >= end)
            continue;
        uint64_t shared = shared_address(row, offset) + (begin - offset);
        uint64_t global = part.address + (begin - part.begin);
        Move move{lane_,
                  Space::Global,
                  Space::Shared,
                  global,
                  shared,
                  end - begin,
                  update_ ? map_.element_bytes() : 0};
        if (loads) {
            std::swap(move.to, move.from);
            std::swap(move.to_address, move.from_address);
        }
        note_move(warp_, step_, move);
    }
}

bool BoxCopy::copy_shared(uint64_t row, char *bytes, bool loads) const {
    for (size_t offset = 0; offset < map_.row_bytes(); offset += chunk_of_copy) {
        char *found = shared_.reach_or_fail(lane_, shared_address(row, offset), chunk_of_copy);
        if (!found)
            return false;
        memcpy(loads ? found : bytes + offset, loads ? bytes + offset : found, chunk_of_copy);
    }
    return true;
}

bool BoxCopy::run(bool loads) {
    if (!map_.mark && !read_map(loads))
        return false;
    if (warp_.row<uint64_t>(step_.rows[box_row])[lane_] % alignment_of_box)
        return fail(CUDA_ERROR_MISALIGNED_ADDRESS,
                    "the address in shared memory is not a multiple of 128");
    if (!loads && map_.is_converted())
        return fail(CUDA_ERROR_ILLEGAL_INSTRUCTION,
                    "stores of this type are not supported by the software driver");
    (loads ? shared_ : global_).use = update_ ? Use::Atomic : Use::Write;
    alignas(16) char bytes[TensorMap::most_box * sizeof(uint64_t)];
    for (uint64_t row = 0; row < rows_; row++) {
        Part part = part_of(row);
        if (loads)
            memset(bytes, 0, map_.row_bytes()); // what is outside of the tensor is 0
        else
            add_rest_of_chunk(part);
        bool copied = loads ? copy_global(part, bytes, true) : copy_shared(row, bytes, false);
        if (copied && map_.rounds())
            convert(bytes);
        if (!copied || !(loads ? copy_shared(row, bytes, true) : copy_global(part, bytes, false)))
            return false;
        if (warp_.machine.observer)
            note(part, row, loads);
    }
    return true;
}

bool BoxCopy::reduce(Operation operation) {
    if (!read_map(false))
        return false;
    update_ = item_update(operation, map_.type_for(operation));
    return update_ ? run(false)
                   : fail(CUDA_ERROR_ILLEGAL_INSTRUCTION,
                          "there is no such reduction for the type of the tensor");
}

// If the copy is for other blocks of the cluster, ends the launch with an error and returns false.
bool only_own_block(Warp &warp, const Step &step, unsigned lane) {
    if (!(step.detail & multicasts_bit))
        return true;
    unsigned own = rank_in_cluster(warp.machine, warp);
    if (warp.row<uint16_t>(step.rows[blocks_row])[lane] == 1u << own)
        return true;
    warp.machine.fail(
        warp, step, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
        "copies to other blocks of a cluster are not supported by the software driver");
    return false;
}

template <bool loads> void copy_tensor(Warp &warp, const Step &step) {
    warp.machine.progress++;
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        BoxCopy copy(warp, step, lane);
        if (!only_own_block(warp, step, lane) || !copy.run(loads))
            return;
        if (loads &&
            !complete_bytes(warp, step, lane, warp.row<uint64_t>(step.rows[barrier_row])[lane],
                            copy.bytes()))
            return;
    }
}

void reduce_tensor(Warp &warp, const Step &step) {
    for (uint32_t left = warp.active; left; left &= left - 1) {
        BoxCopy copy(warp, step, unsigned(__builtin_ctz(left)));
        if (!copy.reduce(Operation(step.detail >> operation_shift)))
            return;
    }
}

void set_effect(Decoder &decoder) {
    decoder.effect.kind = Effect::Kind::Other;
    decoder.effect.actor = Effect::Actor::Bulk;
}

// Reads the operand [map, {coordinates}].
void take_tensor(Decoder &decoder, const Operand &operand) {
    int dimensions = 1 + decoder.take_any({"1d", "2d", "3d", "4d", "5d"});
    if (!dimensions)
        decoder.refuse("the number of dimensions is missing");
    decoder.take("tile");
    if (operand.kind != Operand::Kind::Memory || operand.parts.size() != 2)
        decoder.refuse("[tensor map, {coordinates}] is needed");
    Operand map = operand;
    map.parts.resize(1);
    decoder.step.rows[map_row] = decoder.whole_address(map);
    const Operand &coordinates = operand.parts[1];
    size_t given = coordinates.kind == Operand::Kind::Vector ? coordinates.parts.size() : 1;
    if (given != size_t(dimensions))
        decoder.refuse(std::to_string(given) + " coordinates where " + std::to_string(dimensions) +
                       " are needed");
    for (size_t i = 0; i < given; i++)
        decoder.step.rows[first_coordinate + i] = decoder.source(
            coordinates.kind == Operand::Kind::Vector ? coordinates.parts[i] : coordinates,
            Type::S32);
    decoder.step.detail = uint16_t(dimensions);
}

void decode_tensor_load(Decoder &decoder) {
    if (decoder.take_any({"shared::cluster", "shared::cta"}) < 0 || !decoder.take("global"))
        decoder.refuse("these state spaces are not supported");
    bool multicasts = decoder.take("multicast::cluster");
    bool policy = decoder.take("L2::cache_hint");
    decoder.expect_operands(3 + multicasts + policy);
    take_tensor(decoder, decoder.operand(1));
    Step &step = decoder.step;
    step.rows[box_row] = decoder.whole_address(decoder.operand(0));
    step.rows[barrier_row] = decoder.whole_address(decoder.operand(2));
    if (multicasts) {
        step.rows[blocks_row] = decoder.source(decoder.operand(3), Type::B16);
        step.detail |= multicasts_bit;
    }
    set_effect(decoder);
    decoder.emit(copy_tensor<true>);
}

// Decodes a copy to global memory, up to its handler.
void take_tensor_store(Decoder &decoder) {
    if (!decoder.take("global") || !decoder.take("shared::cta"))
        decoder.refuse("these state spaces are not supported");
    bool policy = decoder.take("L2::cache_hint");
    decoder.expect_operands(2 + policy);
    take_tensor(decoder, decoder.operand(0));
    decoder.step.rows[box_row] = decoder.whole_address(decoder.operand(1));
    set_effect(decoder);
}

} // namespace

void decode_tensor_copy(Decoder &decoder) {
    if (decoder.take("mbarrier::complete_tx::bytes"))
        return decode_tensor_load(decoder);
    if (!decoder.take("bulk_group"))
        decoder.refuse("not supported by the software driver");
    take_tensor_store(decoder);
    decoder.emit(copy_tensor<false>);
}

void decode_tensor_reduction(Decoder &decoder, Operation operation) {
    if (!decoder.take("bulk_group"))
        decoder.refuse(".bulk_group is missing");
    decoder.code().communicates = true; // the type of the items is not known yet
    take_tensor_store(decoder);
    decoder.step.detail = uint16_t(decoder.step.detail | unsigned(operation) << operation_shift);
    decoder.emit(reduce_tensor);
}

void decode_tensor_prefetch(Decoder &decoder) {
    bool policy = decoder.take("L2::cache_hint");
    if (!decoder.take("L2") || !decoder.take("global"))
        decoder.refuse("only .prefetch.tensor.L2.global is supported");
    decoder.expect_operands(1 + policy);
    take_tensor(decoder, decoder.operand(0));
    decoder.emit(nothing);
}

} // namespace soft::ptx
