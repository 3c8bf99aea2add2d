#include "ptx/tensor_map.h"

#include "ptx/access.h"
#include "ptx/families.h"
#include "ptx/matrix.h"

#include <cstring>
#include <iterator>

// This file checks tensor maps, and decodes and runs `tensormap`, which changes them.

namespace soft::ptx {

namespace {

// Values of CUtensorMapDataType. The last are types of less than 8 bits, which are not supported.
enum Float32 : uint8_t { FlushedFloat32 = 10, TFloat32 = 11, FlushedTFloat32 = 12 };
constexpr int supported_types = 13;

// In tensormap.replace, types have other numbers than in CUtensorMapDataType.
uint8_t type_of_number(uint64_t number) {
    constexpr uint8_t types[] = {0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12};
    return number < sizeof types ? types[number] : 0xff;
}

enum class Field : uint16_t {
    Address,
    Dimensions,
    Box,
    Size,
    Stride,
    Step,
    Type,
    Interleave,
    Swizzle,
    Atomicity,
    Fill,
};
bool has_index(Field field) { return field >= Field::Box && field <= Field::Step; }
bool is_wide(Field field) { return field == Field::Address || field == Field::Stride; }

// Sets a field. Returns the text of an error, which is empty if there is none.
std::string set_field(TensorMap &map, Field field, uint64_t index, uint64_t value) {
    constexpr unsigned most = TensorMap::most_dimensions;
    if (has_index(field) && index >= (field == Field::Stride ? most - 1 : most))
        return "the tensor map has no dimension " + std::to_string(index);
    switch (field) {
    case Field::Address:
        map.address = value;
        break;
    case Field::Dimensions:
        map.last_dimension = uint8_t(value);
        break;
    case Field::Box:
        map.box[index] = uint32_t(value);
        break;
    case Field::Size:
        map.sizes[index] = value;
        break;
    case Field::Stride:
        map.strides[index] = value;
        break;
    case Field::Step:
        map.steps[index] = uint8_t(value);
        break;
    case Field::Type:
        map.type = type_of_number(value);
        break;
    case Field::Interleave:
        map.interleave = uint8_t(value);
        break;
    case Field::Swizzle:
        map.swizzle = uint8_t(value);
        break;
    case Field::Fill:
        map.fill = uint8_t(value);
        break;
    default: // Atomicity
        if (value)
            return "this atomicity of swizzling is not supported by the software driver";
    }
    map.mark = TensorMap::known_mark;
    return {};
}

// Step::detail of tensormap.replace: the field and the state space.
constexpr unsigned map_field_mask = 0xf, map_space_shift = 4, map_space_mask = 0xf;

// The handler of tensormap.replace. rows[0] has the addresses, rows[1] the dimensions, and rows[2]
// the values.
void replace_field(Warp &warp, const Step &step) {
    auto field = Field(step.detail & map_field_mask);
    Access access{warp, step, Space(step.detail >> map_space_shift & map_space_mask), Use::Write};
    warp.machine.progress++;
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        char *found = access.reach_or_fail(lane, warp.row<uint64_t>(step.rows[0])[lane],
                                           TensorMap::bytes, TensorMap::alignment);
        if (!found)
            return;
        uint64_t value = is_wide(field) ? warp.row<uint64_t>(step.rows[2])[lane]
                                        : warp.row<uint32_t>(step.rows[2])[lane];
        TensorMap map = TensorMap::read(found);
        std::string wrong = set_field(map, field, warp.row<uint32_t>(step.rows[1])[lane], value);
        if (!wrong.empty())
            return warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION, wrong);
        map.write(found);
    }
}

void decode_replace(Decoder &decoder) {
    int field =
        decoder.take("tile")
            ? decoder.take_any({"global_address", "rank", "box_dim", "global_dim", "global_stride",
                                "element_stride", "elemtype", "interleave_layout", "swizzle_mode",
                                "swizzle_atomicity", "fill_mode"})
            : -1;
    if (field < 0)
        decoder.refuse(".tile and a field are needed");
    int space = decoder.take_any({"global", "shared::cta"});
    Type type = is_wide(Field(field)) ? Type::B64 : Type::B32;
    if (!decoder.take("b1024") || !decoder.take(type == Type::B64 ? "b64" : "b32"))
        decoder.refuse_types();
    bool indexed = has_index(Field(field));
    decoder.expect_operands(indexed ? 3 : 2);
    Step &step = decoder.step;
    step.rows[0] = decoder.whole_address(decoder.operand(0));
    step.rows[1] = indexed ? decoder.source(decoder.operand(1), Type::B32) : decoder.constant(4, 0);
    step.rows[2] = decoder.source(decoder.operand(indexed ? 2 : 1), type);
    // Strides are in bytes. The compilers of CUDA 12.4 and before took them in units of 16 bytes.
    Space where = space < 0 ? Space::Generic : space ? Space::Shared : Space::Global;
    step.detail = uint16_t(unsigned(field) | unsigned(where) << map_space_shift);
    decoder.emit(replace_field);
}

// The handler of tensormap.cp_fenceproxy, which copies a tensor map to global memory. The lanes of
// a warp copy it together.
void copy_map(Warp &warp, const Step &step) {
    if (!whole_warp(warp, step))
        return;
    Access target{warp, step, Space::Global, Use::Write};
    Access source{warp, step, Space::Shared, Use::Read};
    warp.machine.progress++;
    const char *from = source.reach_or_fail(0, warp.row<uint64_t>(step.rows[1])[0],
                                            TensorMap::bytes, TensorMap::alignment);
    char *to = from ? target.reach_or_fail(0, warp.row<uint64_t>(step.rows[0])[0], TensorMap::bytes,
                                           TensorMap::alignment)
                    : nullptr;
    if (to)
        memcpy(to, from, TensorMap::bytes);
}

void decode_copy_of_map(Decoder &decoder) {
    if (!decoder.take("global") || !decoder.take("shared::cta") ||
        !decoder.take("tensormap::generic") || !decoder.take("release"))
        decoder.refuse(".global.shared::cta.tensormap::generic.release is missing");
    if (decoder.take_any({"cta", "cluster", "gpu", "sys"}) < 0)
        decoder.refuse("a scope is missing");
    decoder.code().communicates = true;
    take_sync_aligned(decoder);
    decoder.expect_operands(3);
    decoder.step.rows[0] = decoder.whole_address(decoder.operand(0));
    decoder.step.rows[1] = decoder.whole_address(decoder.operand(1));
    if (decoder.integer(decoder.operand(2)) != TensorMap::bytes)
        decoder.refuse("the size must be 128");
    decoder.emit(copy_map);
}

void decode_tensormap(Decoder &decoder) {
    if (decoder.take("replace"))
        return decode_replace(decoder);
    if (decoder.take("cp_fenceproxy"))
        return decode_copy_of_map(decoder);
    decoder.refuse(".replace or .cp_fenceproxy is missing");
}

} // namespace

TensorMap TensorMap::read(const void *from) {
    TensorMap map;
    memcpy(static_cast<void *>(&map), from, sizeof map);
    return map;
}

void TensorMap::write(void *to) const {
    memset(to, 0, bytes);
    memcpy(to, this, sizeof *this);
}

size_t TensorMap::element_bytes() const {
    constexpr size_t sizes_of_types[supported_types] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    return type < supported_types ? sizes_of_types[type] : 0;
}

bool TensorMap::rounds() const { return type == TFloat32 || type == FlushedTFloat32; }
bool TensorMap::is_converted() const { return type == FlushedFloat32 || rounds(); }

Type TensorMap::type_for(Operation operation) const {
    constexpr Type types[] = {Type::None, Type::None, Type::U32, Type::S32, Type::U64,
                              Type::S64,  Type::F16,  Type::F32, Type::F64, Type::BF16};
    if (type >= std::size(types))
        return Type::None;
    bool bits = operation >= Operation::And && operation <= Operation::Xor;
    bool extremum = operation == Operation::Min || operation == Operation::Max;
    if (types[type] == Type::S64 && !extremum)
        return Type::None; // as on an H200, and as for atomic operations on .s64
    bool integer = types[type] >= Type::U32 && !is_float(types[type]);
    return !bits || !integer ? types[type] : element_bytes() == 4 ? Type::B32 : Type::B64;
}

unsigned TensorMap::count(unsigned dimension) const {
    // In the first dimension, all elements are copied.
    return dimension ? (box[dimension] + steps[dimension] - 1) / steps[dimension] : box[0];
}

bool TensorMap::is_unsupported() const {
    return type >= supported_types || interleave || swizzle > 3 || fill;
}

std::string TensorMap::mistake() const {
    auto number = [](uint64_t value) { return std::to_string(value); };
    if (mark != known_mark)
        return "there is no tensor map at this address";
    if (dimensions() > most_dimensions)
        return "the tensor map has " + number(dimensions()) + " dimensions; the limit is 5";
    if (is_unsupported())
        return "the tensor map has a type, an interleaved layout, a swizzling or a value for fills"
               " that the software driver does not support";
    for (unsigned i = 0; i < dimensions(); i++) {
        if (!box[i] || box[i] > most_box)
            return "the box has " + number(box[i]) + " elements in dimension " + number(i) +
                   "; it can have 1 to 256";
        if (!sizes[i] || sizes[i] > uint64_t{1} << 32)
            return "the tensor has " + number(sizes[i]) + " elements in dimension " + number(i);
        if (i && (!steps[i] || steps[i] > most_step))
            return "the step in dimension " + number(i) + " is " + number(steps[i]) +
                   "; it can be 1 to 8";
        if (i && (strides[i - 1] % 16 || strides[i - 1] >> 40))
            return "the stride of dimension " + number(i) + " is " + number(strides[i - 1]) +
                   " bytes; it must be a multiple of 16, and less than 2^40";
    }
    if (address % 16)
        return "the address of the tensor is not a multiple of 16";
    if (row_bytes() % 16)
        return "a row of the box has " + number(row_bytes()) +
               " bytes; it must be a multiple of 16";
    if (swizzle && row_bytes() > pitch())
        return "a row of the box has " + number(row_bytes()) +
               " bytes, and swizzling is for at most " + number(pitch());
    return {};
}

void add_tensor_maps(Opcodes &opcodes) { opcodes["tensormap"] = decode_tensormap; }

} // namespace soft::ptx
