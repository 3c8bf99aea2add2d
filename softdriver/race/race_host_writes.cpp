#include "race/race_host_writes.h"

#include <algorithm>
#include <cstring>

namespace soft {
namespace {

constexpr size_t max_watches = 512;
// A range of up to this size is hashed completely. Of a larger range only samples are hashed, which
// together have this size.
constexpr size_t all_hashed = 32768;
constexpr size_t sample = 512;

constexpr uint64_t odd = 0x9e3779b97f4a7c15u;

uint64_t word_at(const char *bytes) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    return word;
}

// Hashes bytes. Four words are hashed in parallel, because a multiplication takes several cycles.
// Each step is invertible, so a change of a single word always changes the hash.
uint64_t hash_bytes(const char *bytes, size_t count, uint64_t seed) {
    uint64_t a = seed, b = seed + 1, c = seed + 2, d = seed + 3;
    size_t left = count;
    for (; left >= 32; left -= 32, bytes += 32) {
        a = (a ^ word_at(bytes)) * odd;
        b = (b ^ word_at(bytes + 8)) * odd;
        c = (c ^ word_at(bytes + 16)) * odd;
        d = (d ^ word_at(bytes + 24)) * odd;
    }
    char rest[32] = {};
    std::memcpy(rest, bytes, left);
    uint64_t hash = count;
    for (uint64_t part :
         {a, b, c, d, word_at(rest), word_at(rest + 8), word_at(rest + 16), word_at(rest + 24)})
        hash = ((hash ^ part) * odd) ^ (hash >> 29);
    return hash;
}

uint64_t hash_sampled(const char *bytes, size_t count, size_t budget, uint64_t seed) {
    if (count <= budget || count <= 2 * sample)
        return hash_bytes(bytes, count, seed);
    size_t samples = std::max<size_t>(2, budget / sample);
    for (size_t i = 0; i < samples; i++) {
        auto at = static_cast<size_t>(double(count - sample) * double(i) / double(samples - 1));
        seed = hash_bytes(bytes + at, sample, seed);
    }
    return seed;
}

uint64_t hash_range(const RaceShadow &memory, const Range &range) {
    const char *bytes = memory.host + (range.begin - memory.begin);
    if (range.contiguous())
        return hash_sampled(bytes, range.end() - range.begin, all_hashed, 0);
    size_t rows = std::min<size_t>(range.rows, 256), hash = 0;
    for (size_t i = 0; i < rows; i++) {
        size_t row = range.rows > rows ? i * (range.rows - 1) / (rows - 1) : i;
        hash = hash_sampled(bytes + row * range.pitch, range.bytes, all_hashed / rows, hash);
    }
    return hash;
}

} // namespace

bool RaceHostWrites::being_written(const Range &range) const {
    return std::any_of(writers_.begin(), writers_.end(),
                       [&](const OperationPtr &writer) { return writer->writes_to(range); });
}

void RaceHostWrites::hash(Watch &watch) {
    watch.hashed = !being_written(watch.range);
    if (watch.hashed)
        watch.hash = hash_range(*watch.shadow, watch.range);
}

bool RaceHostWrites::intact(const Watch &watch) const {
    if (!watch.hashed || hash_range(*watch.shadow, watch.range) == watch.hash)
        return true;
    report_(*watch.operation, *watch.shadow, watch.range, watch.use);
    return false;
}

template <class Chosen> void RaceHostWrites::drop(Chosen chosen) {
    watches_.erase(std::remove_if(watches_.begin(), watches_.end(), chosen), watches_.end());
}

void RaceHostWrites::add(const OperationPtr &operation, const RaceShadowPtr &shadow,
                         const Range &range, RaceUse use) {
    if (watches_.size() == max_watches || shadow->has_word(range))
        return;
    watches_.push_back({operation, shadow, range, use, false, 0});
    hash(watches_.back());
}

void RaceHostWrites::started(const OperationPtr &operation) {
    drop([&](Watch &watch) {
        bool own = watch.operation == operation, touched = operation->writes_to(watch.range);
        if ((own || touched) && !intact(watch))
            return true;
        if (touched)
            watch.hashed = false;
        return false;
    });
    if (!operation->writes.empty())
        writers_.push_back(operation);
}

void RaceHostWrites::ended(const Operation &operation) {
    if (operation.writes.empty())
        return;
    writers_.erase(std::remove_if(writers_.begin(), writers_.end(),
                                  [&](auto &writer) { return writer.get() == &operation; }),
                   writers_.end());
    for (Watch &watch : watches_)
        if (operation.writes_to(watch.range))
            hash(watch);
}

void RaceHostWrites::learned(const std::function<bool(const Operation &)> &known) {
    drop([&](Watch &watch) {
        if (!known(*watch.operation))
            return false;
        intact(watch);
        return true;
    });
}

void RaceHostWrites::remove(const RaceShadow &shadow) {
    drop([&](Watch &watch) { return watch.shadow.get() == &shadow; });
}

void RaceHostWrites::remove(const Range &range) {
    drop([&](Watch &watch) { return watch.range.overlaps(range); });
}

void RaceHostWrites::remove(const Operation &operation) {
    drop([&](Watch &watch) { return watch.operation.get() == &operation; });
}

void RaceHostWrites::clear() { watches_.clear(); }

} // namespace soft
