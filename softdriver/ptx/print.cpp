#include "ptx/access.h"
#include "ptx/families.h"
#include "ptx/observer.h"
#include "ptx/provided.h"

#include <cstdio>
#include <cstring>

// This file implements the functions that the driver provides to kernels: vprintf, __assertfail and
// cudaGraphSetConditional.

namespace soft::ptx {

namespace {

constexpr size_t longest_string = 4096; // limit of each string that a kernel prints, in bytes

// Reads a string from device memory. If the memory is not readable, ends the launch and returns
// false.
bool read_text(const Access &access, unsigned lane, uint64_t address, std::string &text) {
    for (; text.size() < longest_string; address++) {
        const char *byte = access.reach_or_fail(lane, address, 1);
        if (!byte)
            return false;
        if (!*byte)
            return true;
        text += *byte;
    }
    return true;
}

// Tells the checks inside kernels what vprintf reads.
void note_printed(const Access &access, unsigned lane, uint64_t address, size_t bytes) {
    Space space = narrow_generic(address);
    if (Observer *observer = access.warp.machine.observer.get())
        observer->prints(access.warp, access.step, lane, space, address, bytes);
}

// Reads the arguments of vprintf, which are aligned to their sizes.
struct Arguments {
    const Access &access;
    unsigned lane;
    uint64_t next;

    template <class T> bool take(T &value) {
        next = (next + sizeof value - 1) / sizeof value * sizeof value;
        const char *bytes = access.reach_or_fail(lane, next, sizeof value);
        if (bytes) {
            memcpy(&value, bytes, sizeof value);
            note_printed(access, lane, next, sizeof value);
        }
        next += sizeof value;
        return bytes;
    }
};

// Formats one value. `form` is a single conversion, such as "%-8.3f".
template <class T> void append(std::string &out, const std::string &form, T value) {
    char small[64];
    int length = snprintf(small, sizeof small, form.c_str(), value);
    if (length < int(sizeof small)) {
        out.append(small, size_t(length < 0 ? 0 : length));
        return;
    }
    std::string large(size_t(length) + 1, ' ');
    snprintf(large.data(), large.size(), form.c_str(), value);
    out.append(large, 0, size_t(length));
}

template <class Long, class Short>
bool append_integer(std::string &out, std::string form, char letter, bool is_long,
                    Arguments &arguments) {
    form += "ll";
    form += letter;
    Long number = 0;
    Short narrow = 0;
    if (!(is_long ? arguments.take(number) : arguments.take(narrow)))
        return false;
    append(out, form, is_long ? number : Long(narrow));
    return true;
}

bool append_text(std::string &out, std::string form, Arguments &arguments) {
    uint64_t address;
    std::string text;
    if (!arguments.take(address))
        return false;
    if (address == 0)
        text = "(null)";
    else if (!read_text(arguments.access, arguments.lane, address, text))
        return false;
    else
        note_printed(arguments.access, arguments.lane, address, text.size() + 1);
    append(out, form + "s", text.c_str());
    return true;
}

// Formats the next argument. The conversion consists of `form` (flags, width and precision), `size`
// (length modifier) and `letter`. Returns false if the argument cannot be read.
bool convert(std::string &out, const std::string &form, char letter, const std::string &size,
             Arguments &arguments) {
    bool is_long = size == "l" || size == "ll" || size == "j" || size == "z" || size == "t";
    double number;
    switch (letter) {
    case 'd':
    case 'i':
        return append_integer<long long, int>(out, form, letter, is_long, arguments);
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        return append_integer<unsigned long long, unsigned>(out, form, letter, is_long, arguments);
    case 'c': {
        int character;
        if (!arguments.take(character))
            return false;
        append(out, form + "c", character);
        return true;
    }
    case 'p': {
        uint64_t pointer;
        if (!arguments.take(pointer))
            return false;
        append(out, form + "p", reinterpret_cast<void *>(pointer));
        return true;
    }
    case 's':
        return append_text(out, form, arguments);
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
        if (!arguments.take(number))
            return false;
        append(out, form + letter, number);
        return true;
    default: // not a conversion, so copy the text
        out += form + size + letter;
        return true;
    }
}

bool format(std::string &out, const std::string &text, Arguments &arguments) {
    for (size_t i = 0; i < text.size();) {
        if (text[i] != '%' || i + 1 == text.size()) {
            out += text[i++];
            continue;
        }
        if (text[i + 1] == '%') {
            out += '%';
            i += 2;
            continue;
        }
        std::string form = "%", size;
        for (i++; i < text.size() && strchr("-+ #0123456789.*", text[i]) && form.size() < 32; i++) {
            int width = 0;
            if (text[i] == '*' && !arguments.take(width))
                return false;
            form += text[i] == '*' ? std::to_string(width % 10000) : std::string(1, text[i]);
        }
        while (i < text.size() && strchr("hlLqjzt", text[i]) && size.size() < 2)
            size += text[i++];
        if (i < text.size() && !convert(out, form, text[i++], size, arguments))
            return false;
    }
    return true;
}

// The handler of vprintf. rows[0] receives the result, rows[1] has the addresses of the formats,
// and rows[2] those of the arguments.
void print(Warp &warp, const Step &step) {
    Access access{warp, step, Space::Generic, Use::Read};
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        std::string text, out;
        Arguments arguments{access, lane, warp.row<uint64_t>(step.rows[2])[lane]};
        if (!read_text(access, lane, warp.row<uint64_t>(step.rows[1])[lane], text) ||
            !format(out, text, arguments))
            return;
        if (warp.machine.launch.print)
            warp.machine.launch.print(out);
        int32_t count = 0; // vprintf returns the number of conversions, as on a GPU
        for (size_t i = 0; i < text.size(); i++)
            count += text[i] == '%';
        warp.row<int32_t>(step.rows[0])[lane] = count;
    }
}

// The handler of __assertfail. Its rows, from rows[1] on, have the message, the file, the line and
// the function.
void assertion(Warp &warp, const Step &step) {
    Access access{warp, step, Space::Generic, Use::Read};
    unsigned lane = warp.lane_of_fault(), index[3];
    std::string texts[3];
    for (int i : {0, 1, 2})
        if (!read_text(access, lane, warp.row<uint64_t>(step.rows[i == 2 ? 4 : i + 1])[lane],
                       texts[i]))
            return;
    warp.machine.thread_index(warp, lane, index);
    std::string line = std::to_string(warp.row<uint32_t>(step.rows[3])[lane]);
    const unsigned *block = warp.block.index;
    char place[128];
    snprintf(place, sizeof place, "block: [%u,%u,%u], thread: [%u,%u,%u]", block[0], block[1],
             block[2], index[0], index[1], index[2]);
    if (warp.machine.launch.print)
        warp.machine.launch.print(texts[1] + ":" + line + ": " + texts[2] + ": " + place +
                                  " Assertion `" + texts[0] + "` failed.\n");
    warp.machine.fail(warp, step, lane, CUDA_ERROR_ASSERT,
                      "assertion `" + texts[0] + "` failed (" + texts[1] + ":" + line + ")");
}

// The handler of cudaGraphSetConditional. Its rows have the handle and the value.
void set_condition(Warp &warp, const Step &step) {
    for (uint32_t left = warp.active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        uint64_t handle = warp.row<uint64_t>(step.rows[0])[lane];
        if (warp.machine.launch.set_condition &&
            !warp.machine.launch.set_condition(handle, warp.row<uint32_t>(step.rows[1])[lane]))
            return warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_ADDRESS,
                                     "there is no condition " + std::to_string(handle));
    }
}

} // namespace

bool is_provided(const std::string &name) {
    for (const char *provided :
         {"vprintf", "__assertfail", "cudaGraphSetConditional", "malloc", "free"})
        if (name == provided)
            return true;
    return false;
}

void decode_provided_call(Decoder &decoder, const Function &function, const Operand *results,
                          const Operand *arguments) {
    size_t count = arguments ? arguments->parts.size() : 0;
    size_t result_count = results ? results->parts.size() : 0;
    // Some compilers declare vprintf without a result.
    const Operand *result =
        function.name == "vprintf" && result_count == 1 ? &results->parts[0] : nullptr;
    auto argument = [&](size_t n, size_t bytes) {
        return provided_argument(decoder, arguments->parts[n], bytes);
    };
    if (function.name == "vprintf" && count == 2 && result_count <= 1) {
        decoder.step.rows[0] = provided_result(decoder, result, 4);
        decoder.step.rows[1] = argument(0, 8);
        decoder.step.rows[2] = argument(1, 8);
    } else if (function.name == "__assertfail" && count == 5) {
        for (size_t i = 0; i < 4; i++)
            decoder.step.rows[i + 1] = argument(i, i == 2 ? 4 : 8);
    } else if (function.name == "cudaGraphSetConditional" && count == 2) {
        decoder.step.rows[0] = argument(0, 8);
        decoder.step.rows[1] = argument(1, 4);
    } else if (decode_heap_call(decoder, function.name, results, arguments))
        return;
    else if (decoder.decoding().is_part)
        return decoder.emit([](Warp &, const Step &) {}); // the code of a part never runs
    else
        decoder.refuse("function '" + function.name + "' is not defined");
    decoder.code().communicates = true;
    decoder.step.site = decoder.decoding().library.sites++;
    decoder.emit(function.name == "vprintf"        ? print
                 : function.name == "__assertfail" ? assertion
                                                   : set_condition);
    emit_result(decoder, result, 4);
}

} // namespace soft::ptx
