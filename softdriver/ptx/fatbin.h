#pragma once

#include <optional>
#include <string>
#include <string_view>

// Fat binaries ("fatbin"): containers that compilers create, with code for several devices. The
// code is machine code, which only a GPU can run, or PTX.

namespace soft::ptx {

// The formats of code that a program can load. The first bytes of the code show its format.
enum class Form { Text, Cubin, Fatbin, FatbinWrapper };
// Returns the format of the code at an address. Reads byte by byte, and stops as soon as only one
// format is possible.
Form form_of(const void *data);
// Returns the format of code of known length.
Form form_of(std::string_view data);

// Returns the fatbin at an address, or the fatbin to which a wrapper at the address points. Its
// length is taken from its header. Returns nothing if there is no fatbin.
std::optional<std::string_view> fatbin_at(const void *data);

struct FatbinText {
    enum class Outcome { Found, NoneFits, Broken };

    Outcome outcome = Outcome::Broken;
    std::string text; // the PTX, if it was found
    std::string why;  // the reason, if it was not found
};

// Selects the PTX for the newest target that is not newer than `capability`, which is 75 for 7.5.
// The PTX may be compressed with LZ4 or with Zstandard.
FatbinText text_of_fatbin(std::string_view container, int capability);

} // namespace soft::ptx
