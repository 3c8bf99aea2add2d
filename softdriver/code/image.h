#pragma once

#include "base/cuda_api.h"

#include <string>
#include <vector>

namespace soft {

// What a program hands over to be loaded: texts of PTX, more than one if it is the result of a
// link.
struct Image {
    std::vector<std::string> texts;
    unsigned max_registers = 0; // of a thread; 0: as many as it needs
};

// Of an image that says itself how long it is.
CUresult read_image(const void *data, Image &image);
// Of one whose length is known: a text need not end in a zero.
CUresult read_image(const void *data, size_t bytes, Image &image);
// The result of a link, in a form that only this driver knows.
std::string linked_image(const Image &image);
bool is_linked(const void *data, size_t bytes);
CUresult read_file(const char *path, std::string &content);

} // namespace soft
