// Runs a kernel of a PTX text. The kernel's only parameter is the address of an array of 32-bit
// words:
//     ptx_run FILE KERNEL BLOCKS THREADS WORDS [SHARED [SLICE [SEED [BUDGET [HOST_THREADS]]]]]
// Prints the words, or the error, which bytes of the array were accessed, and how many instructions
// were executed.

#include "ptx/run.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

using namespace soft::ptx;

namespace {

constexpr uintptr_t address = 0x700000000000;

void print(const char *what, const std::vector<Accessed> &ranges) {
    printf("%s", what);
    for (const Accessed &range : ranges)
        printf(" %zu+%zu", size_t(range.begin - address), range.bytes);
    printf("\n");
}

Launch launch_of(char **values, int count, const std::shared_ptr<const Program> &program) {
    auto number = [&](int at, uint64_t otherwise) {
        return at < count ? strtoull(values[at], nullptr, 0) : otherwise;
    };
    Launch launch;
    launch.program = program;
    for (const Kernel &kernel : program->kernels)
        if (kernel.name == values[2])
            launch.kernel = &kernel;
    launch.grid[0] = unsigned(number(3, 1));
    launch.block[0] = unsigned(number(4, 1));
    launch.shared_bytes = number(6, 0);
    launch.seed = number(8, 1);
    launch.budget = number(9, 10000000);
    launch.threads = unsigned(number(10, 1));
    launch.record = true;
    launch.parameters.resize(sizeof address);
    memcpy(launch.parameters.data(), &address, sizeof address);
    launch.print = [](const std::string &text) { printf("print %s\n", text.c_str()); };
    return launch;
}

} // namespace

int main(int count, char **values) {
    if (count < 6)
        return 2;
    std::ifstream file(values[1], std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    std::vector<Problem> problems;
    auto program = compile(text, problems);
    for (const Problem &problem : problems)
        printf("problem %d %s\n", problem.line, problem.text.c_str());
    if (!program)
        return 1;
    std::vector<uint32_t> words(strtoull(values[5], nullptr, 0));
    Launch launch = launch_of(values, count, program);
    launch.find = [&](uintptr_t at, Segment &segment) {
        segment = {address, words.size() * 4, reinterpret_cast<char *>(words.data()), true};
        return at - segment.begin < segment.bytes;
    };
    Run run(launch);
    uint64_t slice = count > 7 ? strtoull(values[7], nullptr, 0) : 100000;
    Run::State state;
    do
        state = run.advance(slice);
    while (state == Run::State::More);
    if (state == Run::State::Failed)
        printf("fault %d %s\n", int(run.fault().status), run.fault().text.c_str());
    printf("words");
    for (uint32_t word : words)
        printf(" %u", word);
    printf("\n");
    print("reads", run.reads());
    print("writes", run.writes());
    print("atomics", run.atomics());
    printf("executed %llu\n", static_cast<unsigned long long>(run.executed()));
    return 0;
}
