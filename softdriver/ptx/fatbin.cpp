#include "ptx/fatbin.h"

#include "ptx/lz4.h"
#include "ptx/zstd.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace soft::ptx {

namespace {

constexpr uint32_t container_magic = 0xBA55ED50;
constexpr size_t largest_container = size_t{1} << 40;
constexpr size_t longest_text = size_t{1} << 30;
constexpr size_t most_names = 8; // of devices, in a message
constexpr uint16_t ptx_kind = 1;
constexpr uint64_t compressed_lz4 = 0x2000, compressed_zstd = 0x8000, compressed_otherwise = 0x1000;
// Flags of entries that run on one device only (such as sm_90a) or on one family (such as sm_100f).
constexpr uint64_t for_one_device = 0x100000, for_one_family = 0x200000;

struct Container {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes; // size of the data after the header
};

struct Wrapper {
    uint32_t magic;
    uint32_t version;
    const void *container;
};

struct Entry {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t bytes;            // size of the data after the header
    uint32_t compressed_bytes; // size of the compressed text without padding
    uint32_t options;
    uint32_t code_version;
    uint32_t capability;
    uint32_t name, name_bytes;
    uint64_t flags;
    uint64_t unused;
    uint64_t text_bytes; // size of the text after decompression
};
static_assert(sizeof(Container) == 16 && sizeof(Entry) == 64, "as the format lays them out");

template <class Header> bool read_header(std::string_view from, Header &header) {
    if (from.size() < sizeof header)
        return false;
    std::memcpy(&header, from.data(), sizeof header);
    return true;
}

struct Candidate {
    Entry entry;
    std::string_view payload;
};

bool fits(const Entry &entry, int capability) {
    int made_for = int(std::min<uint32_t>(entry.capability, 100000));
    if (entry.flags & for_one_device)
        return made_for == capability;
    if (entry.flags & for_one_family)
        return made_for / 10 == capability / 10 && made_for <= capability;
    return made_for <= capability;
}

// Collects the entries. Returns false if an entry is longer than the rest of the container.
bool read_entries(std::string_view rest, std::vector<Candidate> &texts,
                  std::vector<Candidate> &binaries) {
    while (!rest.empty()) {
        Candidate candidate;
        Entry &entry = candidate.entry;
        if (!read_header(rest, entry) || entry.header_bytes < sizeof entry ||
            entry.header_bytes > rest.size())
            return false;
        rest.remove_prefix(entry.header_bytes);
        if (entry.bytes > rest.size() || entry.compressed_bytes > entry.bytes)
            return false;
        candidate.payload = rest.substr(0, entry.bytes);
        rest.remove_prefix(entry.bytes);
        (entry.kind == ptx_kind ? texts : binaries).push_back(candidate);
    }
    return true;
}

FatbinText failed(FatbinText::Outcome outcome, std::string why) {
    return {outcome, std::string(), std::move(why)};
}

FatbinText text_of(const Candidate &candidate) {
    const Entry &entry = candidate.entry;
    FatbinText found;
    found.outcome = FatbinText::Outcome::Found;
    if (!(entry.flags & (compressed_lz4 | compressed_zstd))) {
        found.text = candidate.payload;
        return found;
    }
    if (entry.text_bytes > longest_text)
        return failed(FatbinText::Outcome::Broken, "a text in the fatbin is too long");
    auto decompress = entry.flags & compressed_zstd ? decompress_zstd : decompress_lz4;
    auto text = decompress(candidate.payload.substr(0, entry.compressed_bytes), entry.text_bytes);
    if (!text || text->size() != entry.text_bytes)
        return failed(FatbinText::Outcome::Broken, "a compressed text in the fatbin is broken");
    found.text = std::move(*text);
    return found;
}

std::string device_name(const Entry &entry) {
    return "sm_" + std::to_string(entry.capability) +
           (entry.flags & for_one_device   ? "a"
            : entry.flags & for_one_family ? "f"
                                           : "");
}

// The devices for which the entries are made, such as "sm_75, sm_90a": each once, and at most
// `most_names` of them.
std::string device_names(const std::vector<Candidate> &entries) {
    std::vector<std::string> names;
    for (const Candidate &each : entries) {
        std::string name = device_name(each.entry);
        if (std::find(names.begin(), names.end(), name) != names.end())
            continue;
        bool enough = names.size() == most_names;
        names.push_back(enough ? "..." : std::move(name));
        if (enough)
            break;
    }
    std::string all;
    for (const std::string &name : names)
        all += (all.empty() ? "" : ", ") + name;
    return all;
}

std::string why_none_fits(const std::vector<Candidate> &texts,
                          const std::vector<Candidate> &binaries, int capability) {
    std::string number = std::to_string(capability);
    if (!texts.empty())
        return "the fatbin has no PTX for sm_" + number + " or an older device, only for " +
               device_names(texts);
    return (binaries.empty() ? "the fatbin is empty"
                             : "the fatbin has only machine code (" + device_names(binaries) +
                                   "), and only PTX can run here") +
           (": add PTX, for example by nvcc -gencode=arch=compute_" + number + ",code=compute_" +
            number);
}

} // namespace

Form form_of(const void *data) {
    // Compare byte by byte, and stop at the first difference: PTX text may end after any byte.
    static const struct {
        unsigned char magic[4];
        Form form;
    } forms[] = {{{0x7f, 'E', 'L', 'F'}, Form::Cubin},
                 {{0x50, 0xed, 0x55, 0xba}, Form::Fatbin},
                 {{0xb1, 0x43, 0x62, 0x46}, Form::FatbinWrapper}};
    auto *bytes = static_cast<const unsigned char *>(data);
    for (const auto &known : forms) {
        size_t same = 0; // memcmp() might read all four bytes at once
        while (same < sizeof known.magic && bytes[same] == known.magic[same])
            same++;
        if (same == sizeof known.magic)
            return known.form;
    }
    return Form::Text;
}

Form form_of(std::string_view data) {
    std::string start(data.substr(0, sizeof(uint32_t)));
    return form_of(static_cast<const void *>(start.c_str()));
}

std::optional<std::string_view> fatbin_at(const void *data) {
    Form form = form_of(data);
    if (form == Form::FatbinWrapper) {
        Wrapper wrapper;
        std::memcpy(&wrapper, data, sizeof wrapper);
        data = wrapper.container;
        if (!data || form_of(data) != Form::Fatbin)
            return std::nullopt;
    } else if (form != Form::Fatbin) {
        return std::nullopt;
    }
    Container container;
    std::memcpy(&container, data, sizeof container);
    if (container.bytes > largest_container)
        return std::nullopt;
    return std::string_view(static_cast<const char *>(data),
                            container.header_bytes + size_t(container.bytes));
}

FatbinText text_of_fatbin(std::string_view data, int capability) {
    Container container;
    std::vector<Candidate> texts, binaries;
    if (!read_header(data, container) || container.magic != container_magic ||
        container.header_bytes < sizeof container || container.header_bytes > data.size() ||
        container.bytes > data.size() - container.header_bytes)
        return failed(FatbinText::Outcome::Broken, "the fatbin's header is broken");
    if (!read_entries(data.substr(container.header_bytes, container.bytes), texts, binaries))
        return failed(FatbinText::Outcome::Broken, "an entry of the fatbin is broken");
    const Candidate *best = nullptr;
    bool unreadable = false;
    for (const Candidate &each : texts) {
        if (!fits(each.entry, capability))
            continue;
        if (each.entry.flags & compressed_otherwise)
            unreadable = true;
        else if (!best || best->entry.capability < each.entry.capability)
            best = &each;
    }
    if (best)
        return text_of(*best);
    return failed(FatbinText::Outcome::NoneFits,
                  unreadable ? "the PTX in the fatbin is compressed in a way that this driver does "
                               "not know: compile with --no-compress"
                             : why_none_fits(texts, binaries, capability));
}

} // namespace soft::ptx
