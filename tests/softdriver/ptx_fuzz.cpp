// ptx_fuzz SEED INPUTS FILE...
//
// Tests the PTX parser, decoder and interpreter with random mutations of the PTX texts in these
// files, and of fatbins with such texts. Kernels that can be decoded are run for a while. It is
// compiled with a sanitizer. Failures are: whatever the sanitizer finds, an exception, a tree with
// invalid references, and an input that takes too long for its length. Then texts that repeat one
// item are read in two lengths: the time must grow linearly.
//
// Every fourth input is a kernel of random instructions on textures and surfaces;
// PTX_FUZZ_TEXTURES=1 makes all inputs such kernels. The kernels run under all sets of the checks
// inside kernels, one after the other; PTX_FUZZ_CHECKS=0 to 7 chooses a set, by the bits of Check.

#include "ptx_mutations.h"

#include "base/undefined.h"
#include "check/checks.h"
#include "ptx/fatbin.h"
#include "ptx/heap.h"
#include "ptx/parser.h"
#include "ptx/run.h"
#include "ptx/texture.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>

using namespace soft::ptx;

namespace {

constexpr double seconds_per_byte = 50e-6,
                 seconds_at_most = 0.5; // limits for runs with a sanitizer
constexpr size_t memory_bytes = 1 << 16, most_shared_bytes = 48 << 10;
std::string input; // the current input
size_t kernels_run = 0;
soft::Hazards hazards;                      // of the last kernel
size_t kernels_found = 0;                   // kernels with hazards
constexpr unsigned sets = 8;                // of checks
size_t kernels_looked = 0, looks_ended = 0; // kernels that found a texture, and ended without fault

[[noreturn]] void fail(const std::string &why) {
    std::ofstream("ptx_fuzz.input", std::ios::binary) << input;
    std::fprintf(stderr, "ptx_fuzz: %s; the input is in ptx_fuzz.input\n", why.c_str());
    std::abort();
}

void require(bool condition, const char *what) {
    if (!condition)
        fail(std::string("the tree is wrong: ") + what);
}

bool within(int index, size_t size) { return index >= 0 && size_t(index) < size; }

void check(const Tree &tree, const Function &function, const Operand &operand) {
    using Kind = Operand::Kind;
    bool of_module = operand.scope == Operand::Scope::Module;
    if (operand.kind == Kind::Register)
        require(within(operand.index, function.registers.size()), "a register");
    if (operand.kind == Kind::Variable)
        require(within(operand.index, (of_module ? tree.variables : function.variables).size()),
                "a variable");
    if (operand.kind == Kind::Function)
        require(within(operand.index, tree.functions.size()), "a function");
    if (operand.kind == Kind::Label)
        require(within(operand.index, function.body.size() + 1), "a label");
    if (operand.kind == Kind::Memory || operand.kind == Kind::Pair)
        require(!operand.parts.empty(), "an operand without parts");
    for (const Operand &part : operand.parts)
        check(tree, function, part);
}

void check(const Tree &tree, const Function &function) {
    size_t count = function.variables.size();
    require(function.results >= 0 && function.parameters >= 0 &&
                size_t(function.results + function.parameters) <= count,
            "parameters");
    require(function.defined || function.body.empty(), "a body of a declaration");
    for (int callee : function.calls)
        require(within(callee, tree.functions.size()), "a call");
    for (const Instruction &instruction : function.body) {
        require(instruction.guard < 0 || within(instruction.guard, function.registers.size()),
                "a guard");
        for (const Operand &operand : instruction.operands)
            check(tree, function, operand);
        if (instruction.opcode != "call")
            continue;
        require(instruction.operands.size() >= 3, "a call's operands");
        if (instruction.operands.size() > 3 &&
            instruction.operands[3].kind == Operand::Kind::Integer)
            require(instruction.operands[3].bits < function.prototypes.size(), "a prototype");
    }
}

void check(const Tree &tree) {
    for (const Variable &variable : tree.variables) {
        require(variable.initial.size() <= variable.bytes(), "initial bytes");
        for (const Variable::Address &address : variable.addresses) {
            require(within(address.target,
                           address.function ? tree.functions.size() : tree.variables.size()),
                    "an initial address");
            require(address.offset + address.width <= variable.bytes(), "an address's place");
        }
    }
    for (const Function &function : tree.functions)
        check(tree, function);
}

// A copy without any accessible byte after its end.
std::unique_ptr<char[]> copy_of(const std::string &text) {
    std::unique_ptr<char[]> copy(new char[text.size()]);
    std::copy(text.begin(), text.end(), copy.get());
    return copy;
}

double seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

void check(const std::vector<Problem> &problems, bool good) {
    if (good != problems.empty())
        fail("a problem of what is right, or none of what is wrong");
    for (const Problem &problem : problems)
        if (problem.text.empty() || problem.line < 0 || problem.text.size() > 1000)
            fail("a problem that says nothing, or too much");
}

// Makes a texture. The handle determines its shape, its number of levels, and whether all of its
// memory exists. The other properties change from kernel to kernel.
std::shared_ptr<const Texture> texture_at(uintptr_t base, uint64_t handle, bool surface) {
    auto texture = std::make_shared<Texture>();
    texture->surface = surface;
    texture->shape = Texture::Shape(handle % 8);
    texture->channel = Channel(kernels_run % 8);
    texture->channels = 1u << kernels_run % 3;
    texture->element = bytes_of(texture->channel) * texture->channels;
    uintptr_t begin = handle / 8 < 7 ? base : base + memory_bytes - 4 * 2048;
    texture->levels = {{begin, 256, 2048, 16, 8, 12},
                       {begin + 64, 256, 2048, 8, 4, 12},
                       {begin + 128, 256, 2048, 3, 2, 12},
                       {begin + 192, 256, 2048, 1, 1, 12}};
    texture->levels.resize(1 + handle / 8 % 4);
    for (int i = 0; i < 3; i++)
        texture->outside[i] = Outside((kernels_run + i) % 4);
    texture->normalized = kernels_run % 5 != 0;
    texture->promotes = texture->channel < Channel::U32 && kernels_run % 7 != 0;
    texture->filters = texture->reads_floats() && kernels_run % 2;
    texture->mixes_levels = kernels_run % 3 == 0;
    texture->greatest_level = float(handle);
    return texture;
}

// Chooses checks for the launch, or none. The memory counts as new.
void observe(Launch &launch, uintptr_t base) {
    const char *chosen = std::getenv("PTX_FUZZ_CHECKS");
    unsigned checks = chosen ? unsigned(std::atoi(chosen)) : unsigned(kernels_run % sets);
    soft::undefined_memory().turn(checks & soft::check_init);
    soft::undefined_memory().track(base, memory_bytes);
    launch.checked = checks;
    if (!checks)
        return;
    launch.threads = 1;
    launch.observe = [checks](Machine &machine) {
        auto report = [](const soft::Hazards::Key &key, bool benign, const auto &make) {
            hazards.add(key, benign, soft::RaceMode::Record, make);
        };
        auto describe = [](uintptr_t address, uintptr_t &begin) {
            begin = address & ~uintptr_t{255};
            return std::to_string(begin);
        };
        return soft::check::make_observer(machine, checks, report, describe);
    };
}

// Reads all texts of the hazards, and forgets them.
void read_hazards() {
    for (size_t i = 0; i < hazards.all().size(); i++)
        if (hazards.json(i).empty())
            fail("a hazard without a text");
    kernels_found += !hazards.all().empty();
    hazards.clear();
}

// Runs a kernel. All parameters and variables are in one buffer, or contain addresses in it.
void run(const std::shared_ptr<const Program> &program, const Kernel &kernel) {
    constexpr uintptr_t base = 0x10000000;
    std::unique_ptr<char[]> memory(new char[memory_bytes]());
    Launch launch;
    launch.program = program;
    launch.kernel = &kernel;
    launch.grid[0] = 4;
    launch.cluster[0] = 1u << kernels_run % 3;
    launch.clustered = launch.cluster[0] > 1;
    launch.block[0] = std::clamp(kernel.required_threads[0], 40u, 128u);
    launch.budget = 3000;
    launch.threads = 1 + unsigned(kernels_run % 3);
    launch.parameters.resize(kernel.parameter_bytes);
    for (size_t i = 0; i + sizeof base <= launch.parameters.size(); i += sizeof base)
        std::memcpy(&launch.parameters[i], &base, sizeof base);
    size_t end = memory_bytes / 2;
    for (const Variable &variable : program->variables) {
        end = (end + variable.alignment - 1) / variable.alignment * variable.alignment;
        if (variable.bytes() > memory_bytes - std::min(end, memory_bytes))
            return;
        launch.variables.push_back(base + end);
        end += variable.bytes();
    }
    launch.heap = std::make_shared<Heap>(memory_bytes);
    launch.find = [&, heap = launch.heap](uintptr_t address, Segment &segment) {
        if (heap->contains(address))
            return heap->find(address, segment);
        segment = {base, memory_bytes, memory.get(), true};
        return address >= base && address < base + memory_bytes;
    };
    std::atomic<bool> looked{false};
    launch.find_texture = [&looked](uint64_t handle, bool surface, std::string &) {
        looked = looked || handle < 64;
        return handle < 64 ? texture_at(base, handle, surface) : nullptr;
    };
    launch.print = [](const std::string &) {};
    observe(launch, base);
    Run run(std::move(launch));
    Run::State state = Run::State::More;
    for (int i = 0; i < 100 && state == Run::State::More; i++)
        state = run.advance(1000);
    read_hazards();
    if ((state == Run::State::Failed) != (run.fault().status != CUDA_SUCCESS))
        fail("a kernel failed without a fault, or did not with one");
    kernels_looked += looked;
    looks_ended += looked && state == Run::State::Done;
}

std::string refusal; // why the last text that could be parsed could not be decoded

// Whether the text can be parsed. Runs its kernels and counts them.
bool read_text(const std::string &text) {
    auto copy = copy_of(text);
    std::vector<Problem> problems;
    auto tree = parse(std::string_view(copy.get(), text.size()), problems);
    check(problems, bool(tree));
    if (!tree)
        return false;
    check(*tree);
    auto program = decode(*tree, problems);
    check(problems, bool(program));
    refusal = program ? "" : std::to_string(problems[0].line) + ": " + problems[0].text;
    if (!program)
        return true;
    for (size_t i = 0; i < std::min<size_t>(program->kernels.size(), 4); i++)
        if (program->kernels[i].shared_bytes <= most_shared_bytes) {
            run(program, program->kernels[i]);
            kernels_run++;
        }
    return true;
}

void read_fatbin(const std::string &container) {
    auto copy = copy_of(container);
    std::string_view view(copy.get(), container.size());
    form_of(view);
    FatbinText found = text_of_fatbin(view, 90);
    bool is = found.outcome == FatbinText::Outcome::Found;
    if (is != found.why.empty())
        fail("a fatbin's text with a problem, or none without");
    if (is)
        read_text(found.text.substr(0, 100000));
}

void timed(const std::string &text, const std::function<void()> &read) {
    input = text;
    double start = seconds();
    read();
    double limit = seconds_at_most + seconds_per_byte * double(text.size());
    if (double took = seconds() - start; took > limit)
        fail("it took " + std::to_string(took) + " s for " + std::to_string(text.size()) +
             " bytes");
}

double best_time(const std::string &text) {
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        double start = seconds();
        read_text(text);
        best = std::min(best, seconds() - start);
    }
    return best;
}

constexpr size_t few = 1000, many = 8 * few;

void compare(const std::string &less, const std::string &more, const char *what) {
    input = more;
    double small = best_time(less), large = best_time(more);
    if (large > 3 * double(many / few) * small + 0.02)
        fail(std::string("the time is not linear in the number of: ") + what + ": " +
             std::to_string(small) + " s and " + std::to_string(large) + " s");
}

void check_growth() {
    for (const fuzz::Growth &growth : fuzz::growths)
        compare(fuzz::grown(growth, few), fuzz::grown(growth, many), growth.item);
    compare(fuzz::called_twice(few), fuzz::called_twice(many), "functions that call two others");
}

} // namespace

int main(int count, char **arguments) {
    if (count < 4) {
        std::fprintf(stderr, "ptx_fuzz SEED INPUTS FILE...\n");
        return 2;
    }
    std::vector<std::string> corpus;
    for (int i = 3; i < count; i++) {
        std::ifstream file(arguments[i], std::ios::binary);
        corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
        input = corpus.back();
        if (!read_text(input))
            fail(std::string("the parser refuses ") + arguments[i]);
        if (!refusal.empty())
            fail(std::string("the decoder refuses ") + arguments[i] + ":" + refusal);
    }
    fuzz::Mutator mutator(std::strtoull(arguments[1], nullptr, 10), std::move(corpus));
    size_t right = 0;
    const size_t inputs = std::strtoull(arguments[2], nullptr, 10);
    const bool only_textures = std::getenv("PTX_FUZZ_TEXTURES");
    for (size_t i = 0; i < inputs; i++) {
        if (i % 8 == 7 && !only_textures) {
            std::string container = mutator.fatbin();
            timed(container, [&] { read_fatbin(container); });
        } else {
            std::string text = i % 4 == 1 || only_textures ? mutator.textures() : mutator.text();
            timed(text, [&] { right += read_text(text); });
        }
    }
    check_growth();
    std::printf(
        "ptx_fuzz: %zu inputs, %zu of them right texts, %zu kernels run; %zu found textures, "
        "and %zu of these ended without fault; %zu had hazards\n",
        inputs, right, kernels_run, kernels_looked, looks_ended, kernels_found);
    return 0;
}
