#pragma once

#include "ptx/access.h"
#include "ptx/decoder.h"
#include "ptx/texture.h"

// This header has the operands of instructions on textures and surfaces.

namespace soft::ptx {

// The part of an instruction's name that says how many coordinates there are, such as .a2d.
enum class Geometry : uint8_t { Row, Plane, Volume, Rows, Planes, Cube, Cubes };

constexpr bool is_layered(Geometry geometry) {
    return geometry == Geometry::Rows || geometry == Geometry::Planes ||
           geometry == Geometry::Cubes;
}
// Returns the number of coordinates without the layer.
constexpr unsigned coordinates_of(Geometry geometry) {
    return geometry == Geometry::Row || geometry == Geometry::Rows       ? 1
           : geometry == Geometry::Plane || geometry == Geometry::Planes ? 2
                                                                         : 3;
}

Geometry take_geometry(Decoder &decoder, bool cubes);
// Returns the row of the handle in an operand [handle, {x, y}]. Instead of a handle, the operand
// may name a reference of this kind.
Row take_handle(Decoder &decoder, const Operand &place, Variable::Reference reference);
// Reads an operand [handle, {x, y}]: rows[4] and so on become the layer and the coordinates,
// rows[9] the handle. Sets `site` of the step.
void take_place(Decoder &decoder, const Operand &place, Geometry geometry, Type type,
                Variable::Reference reference);
// Reads the gradient of a position. For coordinates that the geometry does not have, the rows
// contain zeros.
void take_gradient(Decoder &decoder, const Operand &given, Geometry geometry, Row (&rows)[3]);
// Returns the row of a coordinate, a layer or a level. If `type` is an integer type, refuses a
// register of a floating-point type; a register of a bit type is allowed.
Row take_number(Decoder &decoder, const Operand &operand, Type type);

// Finds a texture or surface that can be used with this geometry. If there is none, ends the launch
// with an error and returns null.
const Texture *find_texture(Warp &warp, const Step &step, unsigned lane, uint64_t handle,
                            Geometry geometry, bool integers, bool surface = false);
// Ends the launch because the memory of a texture or surface does not exist any more.
void fail_texel(Warp &warp, const Step &step, unsigned lane, uintptr_t address);

} // namespace soft::ptx
