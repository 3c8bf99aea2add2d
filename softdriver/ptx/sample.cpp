#include "ptx/sample.h"

#include "ptx/arithmetic_format.h"
#include "ptx/direction.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace soft::ptx {
namespace {

// An element. Each channel is stored in two forms: the bits for a register, and a float.
struct Texel {
    uint32_t bits[4] = {};
    float number[4] = {};
};

// The linear values of the 256 bytes of sRGB, as the upper halves of floats. An H100 with driver
// 580 has these values, which are coarser than the formula of the sRGB standard.
constexpr uint16_t linear_of_srgb[256] = {
    0x0000, 0x39a0, 0x3a20, 0x3a70, 0x3aa0, 0x3ac8, 0x3af0, 0x3b0c, 0x3b20, 0x3b34, 0x3b48, 0x3b5c,
    0x3b70, 0x3b84, 0x3b90, 0x3b9c, 0x3baa, 0x3bb8, 0x3bc6, 0x3bd6, 0x3be6, 0x3bf6, 0x3c03, 0x3c0c,
    0x3c16, 0x3c1f, 0x3c29, 0x3c34, 0x3c3e, 0x3c49, 0x3c55, 0x3c60, 0x3c6c, 0x3c7a, 0x3c83, 0x3c8a,
    0x3c91, 0x3c98, 0x3c9f, 0x3ca6, 0x3cae, 0x3cb6, 0x3cbe, 0x3cc6, 0x3cce, 0x3cd7, 0x3ce0, 0x3ce9,
    0x3cf2, 0x3cfc, 0x3d03, 0x3d08, 0x3d0d, 0x3d12, 0x3d17, 0x3d1c, 0x3d22, 0x3d28, 0x3d2d, 0x3d33,
    0x3d39, 0x3d3f, 0x3d45, 0x3d4c, 0x3d52, 0x3d58, 0x3d60, 0x3d66, 0x3d6c, 0x3d74, 0x3d7a, 0x3d81,
    0x3d85, 0x3d88, 0x3d8c, 0x3d90, 0x3d94, 0x3d98, 0x3d9c, 0x3da0, 0x3da4, 0x3da9, 0x3dad, 0x3db1,
    0x3db6, 0x3dba, 0x3dbf, 0x3dc3, 0x3dc8, 0x3dcd, 0x3dd1, 0x3dd6, 0x3ddb, 0x3de0, 0x3de5, 0x3dea,
    0x3df0, 0x3df4, 0x3dfa, 0x3e00, 0x3e02, 0x3e05, 0x3e08, 0x3e0b, 0x3e0e, 0x3e11, 0x3e14, 0x3e17,
    0x3e1a, 0x3e1d, 0x3e20, 0x3e23, 0x3e26, 0x3e29, 0x3e2c, 0x3e30, 0x3e33, 0x3e36, 0x3e3a, 0x3e3d,
    0x3e40, 0x3e44, 0x3e47, 0x3e4b, 0x3e4e, 0x3e52, 0x3e56, 0x3e59, 0x3e5d, 0x3e61, 0x3e65, 0x3e68,
    0x3e6c, 0x3e70, 0x3e74, 0x3e78, 0x3e7c, 0x3e80, 0x3e82, 0x3e84, 0x3e86, 0x3e88, 0x3e8a, 0x3e8d,
    0x3e8f, 0x3e91, 0x3e93, 0x3e95, 0x3e98, 0x3e9a, 0x3e9c, 0x3e9e, 0x3ea1, 0x3ea3, 0x3ea5, 0x3ea8,
    0x3eaa, 0x3ead, 0x3eaf, 0x3eb2, 0x3eb4, 0x3eb6, 0x3eb9, 0x3ebc, 0x3ebe, 0x3ec1, 0x3ec3, 0x3ec6,
    0x3ec8, 0x3ecb, 0x3ece, 0x3ed1, 0x3ed3, 0x3ed6, 0x3ed9, 0x3edb, 0x3ede, 0x3ee1, 0x3ee4, 0x3ee7,
    0x3eea, 0x3eed, 0x3ef0, 0x3ef2, 0x3ef6, 0x3ef8, 0x3efc, 0x3efe, 0x3f01, 0x3f02, 0x3f04, 0x3f05,
    0x3f07, 0x3f09, 0x3f0a, 0x3f0c, 0x3f0d, 0x3f0f, 0x3f11, 0x3f12, 0x3f14, 0x3f16, 0x3f17, 0x3f19,
    0x3f1b, 0x3f1c, 0x3f1e, 0x3f20, 0x3f21, 0x3f23, 0x3f25, 0x3f27, 0x3f29, 0x3f2a, 0x3f2c, 0x3f2e,
    0x3f30, 0x3f32, 0x3f33, 0x3f35, 0x3f37, 0x3f39, 0x3f3b, 0x3f3d, 0x3f3f, 0x3f41, 0x3f43, 0x3f45,
    0x3f47, 0x3f49, 0x3f4b, 0x3f4d, 0x3f4f, 0x3f51, 0x3f53, 0x3f55, 0x3f57, 0x3f59, 0x3f5b, 0x3f5d,
    0x3f5f, 0x3f61, 0x3f63, 0x3f65, 0x3f68, 0x3f6a, 0x3f6c, 0x3f6e, 0x3f70, 0x3f72, 0x3f74, 0x3f76,
    0x3f7a, 0x3f7c, 0x3f7e, 0x3f80,
};

float float_of(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

// Devices flush denormal numbers to 0.
float flushed(float value) { return std::fpclassify(value) == FP_SUBNORMAL ? 0 : value; }

// Reads a channel of an element.
void decode_channel(const Texture &texture, const char *bytes, unsigned channel, Texel &texel) {
    uint32_t raw = 0;
    size_t size = bytes_of(texture.channel);
    memcpy(&raw, bytes + channel * size, size);
    int32_t extended = size == 1 ? int8_t(raw) : size == 2 ? int16_t(raw) : int32_t(raw);
    float &number = texel.number[channel];
    switch (texture.channel) {
    case Channel::U8:
        number = float(raw) / 255;
        break;
    case Channel::U16:
        number = float(raw) / 65535;
        break;
    case Channel::S8:
        number = std::max(float(extended) / 127, -1.0f);
        raw = uint32_t(extended);
        break;
    case Channel::S16:
        number = std::max(float(extended) / 32767, -1.0f);
        raw = uint32_t(extended);
        break;
    case Channel::F16:
        number = floating::widen(floating::Half{uint16_t(raw)});
        break;
    default:
        memcpy(&number, &raw, sizeof number);
    }
    bool is_color = channel < 3 && (channel == 0 || texture.channels != 2);
    if (texture.srgb && is_color)
        number = float_of(uint32_t(linear_of_srgb[raw]) << 16);
    texel.bits[channel] = raw;
}

// Returns the index of the element that stands for a coordinate, or -1 for the border.
int64_t inside(int64_t index, int64_t count, Outside outside) {
    if (index >= 0 && index < count)
        return index;
    int64_t place;
    switch (outside) {
    case Outside::Wrap:
        place = index % count;
        return place < 0 ? place + count : place;
    case Outside::Mirror:
        place = index % (2 * count);
        place = place < 0 ? place + 2 * count : place;
        return place < count ? place : 2 * count - 1 - place;
    case Outside::Clamp:
        return index < 0 ? 0 : count - 1;
    default:
        return -1;
    }
}

class Sampler {
  public:
    Sampler(const Texture &texture, const Texels &texels, const Spot &spot, const ReadTexel &read)
        : texture_(texture), texels_(texels), read_(read) {
        const uint32_t counts[3] = {texels.width, texels.height, texels.depth};
        std::copy(counts, counts + 3, counts_);
        std::copy(texture.outside, texture.outside + 3, outside_);
        place(spot);
    }

    bool point(Texel &texel) const {
        int64_t at[3] = {};
        for (unsigned i = 0; i < dimensions_; i++)
            at[i] = integers_ ? index_[i] : floored(position_[i]);
        return fetch(at, texel);
    }

    // Computes the weighted mean of neighbours, two in each dimension. A texture of one row is
    // treated as a plane that has a single row, and is read at the upper edge of this plane.
    bool mean(Texel &result) {
        const unsigned given = dimensions_;
        if (texture_.shape == Shape::Row) {
            dimensions_ = 2;
            position_[1] = 0;
        }
        int64_t first[3] = {};
        int parts[3] = {}, weights[8];
        for (unsigned i = 0; i < dimensions_; i++)
            first[i] = neighbour(i, parts[i]);
        weigh(parts, weights);
        double sums[4] = {};
        bool alone = std::all_of(parts, parts + given, [](int part) { return !part; });
        for (unsigned corner = 0; corner < 1u << dimensions_; corner++) {
            if (!weights[corner]) // skip it: an infinite value would make the sum a NaN
                continue;
            int64_t at[3] = {};
            for (unsigned i = 0; i < dimensions_; i++)
                at[i] = first[i] + (corner >> i & 1);
            Texel texel;
            if (!fetch(at, texel))
                return false;
            for (unsigned i = 0; i < 4; i++)
                sums[i] += weights[corner] / 256.0 * summand(texel, i, alone);
        }
        for (unsigned i = 0; i < 4; i++)
            result.number[i] = rounded(sums[i]);
        return true;
    }

    bool corner(int right, int below, Texel &texel) const {
        int part;
        int64_t at[3] = {neighbour(0, part) + right, neighbour(1, part) + below, 0};
        return fetch(at, texel);
    }

  private:
    using Shape = Texture::Shape;

    void place(const Spot &spot) {
        switch (texture_.shape) {
        case Shape::Linear:
            outside_[0] = Outside::Border;
            [[fallthrough]];
        case Shape::Row:
        case Shape::Rows:
            dimensions_ = 1;
            break;
        case Shape::Volume:
            dimensions_ = 3;
            break;
        default:
            dimensions_ = 2;
        }
        if (texture_.shape == Shape::Rows || texture_.shape == Shape::Planes)
            layer_ = std::min(spot.layer, texels_.depth - 1);
        integers_ = spot.integers;
        for (int i = 0; i < 3; i++) {
            position_[i] = double(flushed(spot.position[i]));
            index_[i] = spot.index[i];
        }
        if (texture_.shape == Shape::Cube || texture_.shape == Shape::Cubes)
            place_in_cube(spot);
        else if (texture_.normalized && texture_.shape != Shape::Linear)
            for (unsigned i = 0; i < dimensions_; i++) {
                if (outside_[i] == Outside::Wrap)
                    position_[i] -= std::floor(position_[i]); // an infinity becomes a NaN
                position_[i] *= double(counts_[i]);
            }
        if (!integers_)
            return;
        std::fill(outside_, outside_ + dimensions_, Outside::Border);
        bool layered = texture_.shape == Shape::Rows || texture_.shape == Shape::Planes;
        beyond_ = layered && spot.layer >= texels_.depth;
    }

    // Converts a direction to a face of a cube and a position in it.
    void place_in_cube(const Spot &spot) {
        double x = number(position_[0]), y = number(position_[1]), z = number(position_[2]);
        const uint32_t face = face_of(x, y, z);
        const OnFace place = on_face(face, x, y, z);
        position_[0] = (number(place.s / place.major) + 1) / 2 * double(counts_[0]);
        position_[1] = (number(place.t / place.major) + 1) / 2 * double(counts_[1]);
        uint32_t cubes = texels_.depth / 6;
        uint32_t cube = texture_.shape == Shape::Cubes ? std::min(spot.layer, cubes - 1) : 0;
        layer_ = 6 * cube + face;
    }

    static int64_t floored(double position) {
        constexpr double far = double(int64_t{1} << 40);
        if (!(position > -far)) // also for a NaN
            return position < 0 ? -int64_t(far) : 0;
        return int64_t(std::floor(std::min(position, far)));
    }

    // Returns the index of the first of two neighbours, and the weight of the second one in parts
    // of 256.
    int64_t neighbour(unsigned dimension, int &part) const {
        int64_t steps = floored((number(position_[dimension]) - 0.5) * 256 + 0.5);
        part = int(steps & 255);
        return steps >> 8;
    }

    // Computes the weights of all corners in parts of 256. The product of two weights is rounded,
    // and the other neighbour gets the rest, so that the sum of all weights is always 256.
    void weigh(const int (&parts)[3], int (&weights)[8]) const {
        constexpr unsigned orders[3][3] = {{0, 1, 2}, {0, 1, 2}, {2, 0, 1}};
        std::fill(weights, weights + 8, 0);
        weights[0] = 256;
        for (unsigned i = 0; i < dimensions_; i++) {
            unsigned axis = orders[dimensions_ - 1][i];
            for (unsigned corner = 0; corner < 8; corner++) {
                if (corner >> axis & 1)
                    continue;
                // Ties are rounded up, but in the last of several dimensions only for the second
                // neighbour in x.
                bool down = i && i + 1 == dimensions_ && !(corner & 1);
                int second = (weights[corner] * parts[axis] + (down ? 127 : 128)) >> 8;
                weights[corner | 1u << axis] = second;
                weights[corner] -= second;
            }
        }
    }

    bool has_sign() const {
        return texture_.channel == Channel::S8 || texture_.channel == Channel::S16;
    }

    // Returns the value of a channel that enters a mean. Promoted integers become numbers of 16
    // bits. Values of sRGB are truncated to 8 bits, unless the element is `alone` in the mean.
    double summand(const Texel &texel, unsigned channel, bool alone) const {
        if (texture_.srgb)
            return alone ? double(texel.number[channel])
                         : std::floor(double(texel.number[channel]) * 256) / 256;
        if (!texture_.promotes)
            return double(flushed(texel.number[channel]));
        bool is_byte = bytes_of(texture_.channel) == 1;
        uint32_t bits = texel.bits[channel];
        if (has_sign())
            return is_byte ? int32_t(bits) * (32767 / 127.0) : int32_t(bits);
        return is_byte ? bits * 257.0 : bits;
    }

    // Rounds a mean. A mean of promoted integers is rounded to 16 bits, and any other mean to the
    // format of the channel.
    float rounded(double mean) const {
        if (texture_.promotes && !texture_.srgb) {
            double most = has_sign() ? 32767 : 65535;
            return float(std::max(std::floor(mean + 0.5) / most, -1.0));
        }
        if (std::isnan(mean))
            return float_of(0x7fffffff);
        if (texture_.channel == Channel::F16)
            return floating::widen(
                floating::narrow<floating::Half>(mean, floating::Rounding::NearestAway));
        return flushed(floating::narrow<float>(mean, floating::Rounding::NearestAway));
    }

    bool fetch(const int64_t (&at)[3], Texel &texel) const {
        int64_t places[3] = {0, 0, dimensions_ < 3 ? layer_ : 0};
        if (beyond_)
            return true;
        for (unsigned i = 0; i < dimensions_; i++) {
            places[i] = inside(at[i], counts_[i], outside_[i]);
            if (places[i] < 0) {
                if (!integers_ && texture_.shape != Shape::Linear)
                    decode(texture_.border, texel);
                return true;
            }
        }
        const char *bytes =
            read_(texels_.address + size_t(places[2]) * texels_.slice +
                  size_t(places[1]) * texels_.pitch + size_t(places[0]) * texture_.element);
        if (!bytes)
            return false;
        decode(bytes, texel);
        return true;
    }

    // Channels that the texture does not have stay 0.
    void decode(const char *bytes, Texel &texel) const {
        for (unsigned i = 0; i < texture_.channels; i++)
            decode_channel(texture_, bytes, i, texel);
    }

    const Texture &texture_;
    const Texels &texels_;
    const ReadTexel &read_;
    unsigned dimensions_ = 1;
    bool integers_ = false;
    bool beyond_ = false; // integer coordinates in a layer that does not exist: all reads return 0
    int64_t counts_[3], layer_ = 0, index_[3] = {};
    double position_[3] = {};
    Outside outside_[3];
};

uint32_t register_of(const Texture &texture, const Texel &texel, unsigned channel) {
    return texture.reads_floats() ? floating::to_bits(texel.number[channel]) : texel.bits[channel];
}

bool read_level(const Texture &texture, size_t level, const Spot &spot, const ReadTexel &read,
                Texel &texel) {
    Sampler sampler(texture, texture.levels[level], spot, read);
    bool filters = texture.filters && !spot.integers && texture.shape != Texture::Shape::Linear;
    return filters ? sampler.mean(texel) : sampler.point(texel);
}

// Returns the level at which to read. A read without a level or gradients has no bias.
double level_of(const Texture &texture, const Spot &spot) {
    double most = double(texture.levels.size() - 1), level = double(spot.level);
    if (!spot.integers) {
        level += double(spot.says_level ? texture.bias : 0);
        level =
            std::max(std::min(level, double(texture.greatest_level)), double(texture.least_level));
    }
    return level > 0 ? std::min(level, most) : 0; // a NaN becomes 0
}

} // namespace

bool sample(const Texture &texture, const Spot &spot, const ReadTexel &read,
            uint32_t (&result)[4]) {
    double level = level_of(texture, spot);
    bool mixes = texture.mixes_levels && texture.reads_floats() && !spot.integers;
    size_t first = size_t(mixes ? level : level + 0.5);
    Texel texel;
    if (!read_level(texture, first, spot, read, texel))
        return false;
    double weight = mixes ? std::floor((level - double(first)) * 256) / 256 : 0;
    if (weight > 0) {
        Texel next;
        if (!read_level(texture, first + 1, spot, read, next))
            return false;
        for (int i = 0; i < 4; i++)
            texel.number[i] =
                float((1 - weight) * double(texel.number[i]) + weight * double(next.number[i]));
    }
    for (unsigned i = 0; i < 4; i++)
        result[i] = register_of(texture, texel, i);
    return true;
}

bool gather(const Texture &texture, const Spot &spot, unsigned channel, const ReadTexel &read,
            uint32_t (&result)[4]) {
    Sampler sampler(texture, texture.levels[0], spot, read);
    constexpr int corners[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    for (int i = 0; i < 4; i++) {
        Texel texel;
        if (!sampler.corner(corners[i][0], corners[i][1], texel))
            return false;
        result[i] = register_of(texture, texel, channel);
    }
    return true;
}

} // namespace soft::ptx
