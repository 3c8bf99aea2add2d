#pragma once

#include <optional>
#include <string>
#include <string_view>

// Fat binaries ("fatbin"): containers that compilers create, with code for several devices: machine
// code, which only a GPU can run, and PTX.

namespace soft::ptx {

// The forms of code that a program can load. Their first bytes differ.
enum class Form { Text, Cubin, Fatbin, FatbinWrapper };
// The form of the code at an address. Reads at least one byte, and stops reading at the first byte
// with which no other form is possible.
Form form_of(const void *data);
// The same for data of known length.
Form form_of(std::string_view data);

// The container at an address, or the one to which a wrapper points, with the length that its
// header has; nothing if there is no container.
std::optional<std::string_view> fatbin_at(const void *data);

struct FatbinText {
    enum class Outcome { Found, NoneFits, Broken };

    Outcome outcome = Outcome::Broken;
    std::string text; // the PTX, if found
    std::string why;  // why not, otherwise
};

// Selects the PTX for the newest device that is not newer than this one (75 is 7.5). Compressed
// entries must use LZ4.
FatbinText text_of_fatbin(std::string_view container, int capability);

} // namespace soft::ptx
