#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

// This header has textures and surfaces, as kernels use them.

namespace soft::ptx {

// The type of a channel. A channel is one of the numbers of an element.
enum class Channel : uint8_t { U8, S8, U16, S16, U32, S32, F16, F32 };

constexpr size_t bytes_of(Channel channel) {
    return channel < Channel::U16 ? 1 : channel < Channel::U32 || channel == Channel::F16 ? 2 : 4;
}

// How coordinates outside of the texture are treated. The values are those of CUaddress_mode.
enum class Outside : uint8_t { Wrap, Clamp, Mirror, Border };

// The elements of a texture, or of one of its levels. `depth` is the number of slices, or of
// layers, or of the faces of all cubes.
struct Texels {
    uintptr_t address = 0;
    size_t pitch = 0, slice = 0; // bytes from row to row, and from slice to slice
    uint32_t width = 1, height = 1, depth = 1;
};

struct Texture {
    enum class Shape : uint8_t { Linear, Row, Plane, Volume, Rows, Planes, Cube, Cubes };

    bool surface = false; // only instructions on surfaces can use it
    Shape shape = Shape::Row;
    Channel channel = Channel::U8;
    unsigned channels = 1;
    size_t element = 1; // bytes of an element
    // Channels are UNORM or SNORM: every read gets numbers from 0 or -1 to 1.
    bool fractions = false;
    std::vector<Texels> levels;

    // How the texture is read. Surfaces do not use the following members.
    Outside outside[3] = {Outside::Clamp, Outside::Clamp, Outside::Clamp};
    bool filters = false;    // reads are weighted means of neighbours
    bool normalized = false; // coordinates go from 0 to 1
    bool promotes = false;   // integers are read as numbers from 0 or -1 to 1
    bool srgb = false;
    bool mixes_levels = false; // reads between two levels are weighted means
    float bias = 0, least_level = 0, greatest_level = 0;
    char border[16] = {}; // the element that Outside::Border returns
    // If the plane has one row, kernels can also read it as a row. This is the texture for these
    // reads.
    std::shared_ptr<const Texture> row;

    bool reads_floats() const { return promotes || channel >= Channel::F16; }
};

// Returns the bits of the half that devices store in an element. Devices round towards zero, so a
// finite number never becomes an infinity.
uint32_t stored_half(float number);

} // namespace soft::ptx
