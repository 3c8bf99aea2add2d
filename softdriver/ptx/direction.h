#pragma once

#include <cmath>
#include <cstdint>

// This header has what textures make of coordinates, and of directions in cubes.

namespace soft::ptx {

// A direction as one of the faces of a cube has it. For each face, this is linear in the direction.
struct OnFace {
    double major, s, t;
};

// Returns the face that a direction meets.
inline uint32_t face_of(double x, double y, double z) {
    double width = std::fabs(x), height = std::fabs(y), depth = std::fabs(z);
    if (depth >= width && depth >= height)
        return 4 + (z < 0);
    return height >= width ? 2 + (y < 0) : 0 + (x < 0);
}

inline OnFace on_face(uint32_t face, double x, double y, double z) {
    switch (face) {
    case 0:
        return {x, -z, -y};
    case 1:
        return {-x, z, -y};
    case 2:
        return {y, x, z};
    case 3:
        return {-y, x, -z};
    case 4:
        return {z, x, -y};
    default:
        return {-z, -x, -y};
    }
}

// Devices take what is not a number for 0.
inline double number(double value) { return std::isnan(value) ? 0 : value; }

} // namespace soft::ptx
