#include "ptx/decode_arithmetic.h"

#include <cstring>

// This file decodes and runs the video instructions: integer operations on bytes and halves of
// registers, one (vadd), two (vadd2) or four (vadd4) at a time.

namespace soft::ptx {

namespace {

enum class Video : uint8_t { Add, Sub, Absdiff, Min, Max, Avrg, Set, Shl, Shr };
enum class Secondary : uint8_t { None, Add, Min, Max };
// The parts of a register that a scalar instruction can select, in the order of their names.
enum class Part : uint8_t { B0, B1, B2, B3, H0, H1, Word };

// The variant of an instruction, which is stored in Step::offset.
struct VideoForm {
    Video operation;
    uint8_t signs; // flags: a_signed, b_signed, d_signed and saturates
    Secondary secondary;
    uint8_t mode; // vset: the index of the comparison; shifts: 1 for .wrap; vmad: 1 for .po
    // The parts of their registers that the operands a and b use. In a scalar instruction each is a
    // Part. In others, the n-th hexadecimal digit from the right is for the n-th result. A digit is
    // the index of a byte (or half) in the registers of a and b together.
    uint16_t a, b;
};
static_assert(sizeof(VideoForm) == sizeof(int64_t));
constexpr uint8_t a_signed = 1, b_signed = 2, d_signed = 4, saturates = 8;

VideoForm form_of(const Step &step) {
    VideoForm form;
    memcpy(&form, &step.offset, sizeof form);
    return form;
}

// Extracts `bits` bits, the lowest of which is `first`, and extends them to 64 bits.
int64_t extract(uint64_t from, unsigned first, unsigned bits, bool is_signed) {
    uint64_t raised = from >> first << (64 - bits);
    return is_signed ? int64_t(raised) >> (64 - bits) : int64_t(raised >> (64 - bits));
}

unsigned first_bit(Part part) {
    return part < Part::H0 ? 8 * unsigned(part) : part == Part::H1 ? 16 : 0;
}
unsigned bits_of_part(Part part) { return part < Part::H0 ? 8 : part < Part::Word ? 16 : 32; }

int64_t extract(uint32_t from, Part part, bool is_signed) {
    return extract(from, first_bit(part), bits_of_part(part), is_signed);
}

template <class T> T limited(T value, unsigned bits, bool is_signed) {
    int64_t low = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
    int64_t high = (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
    return value < low ? low : value > high ? high : value;
}

bool compared(unsigned comparison, int64_t a, int64_t b) {
    const bool results[] = {a == b, a != b, a<b, a <= b, a> b, a >= b};
    return results[comparison];
}

int64_t computed(const VideoForm &form, int64_t a, int64_t b) {
    switch (form.operation) {
    case Video::Add:
        return a + b;
    case Video::Sub:
        return a - b;
    case Video::Absdiff:
        return a < b ? b - a : a - b;
    case Video::Min:
        return a < b ? a : b;
    case Video::Max:
        return a < b ? b : a;
    case Video::Avrg:
        return (a + b + (a + b >= 0)) >> 1;
    case Video::Set:
        return compared(form.mode, a, b);
    case Video::Shl:
    case Video::Shr:
        b = form.mode ? b & 31 : b > 32 ? 32 : b;
        return form.operation == Video::Shl ? int64_t(uint64_t(a) << b) : a >> b;
    }
    return 0;
}

// The handler of scalar instructions: rows[0] = rows[1] op rows[2], combined with rows[3]. The part
// of the result is in Step::detail.
void scalar_video(Warp &warp, const Step &step) {
    const VideoForm form = form_of(step);
    const Part a_part = Part(form.a), b_part = Part(form.b), part = Part(step.detail);
    bool is_signed = (form.signs & d_signed) != 0;
    uint32_t *result = warp.row<uint32_t>(step.rows[0]);
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        int64_t a = extract(warp.row<uint32_t>(step.rows[1])[lane], a_part, form.signs & a_signed);
        int64_t b = extract(warp.row<uint32_t>(step.rows[2])[lane], b_part, form.signs & b_signed);
        uint32_t third = warp.row<uint32_t>(step.rows[3])[lane];
        int64_t c = extract(third, 0, 32, is_signed), value = computed(form, a, b);
        if (form.signs & saturates)
            value = limited(value, bits_of_part(part), is_signed);
        if (form.secondary == Secondary::Add)
            value += c;
        else if (form.secondary != Secondary::None)
            value = (form.secondary == Secondary::Min) == (value < c) ? value : c;
        uint64_t mask = ((uint64_t{1} << bits_of_part(part)) - 1) << first_bit(part);
        result[lane] = uint32_t((third & ~mask) | (uint64_t(value) << first_bit(part) & mask));
    }
}

// The handler of instructions on two halves or four bytes. The mask of the results that are used is
// in Step::detail.
template <unsigned count> void simd_video(Warp &warp, const Step &step) {
    constexpr unsigned bits = 32 / count;
    const VideoForm form = form_of(step);
    uint32_t *result = warp.row<uint32_t>(step.rows[0]);
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t both = warp.row<uint32_t>(step.rows[1])[lane] |
                        uint64_t(warp.row<uint32_t>(step.rows[2])[lane]) << 32;
        uint32_t c = warp.row<uint32_t>(step.rows[3])[lane];
        bool adds = form.secondary == Secondary::Add;
        uint32_t all = c;
        for (unsigned i = 0; i < count; i++) {
            int64_t a = extract(both, (form.a >> 4 * i & 7) * bits, bits, form.signs & a_signed);
            int64_t b = extract(both, (form.b >> 4 * i & 7) * bits, bits, form.signs & b_signed);
            int64_t value = computed(form, a, b);
            if (form.signs & saturates)
                value = limited(value, bits, form.signs & d_signed);
            if (!(step.detail >> i & 1))
                continue;
            uint32_t mask = (~uint32_t{0} >> (32 - bits)) << (i * bits);
            all = adds ? all + uint32_t(value)
                       : (all & ~mask) | (uint32_t(value) << (i * bits) & mask);
        }
        result[lane] = all;
    }
}

// The handler of vmad: rows[0] = (rows[1] * rows[2] + rows[3] + po) >> Step::detail, where po is 1
// with .po and else 0.
void multiply_video(Warp &warp, const Step &step) {
    const VideoForm form = form_of(step);
    const Part a_part = Part(form.a), b_part = Part(form.b);
    bool is_signed = (form.signs & (a_signed | b_signed)) != 0;
    for (uint32_t left = warp.active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        int64_t a = extract(warp.row<uint32_t>(step.rows[1])[lane], a_part, form.signs & a_signed);
        int64_t b = extract(warp.row<uint32_t>(step.rows[2])[lane], b_part, form.signs & b_signed);
        int64_t c = extract(warp.row<uint32_t>(step.rows[3])[lane], 0, 32, is_signed);
        __int128 sum = __int128(a) * b + c + form.mode;
        sum >>= step.detail;
        if (form.signs & saturates)
            sum = limited(sum, 32, is_signed);
        warp.row<uint32_t>(step.rows[0])[lane] = uint32_t(uint64_t(sum));
    }
}

bool take_sign(Decoder &decoder) {
    int sign = decoder.take_first({"u32", "s32"});
    if (sign < 0)
        decoder.refuse("a type is missing, which must be .u32 or .s32");
    return sign == 1;
}

// Reads the types of the result and of the operands.
uint8_t take_signs(Decoder &decoder, bool has_result) {
    uint8_t signs = has_result && take_sign(decoder) ? d_signed : 0;
    signs |= take_sign(decoder) ? a_signed : 0;
    return signs | (take_sign(decoder) ? b_signed : 0);
}

// Splits an operand such as r.b0 into the register and the name of its part.
Operand without_part(const Operand &operand, std::string &part) {
    Operand whole = operand;
    part.clear();
    if (operand.kind == Operand::Kind::Register)
        std::swap(part, whole.name);
    return whole;
}

Part part_named(Decoder &decoder, const std::string &name) {
    static const char *const names[] = {"b0", "b1", "b2", "b3", "h0", "h1", ""};
    for (unsigned i = 0; i < 7; i++)
        if (name == names[i])
            return Part(i);
    decoder.refuse("'." + name + "' is no part of a register");
}

Row take_source(Decoder &decoder, size_t n, std::string &part) {
    return decoder.source(without_part(decoder.operand(n), part), Type::B32);
}

// Reads the operands a and b of a scalar instruction.
void take_parts(Decoder &decoder, VideoForm &form) {
    std::string part;
    decoder.step.rows[1] = take_source(decoder, 1, part);
    form.a = uint16_t(part_named(decoder, part));
    decoder.step.rows[2] = take_source(decoder, 2, part);
    form.b = uint16_t(part_named(decoder, part));
}

void keep(Decoder &decoder, const VideoForm &form) {
    memcpy(&decoder.step.offset, &form, sizeof form);
}

uint8_t take_mode(Decoder &decoder, Video operation) {
    if (operation == Video::Set) {
        int comparison = decoder.take_any({"eq", "ne", "lt", "le", "gt", "ge"});
        if (comparison < 0)
            decoder.refuse("a comparison is missing");
        return uint8_t(comparison);
    }
    if (operation != Video::Shl && operation != Video::Shr)
        return 0;
    int mode = decoder.take_any({"clamp", "wrap"});
    if (mode < 0)
        decoder.refuse(".clamp or .wrap is missing");
    return uint8_t(mode);
}

template <Video operation> void decode_scalar_video(Decoder &decoder) {
    VideoForm form{operation, 0, Secondary::None, 0, 0, 0};
    form.signs = take_signs(decoder, operation != Video::Set);
    if (operation != Video::Set && decoder.take("sat"))
        form.signs |= saturates;
    form.mode = take_mode(decoder, operation);
    if ((operation == Video::Shl || operation == Video::Shr) && form.signs & b_signed)
        decoder.refuse_types();
    form.secondary = Secondary(decoder.take_any({"add", "min", "max"}) + 1);
    std::string part;
    Operand result = without_part(decoder.operands() ? decoder.operand(0) : Operand(), part);
    decoder.step.detail = uint16_t(part_named(decoder, part));
    bool merges = !part.empty(), combines = form.secondary != Secondary::None;
    if (merges && combines)
        decoder.refuse("a part of a register cannot receive the result of two operations");
    decoder.expect_operands(merges || combines ? 4 : 3);
    decoder.step.rows[0] = decoder.destination(result, Type::B32);
    take_parts(decoder, form);
    decoder.step.rows[3] =
        merges || combines ? decoder.source(decoder.operand(3), Type::B32) : decoder.constant(4, 0);
    keep(decoder, form);
    decoder.emit(scalar_video);
}

void decode_video_multiplication(Decoder &decoder) {
    VideoForm form{Video::Add, 0, Secondary::None, 0, 0, 0};
    form.signs = take_signs(decoder, true);
    form.mode = decoder.take("po");
    form.signs |= decoder.take("sat") ? saturates : 0;
    int shift = decoder.take_any({"shr7", "shr15"});
    decoder.expect_operands(4);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::B32);
    take_parts(decoder, form);
    decoder.step.rows[3] = decoder.source(decoder.operand(3), Type::B32);
    decoder.step.detail = uint16_t(shift < 0 ? 0 : shift == 0 ? 7 : 15);
    keep(decoder, form);
    decoder.emit(multiply_video);
}

// Reads a selection such as .h32 or .b7654, whose first digit is for the highest part of the
// result.
uint16_t selection(Decoder &decoder, const std::string &name, char letter, unsigned count,
                   uint16_t usual) {
    if (name.empty())
        return usual;
    bool good = name.size() == count + 1 && name[0] == letter;
    uint16_t digits = 0;
    for (size_t i = 1; i < name.size() && good; i++) {
        good = name[i] >= '0' && name[i] < char('0' + 2 * count);
        digits = uint16_t(digits << 4 | (name[i] - '0'));
    }
    if (!good)
        decoder.refuse("'." + name + "' does not select parts of two registers");
    return digits;
}

// Reads the mask of a result, such as .h1 or .b310.
uint16_t result_mask(Decoder &decoder, const std::string &name, char letter, unsigned count) {
    if (name.empty())
        return uint16_t((1 << count) - 1);
    uint16_t mask = 0;
    bool good = name.size() > 1 && name[0] == letter;
    for (size_t i = 1, last = count; i < name.size() && good; i++) {
        size_t digit = size_t(name[i] - '0');
        good = digit < last; // digits descend
        mask = uint16_t(mask | 1u << (digit & 3));
        last = digit;
    }
    if (!good)
        decoder.refuse("'." + name + "' does not select parts of a register");
    return mask;
}

template <Video operation, unsigned count> void decode_simd_video(Decoder &decoder) {
    constexpr char letter = count == 2 ? 'h' : 'b';
    VideoForm form{operation, 0, Secondary::None, 0, 0, 0};
    form.signs = take_signs(decoder, operation != Video::Set);
    form.mode = take_mode(decoder, operation);
    form.secondary = decoder.take("add") ? Secondary::Add : Secondary::None;
    if (operation != Video::Set && form.secondary == Secondary::None && decoder.take("sat"))
        form.signs |= saturates;
    decoder.expect_operands(4);
    std::string part;
    decoder.step.rows[0] = decoder.destination(without_part(decoder.operand(0), part), Type::B32);
    decoder.step.detail = result_mask(decoder, part, letter, count);
    decoder.step.rows[1] = take_source(decoder, 1, part);
    form.a = selection(decoder, part, letter, count, count == 2 ? 0x10 : 0x3210);
    decoder.step.rows[2] = take_source(decoder, 2, part);
    form.b = selection(decoder, part, letter, count, count == 2 ? 0x32 : 0x7654);
    decoder.step.rows[3] = decoder.source(decoder.operand(3), Type::B32);
    keep(decoder, form);
    decoder.emit(simd_video<count>);
}

template <unsigned count> void add_simd(Opcodes &opcodes, const char *const (&names)[7]) {
    opcodes[names[0]] = decode_simd_video<Video::Add, count>;
    opcodes[names[1]] = decode_simd_video<Video::Sub, count>;
    opcodes[names[2]] = decode_simd_video<Video::Absdiff, count>;
    opcodes[names[3]] = decode_simd_video<Video::Min, count>;
    opcodes[names[4]] = decode_simd_video<Video::Max, count>;
    opcodes[names[5]] = decode_simd_video<Video::Avrg, count>;
    opcodes[names[6]] = decode_simd_video<Video::Set, count>;
}

} // namespace

void add_video(Opcodes &opcodes) {
    opcodes["vadd"] = decode_scalar_video<Video::Add>;
    opcodes["vsub"] = decode_scalar_video<Video::Sub>;
    opcodes["vabsdiff"] = decode_scalar_video<Video::Absdiff>;
    opcodes["vmin"] = decode_scalar_video<Video::Min>;
    opcodes["vmax"] = decode_scalar_video<Video::Max>;
    opcodes["vset"] = decode_scalar_video<Video::Set>;
    opcodes["vshl"] = decode_scalar_video<Video::Shl>;
    opcodes["vshr"] = decode_scalar_video<Video::Shr>;
    opcodes["vmad"] = decode_video_multiplication;
    add_simd<2>(opcodes, {"vadd2", "vsub2", "vabsdiff2", "vmin2", "vmax2", "vavrg2", "vset2"});
    add_simd<4>(opcodes, {"vadd4", "vsub4", "vabsdiff4", "vmin4", "vmax4", "vavrg4", "vset4"});
}

} // namespace soft::ptx
