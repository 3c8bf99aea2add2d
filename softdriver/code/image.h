#pragma once

#include "base/cuda_api.h"

#include <string>
#include <vector>

namespace soft {

// The PTX texts of an image that a program loads. The result of a link can have several texts.
struct Image {
    std::vector<std::string> texts;
    // The names of the inputs of a link, one for each text; else empty.
    std::vector<std::string> names;
    unsigned max_registers = 0; // limit of registers per thread that the link had; 0 means no limit
};

// Reads an image of unknown length. A binary image has its length in its header, and PTX text ends
// with a zero byte.
CUresult read_image(const void *data, Image &image);
// Reads an image of known length. PTX text need not end with a zero byte.
CUresult read_image(const void *data, size_t bytes, Image &image);
// Returns the result of a link as an image, in a format that only this driver can load.
std::string linked_image(const Image &image);
// Returns true if this driver's linker or its libnvrtc has made the image in place of machine code.
bool is_for_machine_code(const void *data, size_t bytes);
CUresult read_file(const char *path, std::string &content);

} // namespace soft
