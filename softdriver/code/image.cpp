#include "code/image.h"

#include "base/notes.h"
#include "device/device_attributes.h"
#include "ptx/fatbin.h"

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace soft {
namespace {

constexpr char linked_magic[] = "cudadrv linked PTX\n";
constexpr char nvrtc_mark[] = "/* cudadrv: PTX in place of a cubin */ "; // as in nvrtc.c

bool begins(const void *data, const char *magic) {
    return !std::strncmp(static_cast<const char *>(data), magic, std::strlen(magic));
}

bool begins_within(const void *data, size_t bytes, const char *magic) {
    return bytes >= std::strlen(magic) && begins(data, magic);
}

// Returns true if the text begins with the directive .version. PTX allows only white space and
// comments before it.
bool is_ptx(const char *text) {
    for (;;) {
        text += std::strspn(text, " \t\r\n\v\f");
        if (begins(text, "//"))
            text += std::strcspn(text, "\n");
        else if (const char *end = begins(text, "/*") ? std::strstr(text + 2, "*/") : nullptr)
            text = end + 2;
        else
            return begins(text, ".version");
    }
}

// Returns true if the machine number in the header of an ELF file is that of NVIDIA GPUs.
bool for_a_gpu(const void *data) {
    constexpr size_t place = 18;
    constexpr uint16_t gpu = 190;
    uint16_t machine;
    std::memcpy(&machine, static_cast<const char *>(data) + place, sizeof machine);
    return machine == gpu;
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
    image.max_registers = static_cast<unsigned>(take_number(from));
    for (uint64_t count = take_number(from); count > 0; count--) {
        uint64_t length = take_number(from);
        image.texts.emplace_back(from, length);
        from += length;
    }
}

CUresult read_fatbin(std::optional<std::string_view> container, Image &image) {
    if (!container) {
        note(Note::RefusedImage, "the fatbin's header is broken");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    ptx::FatbinText found = ptx::text_of_fatbin(*container, device_capability());
    switch (found.outcome) {
    case ptx::FatbinText::Outcome::Found:
        image.texts.push_back(std::move(found.text));
        return CUDA_SUCCESS;
    case ptx::FatbinText::Outcome::NoneFits:
        note(Note::RefusedImage, found.why);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    default:
        note(Note::RefusedImage, found.why);
        return CUDA_ERROR_INVALID_IMAGE;
    }
}

} // namespace

CUresult read_image(const void *data, Image &image) {
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    if (begins(data, linked_magic)) {
        read_linked(static_cast<const char *>(data), image);
        return CUDA_SUCCESS;
    }
    switch (ptx::form_of(data)) {
    case ptx::Form::Cubin:
        if (!for_a_gpu(data)) {
            note(Note::RefusedImage, "an ELF file that is not for a GPU");
            return CUDA_ERROR_INVALID_IMAGE;
        }
        note(Note::RefusedImage,
             "a cubin: it has machine code of a GPU, and only PTX can run here");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case ptx::Form::Fatbin:
    case ptx::Form::FatbinWrapper:
        return read_fatbin(ptx::fatbin_at(data), image);
    default:
        if (!is_ptx(static_cast<const char *>(data))) {
            note(Note::RefusedImage,
                 "neither PTX, which begins with .version, nor a fatbin or a cubin");
            return CUDA_ERROR_INVALID_IMAGE;
        }
        image.texts.emplace_back(static_cast<const char *>(data));
        return CUDA_SUCCESS;
    }
}

CUresult read_image(const void *data, size_t bytes, Image &image) {
    if (begins_within(data, bytes, linked_magic)) {
        read_linked(static_cast<const char *>(data), image);
        return CUDA_SUCCESS;
    }
    std::string_view content(static_cast<const char *>(data), bytes);
    if (ptx::form_of(content) == ptx::Form::Fatbin)
        return read_fatbin(content, image);
    // Copy the PTX text, because a text of known length may lack a zero byte at the end.
    return read_image(std::string(content).c_str(), image);
}

std::string linked_image(const Image &image) {
    std::string linked = linked_magic;
    put_number(linked, image.max_registers);
    put_number(linked, image.texts.size());
    for (const std::string &text : image.texts) {
        put_number(linked, text.size());
        linked += text;
    }
    return linked;
}

bool is_for_machine_code(const void *data, size_t bytes) {
    return begins_within(data, bytes, linked_magic) || begins_within(data, bytes, nvrtc_mark);
}

CUresult read_file(const char *path, std::string &content) {
    if (!path || !*path)
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
