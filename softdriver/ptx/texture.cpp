#include "ptx/texture.h"

#include "ptx/access.h"
#include "ptx/families.h"
#include "ptx/gradient.h"
#include "ptx/lanes.h"
#include "ptx/observer.h"
#include "ptx/sample.h"
#include "ptx/texture_operand.h"

#include <algorithm>
#include <cstring>

// This file decodes and runs the instructions on textures: tex, tld4 and txq.

namespace soft::ptx {
namespace {

// The variant of an instruction, which is stored in Step::offset.
struct TextureForm {
    Geometry geometry;
    bool integers; // the coordinates are integers
    bool gathers;  // the instruction is tld4, which reads `channel`
    uint8_t channel;
    bool says_level; // true if the instruction has a level or gradients
};

static_assert(sizeof(TextureForm) <= sizeof(int64_t));

// Reads the position of a lane from rows[4] to rows[7].
Spot spot_of(Warp &warp, const Step &step, const TextureForm &form, unsigned lane) {
    Spot spot;
    bool layered = is_layered(form.geometry);
    spot.integers = form.integers;
    spot.says_level = form.says_level;
    if (layered)
        spot.layer = warp.row<uint32_t>(step.rows[4])[lane];
    for (unsigned i = 0; i < coordinates_of(form.geometry); i++) {
        Row row = step.rows[4 + layered + i];
        spot.position[i] = warp.row<float>(row)[lane];
        spot.index[i] = warp.row<int32_t>(row)[lane];
    }
    return spot;
}

// The handler of a step that precedes tex.grad, one for each gradient. Converts the gradient in
// rows[0] to rows[2] to elements and stores it in rows[3]. The other rows are the same as for tex.
void measure_gradient(Warp &warp, const Step &step) {
    TextureForm form;
    memcpy(&form, &step.offset, sizeof form);
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t handle = warp.row<uint64_t>(step.rows[9])[lane];
        const Texture *texture = find_texture(warp, step, lane, handle, form.geometry, false);
        if (!texture)
            return;
        float derivatives[3];
        for (int i = 0; i < 3; i++)
            derivatives[i] = warp.row<float>(step.rows[i])[lane];
        warp.row<Gradient>(step.rows[3])[lane] =
            gradient_of(*texture, spot_of(warp, step, form, lane), derivatives);
    }
}

// The handler of tex and tld4: rows[0] to rows[3] receive the channels, rows[4] to rows[7] have
// the layer and the coordinates, rows[8] the level, rows[9] the handle.
void read_texture(Warp &warp, const Step &step) {
    TextureForm form;
    memcpy(&form, &step.offset, sizeof form);
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t handle = warp.row<uint64_t>(step.rows[9])[lane];
        const Texture *texture =
            find_texture(warp, step, lane, handle, form.geometry, form.integers);
        if (!texture)
            return;
        Spot spot = spot_of(warp, step, form, lane);
        spot.level = form.integers ? float(warp.row<int32_t>(step.rows[8])[lane])
                                   : warp.row<float>(step.rows[8])[lane];
        uintptr_t last = 0;
        ReadTexel read = [&](uintptr_t address) {
            last = address;
            if (Observer *observer = warp.machine.observer.get())
                observer->uses(warp, lane, Space::Global, address, texture->element, Use::Read);
            return warp.machine.memory.reach(step.site, address, texture->element, Use::Read, true);
        };
        uint32_t found[4];
        if (!(form.gathers ? gather(*texture, spot, form.channel, read, found)
                           : sample(*texture, spot, read, found)))
            return fail_texel(warp, step, lane, last);
        for (int i = 0; i < 4; i++)
            warp.row<uint32_t>(step.rows[i])[lane] = found[i];
    }
}

// Reads the type of the result, and its four registers.
void take_texels(Decoder &decoder) {
    if (!decoder.take("v4"))
        decoder.refuse("only results of four registers are supported");
    Type type = decoder.take_type();
    if (type != Type::U32 && type != Type::S32 && type != Type::F32)
        decoder.refuse_types();
    const Operand &result = decoder.operand(0);
    if (result.kind != Operand::Kind::Vector || result.parts.size() != 4)
        decoder.refuse("the result must be a vector of four registers");
    for (size_t i = 0; i < 4; i++)
        decoder.step.rows[i] = decoder.destination(result.parts[i], type);
}

void emit_texture(Decoder &decoder, const TextureForm &form) {
    memcpy(&decoder.step.offset, &form, sizeof form);
    decoder.effect.kind = Effect::Kind::Other;
    decoder.effect.noncoherent = true;
    decoder.emit(read_texture);
}

// Emits the steps that compute the level of two gradients, and returns the row of the level.
Row emit_gradients(Decoder &decoder, const TextureForm &form) {
    const Step reading = decoder.step;
    Row gradients[2];
    for (size_t i = 0; i < 2; i++) {
        Row rows[3];
        take_gradient(decoder, decoder.operand(2 + i), form.geometry, rows);
        std::copy(rows, rows + 3, decoder.step.rows);
        gradients[i] = decoder.step.rows[3] = decoder.temporary(sizeof(Gradient));
        memcpy(&decoder.step.offset, &form, sizeof form);
        decoder.emit(measure_gradient);
        decoder.step = reading;
    }
    Row level = decoder.temporary(sizeof(float));
    decoder.step.rows[0] = level;
    std::copy(gradients, gradients + 2, decoder.step.rows + 1);
    decoder.emit(lanes<level_of_gradients>);
    decoder.step = reading;
    return level;
}

void decode_tex(Decoder &decoder) {
    enum Mode { Base, Level, Gradients };
    int mode = decoder.take_any({"base", "level", "grad"});
    TextureForm form{take_geometry(decoder, true), false, false, 0, mode >= Level};
    size_t operands = mode == Gradients ? 4 : mode == Level ? 3 : 2;
    if (decoder.operands() == operands + 1 || decoder.operands() == operands + 2)
        decoder.refuse("offsets and comparisons of depths are not supported");
    decoder.expect_operands(operands);
    take_texels(decoder);
    Type type = decoder.take_type();
    form.integers = type == Type::S32;
    bool cube = form.geometry == Geometry::Cube || form.geometry == Geometry::Cubes;
    if (type != Type::F32 && (!form.integers || cube || mode == Gradients))
        decoder.refuse("coordinates of this type are not supported");
    take_place(decoder, decoder.operand(1), form.geometry, type, Variable::Reference::Texture);
    decoder.step.rows[8] = mode == Gradients ? emit_gradients(decoder, form)
                           : mode == Level   ? take_number(decoder, decoder.operand(2), type)
                                             : decoder.constant(4, 0);
    emit_texture(decoder, form);
}

void decode_tld4(Decoder &decoder) {
    int channel = decoder.take_any({"r", "g", "b", "a"});
    if (channel < 0)
        decoder.refuse("the name of a channel is missing");
    TextureForm form{take_geometry(decoder, true), false, true, uint8_t(channel), false};
    if (form.geometry != Geometry::Plane)
        decoder.refuse("only .2d is supported");
    decoder.expect_operands(2);
    take_texels(decoder);
    if (decoder.take_type() != Type::F32)
        decoder.refuse("coordinates of this type are not supported");
    take_place(decoder, decoder.operand(1), form.geometry, Type::F32, Variable::Reference::Texture);
    decoder.step.rows[8] = decoder.constant(4, 0);
    emit_texture(decoder, form);
}

enum class Query : uint16_t { Width, Height, Depth };

// Returns the height that a GPU reports.
uint32_t height_of(const Texture &texture, const Texels &texels) {
    using Shape = Texture::Shape;
    switch (texture.shape) {
    case Shape::Rows:
        return texels.depth; // the number of layers
    case Shape::Row:
        return texture.surface ? 0 : 1;
    case Shape::Linear:
        return 0;
    default:
        return texels.height;
    }
}

// Returns the depth that a GPU reports: the number of slices, layers or cubes, or of the faces of a
// surface, and 0 for other shapes.
uint32_t depth_of(const Texture &texture, const Texels &texels) {
    using Shape = Texture::Shape;
    switch (texture.shape) {
    case Shape::Volume:
    case Shape::Planes:
        return texels.depth;
    case Shape::Cube:
        return texture.surface ? texels.depth : 0;
    case Shape::Cubes:
        return texture.surface ? texels.depth : texels.depth / 6;
    default:
        return 0;
    }
}

uint32_t extent_of(const Texture &texture, size_t level, Query query) {
    if (level >= texture.levels.size())
        return 0;
    const Texels &texels = texture.levels[level];
    return query == Query::Width    ? texels.width
           : query == Query::Height ? height_of(texture, texels)
                                    : depth_of(texture, texels);
}

// The handler of txq and suq. rows[9] has the handles, rows[8] the levels, and rows[0] receives the
// results. Step::place is 1 for a surface.
void ask_texture(Warp &warp, const Step &step) {
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t handle = warp.row<uint64_t>(step.rows[9])[lane];
        const Texture *texture =
            warp.machine.find_texture(warp, step, lane, handle, step.place != 0, true);
        if (!texture)
            return;
        uint32_t level = warp.row<uint32_t>(step.rows[8])[lane];
        warp.row<uint32_t>(step.rows[0])[lane] = extent_of(*texture, level, Query(step.detail));
    }
}

// Devices know only the extents of an object. For other queries, NVIDIA's compiler needs the
// description of a .texref or .surfref, and the driver has no such description of an object.
void refuse_other_query(Decoder &decoder, bool surface) {
    int query = surface
                    ? decoder.take_any(
                          {"array_size", "channel_data_type", "channel_order", "memory_layout"})
                    : decoder.take_any({"array_size", "num_mipmap_levels", "num_samples",
                                        "channel_data_type", "channel_order", "normalized_coords",
                                        "force_unnormalized_coords", "filter_mode", "addr_mode_0",
                                        "addr_mode_1", "addr_mode_2"});
    if (query < 0)
        decoder.refuse("this query is not supported");
    bool one = decoder.operands() > 1 && !decoder.operand(1).parts.empty();
    if (one && decoder.named(decoder.operand(1).parts[0]))
        decoder.refuse("this query of a reference is not supported by the software driver");
    decoder.refuse_as_nvidia("drivers know only the width, height and depth of an object");
}

template <bool surface> void decode_query(Decoder &decoder) {
    bool level = !surface && decoder.take("level");
    int query = decoder.take_any({"width", "height", "depth"});
    if (query < 0 && level)
        decoder.refuse("a level has only .width, .height and .depth");
    if (query < 0)
        refuse_other_query(decoder, surface);
    if (decoder.take_type() != Type::B32)
        decoder.refuse_types();
    decoder.expect_operands(level ? 3 : 2);
    const Operand &place = decoder.operand(1);
    if (place.kind != Operand::Kind::Memory || place.parts.size() != 1)
        decoder.refuse("a handle in brackets is needed");
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::U32);
    decoder.step.rows[8] =
        level ? take_number(decoder, decoder.operand(2), Type::U32) : decoder.constant(4, 0);
    decoder.step.rows[9] = take_handle(
        decoder, place, surface ? Variable::Reference::Surface : Variable::Reference::Texture);
    decoder.step.detail = uint16_t(query);
    decoder.step.place = surface;
    decoder.emit(ask_texture);
}

} // namespace

void add_textures(Opcodes &opcodes) {
    opcodes["tex"] = decode_tex;
    opcodes["tld4"] = decode_tld4;
    opcodes["txq"] = decode_query<false>;
    opcodes["suq"] = decode_query<true>;
}

} // namespace soft::ptx
