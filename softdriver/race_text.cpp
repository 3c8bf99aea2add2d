#include "race_text.h"

#include "race_order.h"

#include <cinttypes>
#include <cstdio>

namespace soft {
namespace {

std::string hexadecimal(uint64_t number) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%" PRIx64, number);
    return text;
}

std::string stream_of(const RaceTrack &track) {
    if (track.legacy)
        return "the legacy stream";
    if (track.per_thread)
        return "a per-thread stream";
    return "stream " + hexadecimal(reinterpret_cast<uintptr_t>(track.handle));
}

std::string operation_text(const Operation &operation) {
    const RaceTrack &track = *operation.mark.track;
    return race_name(operation) + " on " + stream_of(track) + " (stream id " +
           std::to_string(track.id) + ", operation " + std::to_string(operation.number) + ")";
}

std::string memory_text(const RaceShadow &memory) {
    static const char *const kinds[] = {"device", "stream-ordered", "page-locked", "managed",
                                        "registered"};
    return std::string("race on ") + kinds[static_cast<int>(memory.kind)] + " memory " +
           hexadecimal(memory.begin) + " (allocation " + std::to_string(memory.id) + ", " +
           std::to_string(memory.bytes) + " bytes): ";
}

std::string bytes_text(const RaceShadow &memory, const Range &range) {
    uint64_t from = range.begin - memory.begin, all = range.end() - memory.begin;
    std::string text = "bytes " + std::to_string(from) + " to " + std::to_string(all);
    if (!range.contiguous())
        text += " (" + std::to_string(range.rows) + " rows of " + std::to_string(range.bytes) +
                ", " + std::to_string(range.pitch) + " apart)";
    return text;
}

std::string access_text(const RaceShadow &memory, const Operation &operation, const Range &range,
                        RaceUse use) {
    static const char *const words[] = {" reads ", " writes ", " updates "};
    const char *does = operation.synchronizes ? " uses " : words[static_cast<int>(use)];
    return operation_text(operation) + does + bytes_text(memory, range);
}

} // namespace

std::string race_name(Function function) {
    return function == Function::Count ? "an operation" : info(function).symbol;
}

std::string race_name(const Operation &operation) {
    std::string name = race_name(operation.function);
    return operation.kernel ? name + " of kernel '" + *operation.kernel + "'" : name;
}

std::string race_of_operations(const RaceShadow &memory, const Operation &later, const Range &range,
                               RaceUse use, const RaceConflict &earlier) {
    return memory_text(memory) + access_text(memory, later, range, use) + ", and " +
           access_text(memory, *earlier.operation, earlier.range, earlier.use) +
           ": neither is ordered after the other";
}

std::string race_with_host_write(const RaceShadow &memory, const Operation &operation,
                                 const Range &range, RaceUse use) {
    return memory_text(memory) + "the host wrote there, and " +
           access_text(memory, operation, range, use) + ": the host did not wait for that";
}

std::string race_with_free(const RaceShadow &memory, Function free, uint64_t next_operation,
                           const RaceConflict &user) {
    return memory_text(memory) + race_name(free) + " frees it (the next operation would be " +
           std::to_string(next_operation) + "), and " +
           access_text(memory, *user.operation, user.range, user.use) +
           ": the host did not wait for that";
}

} // namespace soft
