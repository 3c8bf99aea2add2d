#include "ptx/sample.h"

#include "ptx/arithmetic_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace soft::ptx {
namespace {

// An element: its channels as bits of registers, or as floats.
struct Texel {
    uint32_t bits[4] = {};
    float number[4] = {};
};

float linear_of_srgb(float value) {
    return value <= 0.04045f ? value / 12.92f : std::pow((value + 0.055f) / 1.055f, 2.4f);
}

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
    if (texture.srgb && channel < 3)
        number = linear_of_srgb(number);
    texel.bits[channel] = raw;
}

// Returns the index of an element, or -1 for one outside.
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

    // Computes the weighted mean of 2, 4 or 8 neighbours. The weights have 8 bits after the point.
    bool mean(Texel &result) const {
        int64_t first[3] = {};
        double weights[3] = {};
        for (unsigned i = 0; i < dimensions_; i++)
            first[i] = neighbour(i, weights[i]);
        double sums[4] = {};
        for (unsigned corner = 0; corner < 1u << dimensions_; corner++) {
            int64_t at[3] = {};
            double weight = 1;
            for (unsigned i = 0; i < dimensions_; i++) {
                bool second = corner >> i & 1;
                at[i] = first[i] + second;
                weight *= second ? weights[i] : 1 - weights[i];
            }
            Texel texel;
            if (!fetch(at, texel))
                return false;
            for (unsigned i = 0; i < 4; i++)
                if (weight != 0) // an element without weight may be infinite
                    sums[i] += weight * double(texel.number[i]);
        }
        for (unsigned i = 0; i < 4; i++)
            result.number[i] = float(sums[i]);
        return true;
    }

    bool corner(int right, int below, Texel &texel) const {
        double weight;
        int64_t at[3] = {neighbour(0, weight) + right, neighbour(1, weight) + below, 0};
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
            position_[i] = double(spot.position[i]);
            index_[i] = spot.index[i];
        }
        if (texture_.shape == Shape::Cube || texture_.shape == Shape::Cubes)
            place_in_cube(spot);
        else if (texture_.normalized && texture_.shape != Shape::Linear)
            for (unsigned i = 0; i < dimensions_; i++)
                position_[i] *= counts_[i];
        for (unsigned i = 0; integers_ && i < dimensions_; i++)
            outside_[i] = Outside::Border;
    }

    // Converts a direction to a face of a cube and a position in it.
    void place_in_cube(const Spot &spot) {
        double x = position_[0], y = position_[1], z = position_[2];
        double width = std::fabs(x), height = std::fabs(y), depth = std::fabs(z);
        double largest, s, t;
        uint32_t face;
        if (width >= height && width >= depth) {
            face = x < 0;
            largest = width, s = x < 0 ? z : -z, t = -y;
        } else if (height >= depth) {
            face = 2 + (y < 0);
            largest = height, s = x, t = y < 0 ? -z : z;
        } else {
            face = 4 + (z < 0);
            largest = depth, s = z < 0 ? -x : x, t = -y;
        }
        position_[0] = (s / largest + 1) / 2 * counts_[0];
        position_[1] = (t / largest + 1) / 2 * counts_[1];
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

    // Returns the index of the first of two neighbours, and the weight of the second one.
    int64_t neighbour(unsigned dimension, double &weight) const {
        double before = position_[dimension] - 0.5;
        int64_t first = floored(before);
        double part = before - double(first);
        weight = part >= 0 && part <= 1 ? std::floor(part * 256 + 0.5) / 256 : 0;
        return first;
    }

    bool fetch(const int64_t (&at)[3], Texel &texel) const {
        int64_t places[3] = {0, 0, dimensions_ < 3 ? layer_ : 0};
        for (unsigned i = 0; i < dimensions_; i++) {
            places[i] = inside(at[i], counts_[i], outside_[i]);
            if (places[i] < 0) {
                if (!integers_ && texture_.shape != Shape::Linear)
                    std::copy(texture_.border, texture_.border + 4, texel.number);
                return true;
            }
        }
        const char *bytes =
            read_(texels_.address + size_t(places[2]) * texels_.slice +
                  size_t(places[1]) * texels_.pitch + size_t(places[0]) * texture_.element);
        if (!bytes)
            return false;
        texel.bits[3] = 1;
        texel.number[3] = 1;
        for (unsigned i = 0; i < texture_.channels; i++)
            decode_channel(texture_, bytes, i, texel);
        return true;
    }

    const Texture &texture_;
    const Texels &texels_;
    const ReadTexel &read_;
    unsigned dimensions_ = 1;
    bool integers_ = false;
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

// Returns the level at which to read.
double level_of(const Texture &texture, const Spot &spot) {
    double most = double(texture.levels.size() - 1);
    double level = double(spot.level) + double(spot.integers ? 0 : texture.bias);
    if (!spot.integers)
        level =
            std::min(std::max(level, double(texture.least_level)), double(texture.greatest_level));
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
    double weight = mixes ? std::floor((level - double(first)) * 256 + 0.5) / 256 : 0;
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
