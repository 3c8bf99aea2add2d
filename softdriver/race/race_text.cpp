#include "race/race_text.h"

#include "race/race_order.h"

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

std::string place_of(const Operation &operation) {
    const RaceTrack &track = *operation.mark.track;
    return " on " + stream_of(track) + " (stream id " + std::to_string(track.id) + ", operation " +
           std::to_string(operation.number) + ")";
}

RaceText text_about(const RaceShadow &memory) {
    static const char *const kinds[] = {"device",  "stream-ordered", "page-locked",
                                        "managed", "registered",     "array"};
    RaceText text;
    text.memory =
        std::string(kinds[static_cast<int>(memory.kind)]) + " memory " + hexadecimal(memory.begin);
    text.measure =
        "allocation " + std::to_string(memory.id) + ", " + std::to_string(memory.bytes) + " bytes";
    text.address = memory.begin;
    return text;
}

std::string bytes_text(const RaceShadow &memory, const Range &range) {
    uint64_t from = range.begin - memory.begin, all = range.end() - memory.begin;
    std::string text = "bytes " + std::to_string(from) + " to " + std::to_string(all);
    if (!range.contiguous())
        text += " (" + std::to_string(range.rows) + " rows of " + std::to_string(range.bytes) +
                ", " + std::to_string(range.pitch) + " apart)";
    return text;
}

RaceText::Side side(const RaceShadow &memory, const Operation &operation, const Range &range,
                    RaceUse use) {
    static const char *const words[] = {"reads ", "writes ", "updates "};
    const char *does = operation.synchronizes ? "uses " : words[static_cast<int>(use)];
    return {race_name(operation), place_of(operation), does + bytes_text(memory, range),
            operation.label};
}

std::string told_side(const RaceText::Side &side, const std::string &name) {
    if (side.does.empty())
        return side.who;
    return name.empty() ? side.who + side.place + " " + side.does
                        : name + " (" + side.who + "), " + side.does;
}

} // namespace

std::string race_name(Function function) {
    return function == Function::Count ? "an operation" : info(function).symbol;
}

std::string race_name(const Operation &operation) {
    std::string name = race_name(operation.function);
    if (!operation.node.empty())
        name += " (" + operation.node + ")";
    if (operation.kernel)
        name += " of kernel '" + *operation.kernel + "'";
    return operation.is_early ? name + " before griddepcontrol.wait" : name;
}

std::string RaceText::told(const RaceNames &names) const {
    return "race on " +
           (names.memory.empty() ? memory + " (" + measure + ")"
                                 : names.memory + " (" + memory + ", " + measure + ")") +
           ": " + told_side(later, names.later) + ", and " + told_side(earlier, names.earlier) +
           ": " + verdict;
}

RaceText race_of_operations(const RaceShadow &memory, const Operation &later, const Range &range,
                            RaceUse use, const RaceConflict &earlier) {
    RaceText text = text_about(memory);
    text.later = side(memory, later, range, use);
    text.earlier = side(memory, *earlier.operation, earlier.range, earlier.use);
    text.verdict = "neither is ordered after the other";
    return text;
}

RaceText race_with_host_write(const RaceShadow &memory, const Operation &operation,
                              const Range &range, RaceUse use) {
    RaceText text = text_about(memory);
    text.later.who = "the host wrote there";
    text.earlier = side(memory, operation, range, use);
    text.verdict = "the host did not wait for that";
    return text;
}

RaceText race_with_free(const RaceShadow &memory, Function free, uint64_t next_operation,
                        const RaceConflict &user) {
    RaceText text = text_about(memory);
    text.later.who = race_name(free) + " frees it (the next operation would be " +
                     std::to_string(next_operation) + ")";
    text.earlier = side(memory, *user.operation, user.range, user.use);
    text.verdict = "the host did not wait for that";
    return text;
}

} // namespace soft
