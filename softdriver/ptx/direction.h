#pragma once

#include <cmath>
#include <cstdint>

// Coordinates of textures, and of directions on the faces of cubes.

namespace soft::ptx {

// The coordinates of a direction on one face of a cube. They depend on the direction linearly.
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

// Devices treat a NaN as 0.
inline double number(double value) { return std::isnan(value) ? 0 : value; }

} // namespace soft::ptx
