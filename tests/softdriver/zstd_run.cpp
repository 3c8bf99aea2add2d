// zstd_run FILE MOST          prints the text that the file decompresses to, at most MOST bytes
// zstd_run FILE MOST CHANGES  decompresses the file with random changes; checks sizes and times
//
// Tests the decompression of Zstandard. It is compiled with a sanitizer.

#include "ptx/zstd.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>

namespace {

constexpr double seconds_at_most = 2; // with a sanitizer, for the texts of these tests

std::mt19937_64 numbers(1);

size_t below(size_t limit) { return numbers() % limit; }

// Decompresses a copy without any accessible byte after its end.
std::optional<std::string> decompress(const std::string &frames, size_t most) {
    std::unique_ptr<char[]> copy(new char[frames.size()]);
    frames.copy(copy.get(), frames.size());
    return soft::ptx::decompress_zstd({copy.get(), frames.size()}, most);
}

std::string changed(std::string frames) {
    for (size_t count = 1 + below(3); count > 0 && !frames.empty(); count--) {
        size_t at = below(below(2) ? frames.size() : std::min<size_t>(frames.size(), 40));
        switch (below(5)) {
        case 0:
            frames.resize(at);
            break;
        case 1:
            frames.erase(at, 1);
            break;
        case 2:
            frames.insert(at, 1, char(numbers()));
            break;
        default:
            frames[at] = char(numbers());
        }
    }
    return frames;
}

bool try_changes(const std::string &frames, size_t most, size_t count) {
    size_t right = 0;
    for (size_t i = 0; i < count; i++) {
        std::string input = changed(frames);
        std::clock_t begin = std::clock();
        auto text = decompress(input, most);
        double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
        if (seconds > seconds_at_most || (text && text->size() > most)) {
            std::ofstream("zstd_run.input", std::ios::binary) << input;
            std::fprintf(stderr, "too long, or more text than allowed: see zstd_run.input\n");
            return false;
        }
        right += bool(text);
    }
    std::printf("%zu of %zu were right", right, count);
    return true;
}

} // namespace

int main(int count, char **arguments) {
    if (count < 3) {
        std::fprintf(stderr, "zstd_run FILE MOST [CHANGES]\n");
        return 2;
    }
    std::ifstream file(arguments[1], std::ios::binary);
    std::string frames{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    size_t most = std::strtoull(arguments[2], nullptr, 10);
    if (count > 3)
        return try_changes(frames, most, std::strtoull(arguments[3], nullptr, 10)) ? 0 : 2;
    auto text = decompress(frames, most);
    if (!text)
        return 1;
    std::fwrite(text->data(), 1, text->size(), stdout);
    return 0;
}
