#pragma once

#include <optional>
#include <string>
#include <string_view>

// Fat binaries ("fatbin"). These are containers, created by compilers, that have code for several
// devices: machine code, which only a GPU can run, and PTX.

namespace soft::ptx {

// The forms of code that a program can load. They differ in their first bytes.
enum class Form { Text, Cubin, Fatbin, FatbinWrapper };
// Returns the form of the code at an address. Reads at least one byte, and no more when only one
// form is possible.
Form form_of(const void *data);
// Returns the form of code of known length.
Form form_of(std::string_view data);

// Returns the container at an address, or the container to which a wrapper at this address points.
// The length is the one that the header of the container has. Returns nothing if there is no
// container.
std::optional<std::string_view> fatbin_at(const void *data);

struct FatbinText {
    enum class Outcome { Found, NoneFits, Broken };

    Outcome outcome = Outcome::Broken;
    std::string text; // the PTX, if it was found
    std::string why;  // the reason, if it was not found
};

// Selects the PTX for the newest device that is not newer than `capability` (75 is 7.5). Compressed
// PTX must use LZ4.
FatbinText text_of_fatbin(std::string_view container, int capability);

} // namespace soft::ptx
