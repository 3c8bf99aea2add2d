#include "ptx/texture_operand.h"

namespace soft::ptx {

Geometry take_geometry(Decoder &decoder, bool cubes) {
    int geometry = decoder.take_any({"1d", "2d", "3d", "a1d", "a2d", "cube", "acube"});
    if (geometry < 0 || (!cubes && geometry >= int(Geometry::Cube)))
        decoder.refuse("this geometry is not supported");
    return Geometry(geometry);
}

static const char *name_of(Variable::Reference reference) {
    return reference == Variable::Reference::Surface ? ".surfref" : ".texref";
}

Row take_handle(Decoder &decoder, const Operand &place, Variable::Reference reference) {
    const Operand &handle = place.parts[0];
    const Variable *variable = decoder.named(handle);
    if (!(variable ? variable->reference == reference : decoder.is_register(handle)) ||
        place.addend)
        decoder.refuse("a " + std::string(name_of(reference)) +
                       " or a handle in a register is needed");
    decoder.step.site = decoder.decoding().library.sites++;
    return decoder.source(handle, Type::U64);
}

// PTX has no vectors of three registers, and in PTX 1 there were always four. What comes after the
// coordinates is ignored.
static void check_coordinates(Decoder &decoder, const Operand &given, size_t needed) {
    size_t count = given.kind == Operand::Kind::Vector ? given.parts.size() : 1;
    if (count < needed || (count > needed && count != 2 && count != 4))
        decoder.refuse(std::to_string(count) + " coordinates where " + std::to_string(needed) +
                       " are needed");
}

static const Operand &coordinate(const Operand &given, size_t i) {
    return given.kind == Operand::Kind::Vector ? given.parts[i] : given;
}

void take_place(Decoder &decoder, const Operand &place, Geometry geometry, Type type,
                Variable::Reference reference) {
    if (place.kind != Operand::Kind::Memory || place.parts.size() < 2)
        decoder.refuse("a handle and coordinates in brackets are needed");
    if (place.parts.size() > 2)
        decoder.refuse("samplers that are apart from their texture are not supported");
    decoder.step.rows[9] = take_handle(decoder, place, reference);
    const Operand &given = place.parts[1];
    size_t layer = is_layered(geometry), needed = layer + coordinates_of(geometry);
    check_coordinates(decoder, given, needed);
    for (size_t i = 0; i < needed; i++)
        decoder.step.rows[4 + i] =
            take_number(decoder, coordinate(given, i), i < layer ? Type::U32 : type);
}

void take_gradient(Decoder &decoder, const Operand &given, Geometry geometry, Row (&rows)[3]) {
    if (given.kind != Operand::Kind::Vector)
        decoder.refuse("a gradient must be a vector");
    size_t needed = coordinates_of(geometry);
    check_coordinates(decoder, given, needed);
    for (size_t i = 0; i < 3; i++)
        rows[i] = i < needed ? take_number(decoder, coordinate(given, i), Type::F32)
                             : decoder.constant(4, 0);
}

Row take_number(Decoder &decoder, const Operand &operand, Type type) {
    if (!is_float(type) && decoder.is_register(operand) && is_float(decoder.type_of(operand)))
        decoder.refuse("a floating-point register, where an integer is needed");
    return decoder.source(operand, type);
}

static bool fits(const Texture &texture, Geometry geometry, bool integers) {
    using Shape = Texture::Shape;
    bool cubes = texture.shape == Shape::Cube || texture.shape == Shape::Cubes;
    switch (geometry) {
    case Geometry::Row:
        // On devices, a read of an array with an integer coordinate, or of linear memory with a
        // floating-point coordinate, returns zeros. Here it is an error.
        return texture.shape == (integers && !texture.surface ? Shape::Linear : Shape::Row);
    case Geometry::Plane:
        return texture.shape == Shape::Plane;
    case Geometry::Volume:
        return texture.shape == Shape::Volume;
    case Geometry::Rows:
        return texture.shape == Shape::Rows;
    case Geometry::Planes: // the faces of cubes are the layers of a surface
        return texture.shape == Shape::Planes || (texture.surface && cubes);
    case Geometry::Cube:
        return texture.shape == Shape::Cube;
    default:
        return texture.shape == Shape::Cubes;
    }
}

const Texture *find_texture(Warp &warp, const Step &step, unsigned lane, uint64_t handle,
                            Geometry geometry, bool integers, bool surface) {
    const Texture *found = warp.machine.find_texture(warp, step, lane, handle, surface);
    if (found && found->row && geometry == Geometry::Row && !integers)
        return found->row.get();
    if (!found || fits(*found, geometry, integers))
        return found;
    static const char *const shapes[] = {
        "linear memory",     "a row of elements",          "rows and columns", "a volume",
        "layers of one row", "layers of rows and columns", "a cube",           "layers of cubes"};
    warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                      std::string(surface ? "the surface" : "the texture") + " is " +
                          shapes[size_t(found->shape)] +
                          (surface || geometry != Geometry::Row ? ""
                           : integers ? ", and a row by integers is linear memory"
                                      : ", and a row by other numbers is an array"));
    return nullptr;
}

void fail_texel(Warp &warp, const Step &step, unsigned lane, uintptr_t address) {
    warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_ADDRESS,
                      "the memory of this object is not there any more", address);
}

} // namespace soft::ptx
