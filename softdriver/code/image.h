#pragma once

#include "base/cuda_api.h"

#include <string>
#include <vector>

namespace soft {

// The PTX texts of an image that a program loads; the result of a link has more than one.
struct Image {
    std::vector<std::string> texts;
    unsigned max_registers = 0; // limit of registers per thread; 0 means no limit
};

// Reads an image of unknown length. The header of a binary image has the length; PTX text ends in a
// zero byte.
CUresult read_image(const void *data, Image &image);
// Reads an image of known length; PTX text need not end in a zero byte.
CUresult read_image(const void *data, size_t bytes, Image &image);
// Returns the image of a finished link, in a format that only this driver reads.
std::string linked_image(const Image &image);
bool is_linked(const void *data, size_t bytes);
CUresult read_file(const char *path, std::string &content);

} // namespace soft
