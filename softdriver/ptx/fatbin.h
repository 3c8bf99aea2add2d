#pragma once

#include <optional>
#include <string>
#include <string_view>

// Containers of code for several devices, as compilers make them ("fatbin"): binaries, which only
// a GPU can run, and texts of PTX.

namespace soft::ptx {

// The forms of code that a program may hand over, told apart by their first bytes.
enum class Form { Text, Cubin, Fatbin, FatbinWrapper };
// There must be a byte at least, and no more are read than belong to a form that has begun.
Form form_of(const void *data);
// With the length known: no byte behind it is read.
Form form_of(std::string_view data);

// The container as long as its header says, or what the wrapper around it points at; nothing if
// that is no container.
std::optional<std::string_view> fatbin_at(const void *data);

struct FatbinText {
    enum class Outcome { Found, NoneFits, Broken };

    Outcome outcome = Outcome::Broken;
    std::string text; // PTX, if found
    std::string why;  // else
};

// The text for the newest device that is not newer than this one: 75 is 7.5. Of those that are
// compressed, LZ4 can be read.
FatbinText text_of_fatbin(std::string_view container, int capability);

} // namespace soft::ptx
