#pragma once

#include "fuzz_texture_code.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace fuzz {

// A text that repeats `item`, in which # is a running number.
struct Growth {
    const char *before, *item, *after;
};

constexpr const char *head = ".version 8.0\n.target sm_75\n.address_size 64\n";

inline const Growth growths[] = {
    {"", ".global .b32 v#;\n", ""},
    {"", ".func f#;\n", ""},
    {".global .b8 x[] = {1", ", 2", "};"},
    {".global .b32 y; .global .u64 x[] = {1", ", y", "};"},
    {".entry e {", ".reg .b32 r#; mov.b32 r#, 1;\n", "}"},
    {".entry e { .reg .b32 %r<100000>;", "mov.b32 %r#, 1;\n", "}"},
    {".entry e {", "L#: bra L#;\n", "}"},
    {".entry e {", "bra L;\n", "L: }"},
    {".entry e {{{{{{{{", "bra L;\n", "}}}}}}}L: }"},
    {".entry e {", "{ .reg .b32 r; mov.b32 r, 1; }\n", "}"},
    {".entry e { .reg .b32 i; bra L; L: T: .branchtargets L", ", L", "; brx.idx i, T; }"},
    {".entry e { .reg .b32 i; T: .branchtargets L, L, L; L:", "brx.idx i, T;\n", "}"},
    {".func f {} .entry e {", "call f;\n", "}"},
    {".entry e { .reg .b32 i; mov.b32 i, 1", "+1", "; }"},
    {".entry e { .reg .b32 i; mov.b32 i, ", "(", ""},
    {".entry e {", "{", ""},
    {".entry e {", "foo bar;\n", "}"},
    {".func f0 {} ", ".entry e# { .shared .b32 s; .reg .b32 r; ld.shared.b32 r, [s]; call f0; }\n",
     ""},
    {".const .b32 c; .func f {} ",
     ".const .b32 c#; .entry e# { .reg .b32 r; ld.const.b32 r, [c#]; }\n", ""},
    {".entry e { .reg .b32 r;", "mov.b32 r, #;\n", "}"},
    {".func f; .func g; ", ".func f# { call f; call g; }",
     ".func f { call g; } .func g { call f; }"},
    {".entry e {", "mov a#, b#;\n", ""},
    {"", "/*", ""},
    {"", "\"", ""},
    {"", "// x\n", ""},
    {"", "\n", ""},
    {".entry e ", "(", ""},
    {".entry e (.param .b32 a", ", .param .b32 b#", ") { }"},
    {".section x {", "{", ""},
    {".version 8.0 ", ".", ""},
    {".entry e { mov.b32 r, ", "-", ""},
    {".entry e { mov.b32 r, ", "1?", ""},
};

// Functions, each of which calls the two before it.
inline std::string called_twice(size_t times) {
    std::string text = std::string(head) + ".func f0 { .local .b32 x; }\n.func f1 { call f0; }\n";
    for (size_t i = 2; i < times; i++)
        text += ".func f" + std::to_string(i) + " { call f" + std::to_string(i - 1) + "; call f" +
                std::to_string(i - 2) + "; }\n";
    return text + ".entry e { call f" + std::to_string(times - 1) + "; }\n";
}

inline std::string grown(const Growth &growth, size_t times) {
    std::string text = std::string(head) + growth.before, item = growth.item;
    for (size_t i = 0; i < times; i++)
        for (char c : item)
            text += c == '#' ? std::to_string(i) : std::string(1, c);
    return text + growth.after;
}

class Mutator {
  public:
    Mutator(uint64_t seed, std::vector<std::string> corpus)
        : random_(seed), corpus_(std::move(corpus)) {
        for (const std::string &text : corpus_)
            for (const std::string &each : tokens_of(text))
                words_.push_back(each);
    }

    std::string text() {
        std::string text = corpus_[below(corpus_.size())];
        if (below(4) == 0) {
            std::string other = corpus_[below(corpus_.size())];
            text = text.substr(0, below(text.size() + 1)) + other.substr(below(other.size() + 1));
        }
        return mutated(text);
    }

    // A kernel that uses textures and surfaces. Half of these kernels are mutated.
    std::string textures() {
        TextureCode code([this](uint64_t limit) { return below(limit); });
        std::string body;
        for (size_t i = 1 + below(8); i > 0; i--) {
            bool surface = below(2);
            size_t count =
                surface ? TextureCode::surface_geometries : TextureCode::texture_geometries;
            size_t geometry = below(count);
            code.integers = !surface && geometry == 0 && below(2);
            body +=
                handle(surface, geometry, code.integers) +
                (surface ? code.surface_instruction(geometry) : code.texture_instruction(geometry));
        }
        std::string text = TextureCode::kernel(body);
        return below(2) ? text : mutated(text);
    }

    std::string fatbin() {
        std::string entries;
        for (size_t i = below(4); i > 0; i--)
            entries += entry();
        std::string container = number(0xBA55ED50, 4) + number(1, 2) + number(16, 2) +
                                number(entries.size(), 8) + entries;
        for (size_t i = below(3); i > 0; i--)
            container = with_bytes(container);
        return container;
    }

  private:
    size_t below(size_t limit) { return limit ? random_() % limit : 0; }

    std::string mutated(std::string text) {
        for (size_t i = 1 + below(3); i > 0; i--)
            text = below(3) ? with_tokens(text) : with_bytes(text);
        return text;
    }

    // Sets the register of the handle to that of a texture or surface which fits (nearly always).
    // The last three bits of a handle are the shape, as in enum Texture::Shape.
    std::string handle(bool surface, size_t geometry, bool integers) {
        size_t shape = integers ? 0 : geometry + 1;
        if (surface && geometry == 4) // the faces of cubes are layers
            shape = 5 + below(3);
        uint64_t number = below(50) ? shape + 8 * below(8) : below(80);
        return (surface ? "mov.u64 %rd2, " : "mov.u64 %rd1, ") + std::to_string(number) + ";\n";
    }

    static bool is_word(char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
    }

    // Splits a text into words and single other characters.
    static std::vector<std::string> tokens_of(const std::string &text) {
        std::vector<std::string> tokens;
        for (size_t i = 0, end; i < text.size(); i = end) {
            for (end = i + 1; end < text.size() && is_word(text[i]) && is_word(text[end]); end++)
                continue;
            tokens.push_back(text.substr(i, end - i));
        }
        return tokens;
    }

    std::string extreme() {
        static const char *const extremes[] = {"0",
                                               "1",
                                               "-1",
                                               "4294967295",
                                               "4294967296",
                                               "9223372036854775807",
                                               "-9223372036854775808",
                                               "18446744073709551615",
                                               "18446744073709551616",
                                               "0xFFFFFFFFFFFFFFFFU",
                                               "0f7F800000",
                                               "0d7FF0000000000000",
                                               "1e999",
                                               "08",
                                               "0x",
                                               "0b2",
                                               "1.",
                                               ".5",
                                               "(1<<63)",
                                               "(1/0)",
                                               "((-9223372036854775807-1)/-1)",
                                               "(1<<64)",
                                               "WARP_SZ",
                                               "{",
                                               "}",
                                               "_",
                                               "|",
                                               "...",
                                               "%tid.x",
                                               "/*",
                                               "*/",
                                               "\"",
                                               ".align",
                                               "[",
                                               "]",
                                               "<",
                                               "call",
                                               ".branchtargets",
                                               "generic(",
                                               "9999999999"};
        return extremes[below(sizeof extremes / sizeof *extremes)];
    }

    std::string with_tokens(const std::string &text) {
        std::vector<std::string> tokens = tokens_of(text);
        if (tokens.empty())
            return text;
        const size_t at = below(tokens.size()), other = below(tokens.size());
        const size_t count = std::min(1 + below(below(4) ? 3 : 60), tokens.size() - at);
        auto from = tokens.begin() + long(at);
        std::vector<std::string> some(from, from + long(count));
        switch (below(6)) {
        case 0:
            tokens.erase(from, from + long(count));
            break;
        case 1:
            tokens.insert(tokens.begin() + long(other), some.begin(), some.end());
            break;
        case 2:
            std::swap(tokens[at], tokens[other]);
            break;
        case 3:
            tokens[at] = extreme();
            break;
        case 4:
            tokens[at] = words_[below(words_.size())];
            break;
        default:
            number_in(tokens, at) = extreme();
        }
        std::string result;
        for (const std::string &token : tokens)
            result += token;
        return result;
    }

    // The first number at or after a token.
    static std::string &number_in(std::vector<std::string> &tokens, size_t at) {
        while (at + 1 < tokens.size() && !std::isdigit(static_cast<unsigned char>(tokens[at][0])))
            at++;
        return tokens[at];
    }

    std::string with_bytes(std::string text) {
        if (text.empty())
            return text;
        const size_t at = below(text.size());
        switch (below(4)) {
        case 0:
            text[at] = char(text[at] ^ (1 << below(8)));
            break;
        case 1:
            text[at] = char(random_());
            break;
        case 2:
            text.insert(at, 1, char(random_()));
            break;
        default:
            text.resize(at);
        }
        return text;
    }

    static std::string number(uint64_t value, size_t bytes) {
        std::string text;
        for (size_t i = 0; i < bytes; i++)
            text += char(value >> (8 * i));
        return text;
    }

    // A block of literals and matches, which may be wrong.
    std::string compressed(const std::string &text) {
        std::string block;
        for (size_t i = 0; i < text.size();) {
            size_t count = std::min(below(40), text.size() - i);
            bool last = i + count == text.size();
            size_t match = last ? 0 : below(20);
            block += char(std::min<size_t>(count, 15) << 4 | std::min<size_t>(match, 15));
            if (count >= 15)
                block += char(count - 15);
            block += text.substr(i, count);
            i += count;
            if (last)
                break;
            block += number(1 + below(below(8) ? std::max<size_t>(i, 1) : 65536), 2);
            if (match >= 15)
                block += char(match - 15);
            i += match + 4;
        }
        return block;
    }

    std::string entry() {
        std::string text = this->text().substr(0, 400);
        const size_t bytes = text.size();
        uint64_t flags = 0;
        uint64_t packed = 0;
        if (below(2)) {
            flags = below(8) ? 0x2000 : uint64_t{1} << below(64);
            text = compressed(text);
            packed = text.size();
        }
        text.resize((text.size() + 7) & ~size_t{7});
        const size_t header = below(4) ? 64 : 80;
        std::string entry = number(below(4) ? 1 : 2, 2) + number(0x101, 2) + number(header, 4) +
                            number(text.size(), 8) + number(packed, 4) + number(0, 4) +
                            number(0x90000, 4) + number(70 + below(30), 4) + number(0, 8) +
                            number(flags, 8) + number(0, 8) + number(bytes, 8);
        entry.resize(header);
        return entry + text;
    }

    std::mt19937_64 random_;
    std::vector<std::string> corpus_, words_;
};

} // namespace fuzz
