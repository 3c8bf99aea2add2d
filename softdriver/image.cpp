#include "image.h"

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace soft {
namespace {

constexpr char elf_magic[] = "\x7f"
                             "ELF";
constexpr char linked_magic[] = "cudadrv linked PTX\n";

bool begins(const void *data, const char *magic) {
    return !std::strncmp(static_cast<const char *>(data), magic, std::strlen(magic));
}

uint64_t take_number(const char *&from) {
    uint64_t number;
    std::memcpy(&number, from, sizeof number);
    from += sizeof number;
    return number;
}

void put_number(std::string &to, uint64_t number) {
    to.append(reinterpret_cast<const char *>(&number), sizeof number);
}

void read_linked(const char *from, Image &image) {
    from += std::strlen(linked_magic);
    for (uint64_t count = take_number(from); count > 0; count--) {
        uint64_t length = take_number(from);
        image.texts.emplace_back(from, length);
        from += length;
    }
}

} // namespace

CUresult read_image(const void *data, Image &image) {
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    if (begins(data, elf_magic))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (begins(data, linked_magic))
        read_linked(static_cast<const char *>(data), image);
    else
        image.texts.emplace_back(static_cast<const char *>(data));
    return CUDA_SUCCESS;
}

CUresult read_image(const void *data, size_t bytes, Image &image) {
    std::string content(static_cast<const char *>(data), bytes);
    return read_image(content.c_str(), image);
}

std::string linked_image(const Image &image) {
    std::string linked = linked_magic;
    put_number(linked, image.texts.size());
    for (const std::string &text : image.texts) {
        put_number(linked, text.size());
        linked += text;
    }
    return linked;
}

CUresult read_file(const char *path, std::string &content) {
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    std::FILE *file = std::fopen(path, "rb");
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    char buffer[65536];
    while (size_t got = std::fread(buffer, 1, sizeof buffer, file))
        content.append(buffer, got);
    bool failed = std::ferror(file);
    std::fclose(file);
    return failed ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_SUCCESS;
}

} // namespace soft
