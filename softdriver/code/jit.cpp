#include "code/jit.h"
#include "api/call.h"

#include "api/state.h"
#include "base/notes.h"
#include "base/unsupported.h"
#include "device/device_attributes.h"
#include "ptx/link.h"
#include "ptx/parser.h"

#include <algorithm>
#include <cstring>

// This file compiles images to code that can run, and implements JIT options and logs.

namespace soft {
namespace {

template <class Value> Value value_of(void *const *place) {
    Value value;
    std::memcpy(&value, place, sizeof value);
    return value;
}

template <class Value> void store(void **place, Value value) {
    if (place)
        std::memcpy(place, &value, sizeof value);
}

std::string line_of(const ptx::Problem &problem) {
    if (problem.whole)
        return problem.text;
    std::string where = problem.line ? ", line " + std::to_string(problem.line) : "";
    return "PTX input" + where + "; error: " + problem.text;
}

std::string lines_of(const std::vector<ptx::Problem> &problems) {
    std::string lines;
    for (const ptx::Problem &problem : problems)
        lines += (lines.empty() ? "" : "\n") + line_of(problem);
    return lines;
}

// A target and the first PTX version that supports it.
struct TargetVersion {
    int capability, version;
};
constexpr TargetVersion target_versions[] = {
    {10, 10}, {11, 10},  {12, 12},  {13, 12},  {20, 20},  {21, 20},  {30, 30},  {32, 40},
    {35, 31}, {37, 41},  {50, 40},  {52, 41},  {53, 42},  {60, 50},  {61, 50},  {62, 50},
    {70, 60}, {72, 61},  {75, 63},  {80, 70},  {86, 71},  {87, 74},  {88, 90},  {89, 78},
    {90, 78}, {100, 86}, {101, 86}, {103, 88}, {110, 90}, {120, 87}, {121, 88},
};

constexpr int oldest_target = 30; // options with an older target are refused
// The bits of a target that are its compute capability. The higher bits mark architecture-specific
// targets, such as sm_90a, and family-specific ones.
constexpr int target_capability = 0xffff;

const TargetVersion *find_target(int capability) {
    for (const TargetVersion &known : target_versions)
        if (known.capability == capability)
            return &known;
    return nullptr;
}

// Says why the device cannot run programs for this target. Returns an empty text if it can. Targets
// such as sm_90a are for one capability only, and those such as sm_100f for one family.
std::string why_not_for_device(const ptx::Program &program) {
    int capability = device_capability();
    char kind = program.target.empty() ? '\0' : program.target.back();
    std::string device = "this device, which is sm_" + std::to_string(capability);
    if (!find_target(program.capability) || program.capability > capability)
        return "the target " + program.target + " is unknown or newer than " + device +
               (program.capability == 100 ? " (the setting capability=10.0 makes it newer)" : "");
    bool fits = kind == 'a'   ? program.capability == capability
                : kind == 'f' ? capability >= 100 && program.capability / 10 == capability / 10
                              : true;
    return fits ? "" : "the target " + program.target + " is not for " + device;
}

// Adds a problem if the PTX version does not support the target, the device does not support the
// target, or the program has too many bytes of constants or of parameters.
void check_limits(const ptx::Program &program, std::vector<ptx::Problem> &problems) {
    constexpr size_t constant_limit = 65536;
    // The first PTX version that allows a kernel 32764 bytes of parameters.
    constexpr int large_parameters = 81;
    auto fail = [&](const std::string &text) { problems.push_back({0, text}); };
    const TargetVersion *target = find_target(program.capability);
    if (target && program.version < target->version)
        fail("version " + std::to_string(program.version / 10) + "." +
             std::to_string(program.version % 10) + " does not know the target sm_" +
             std::to_string(program.capability));
    if (std::string why = why_not_for_device(program); !why.empty())
        fail(why);
    if (constant_bytes(program) > constant_limit)
        fail("more than 64 KiB of constants: " + std::to_string(constant_bytes(program)) +
             " bytes");
    size_t limit = program.version < large_parameters ? 4352 : 32764;
    for (const ptx::Kernel &kernel : program.kernels)
        if (kernel.parameter_bytes > limit)
            fail("kernel " + kernel.name + " has " + std::to_string(kernel.parameter_bytes) +
                 " bytes of parameters, and the limit is " + std::to_string(limit));
}

// Adds a problem if the text has a letter that is not ASCII. PTX allows only ASCII, even in
// comments.
void check_letters(const std::string &text, std::vector<ptx::Problem> &problems) {
    int line = 1;
    for (char letter : text) {
        line += letter == '\n';
        if (static_cast<unsigned char>(letter) >= 0x80) {
            problems.push_back({line, "a letter that is not ASCII"});
            return;
        }
    }
}

CUresult status_of(const std::vector<ptx::Problem> &problems) {
    for (const ptx::Problem &problem : problems)
        if (problem.version)
            return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    bool nowhere = std::any_of(problems.begin(), problems.end(),
                               [](const ptx::Problem &problem) { return problem.nowhere; });
    return nowhere ? not_supported("PTX that no driver can run: " + lines_of(problems))
                   : CUDA_ERROR_INVALID_PTX;
}

// Returns the newest PTX version that a CUDA version supports. Every CUDA version adds a PTX
// version, except 12.6.
int newest_ptx(int cuda) {
    int version = (cuda / 1000 - 4) * 10 + cuda % 1000 / 10;
    return cuda >= 12060 && cuda < 13000 ? version - 1 : version;
}

// Returns a line of a text without the white space around it. A line that is too long is cut.
std::string quoted_line(const std::string &text, int number) {
    constexpr size_t longest = 200;
    size_t begin = 0;
    for (int line = 1; line < number; line++)
        begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
    std::string line = text.substr(begin, text.find('\n', begin) - begin);
    line.erase(0, line.find_first_not_of(" \t\r"));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    return line.size() <= longest ? line : line.substr(0, longest) + "...";
}

// Notes the first problem of PTX that is refused, with its line of the text, which shows the
// instruction.
void note_problem(const std::vector<ptx::Problem> &problems, const Image &image) {
    if (problems.empty())
        return;
    const ptx::Problem &first = problems.front();
    std::string text = first.whole ? "" : "PTX";
    if (first.line)
        text += ", line " + std::to_string(first.line);
    text += (first.whole ? "" : ": ") + first.text;
    if (first.line && image.texts.size() == 1)
        text += ": \"" + quoted_line(image.texts.front(), first.line) + "\"";
    if (first.version)
        text += " (with the setting driver=, this driver can be a newer one)";
    if (problems.size() > 1)
        text += " (and " + std::to_string(problems.size() - 1) + " more problems)";
    note(Note::RefusedImage, text);
}

// Adds a problem for each function that an input of a link calls and no input defines. The words
// are those of NVIDIA's linker, because programs show them.
void check_calls(const std::vector<ptx::Tree> &trees, const std::vector<std::string> &names,
                 std::vector<ptx::Problem> &problems) {
    for (const ptx::Missing &missing : ptx::missing_functions(trees)) {
        ptx::Problem problem;
        problem.text = "error   : Undefined reference to '" + missing.function + "' in '" +
                       names[missing.tree] + "'";
        problem.whole = true;
        problems.push_back(problem);
    }
}

ProgramPtr make_program(const Image &image, int newest, std::vector<ptx::Problem> &problems) {
    for (const std::string &text : image.texts)
        check_letters(text, problems);
    if (!problems.empty())
        return nullptr;
    if (image.texts.size() == 1 && image.names.empty())
        return ptx::compile(image.texts.front(), problems, newest);
    std::vector<ptx::Tree> trees;
    for (const std::string &text : image.texts)
        if (std::optional<ptx::Tree> tree = ptx::parse(text, problems, newest))
            trees.push_back(std::move(*tree));
    if (problems.empty() && !image.names.empty())
        check_calls(trees, image.names, problems);
    if (!problems.empty())
        return nullptr;
    std::optional<ptx::Tree> whole = ptx::link(std::move(trees), problems);
    return whole ? ptx::decode(*whole, problems) : nullptr;
}

} // namespace

CUresult JitOptions::read(unsigned count, CUjit_option *options, void **values) {
    if (count && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        void **value = values + i;
        auto number = value_of<int>(value);
        switch (static_cast<int>(options[i])) {
        case CU_JIT_MAX_REGISTERS:
            if (!number)
                return CUDA_ERROR_INVALID_VALUE;
            max_registers_ = static_cast<unsigned>(number);
            break;
        case CU_JIT_TARGET:
            number &= target_capability;
            if (number && (number < oldest_target || !find_target(number)))
                return CUDA_ERROR_INVALID_VALUE;
            target_ = number;
            break;
        case CU_JIT_CACHE_MODE:
            if (number < CU_JIT_CACHE_OPTION_NONE || number > CU_JIT_CACHE_OPTION_CA)
                return CUDA_ERROR_INVALID_VALUE;
            break;
        case CU_JIT_INFO_LOG_BUFFER:
            info_.buffer = static_cast<char *>(*value);
            break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            info_.room = value_of<unsigned>(value);
            info_.size = value;
            break;
        case CU_JIT_ERROR_LOG_BUFFER:
            error_.buffer = static_cast<char *>(*value);
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            error_.room = value_of<unsigned>(value);
            error_.size = value;
            break;
        case CU_JIT_WALL_TIME:
            wall_time_ = value;
            break;
        case CU_JIT_THREADS_PER_BLOCK:
            threads_ = value;
            break;
        default:
            if (options[i] < 0 || options[i] >= newest_jit_option)
                return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (const Log *log : {&info_, &error_})
        if (!log->buffer != !log->size)
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult JitOptions::check_target(int capability) const {
    if (target_ < 0 || target_ == device_capability())
        return CUDA_SUCCESS;
    note(Note::RefusedImage, "the option CU_JIT_TARGET is " + std::to_string(target_) +
                                 ", and the device is sm_" + std::to_string(device_capability()));
    if (!target_)
        return CUDA_ERROR_INVALID_IMAGE;
    return target_ < capability ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_SOURCE;
}

void JitOptions::write(Log &log, const std::string &text) {
    if (!log.buffer || !log.room)
        return;
    size_t length = std::min(text.size(), log.room - 1);
    std::memcpy(log.buffer, text.data(), length);
    log.buffer[length] = 0;
    log.used = length && length < text.size() ? log.room : length;
}

void JitOptions::tell(const std::string &errors, Clock::duration took) {
    errors_ += (errors_.empty() || errors.empty() ? "" : "\n") + errors;
    took_ += took;
    write(info_, "");
    write(error_, errors_);
    for (const Log *log : {&info_, &error_})
        if (log->size)
            store(log->size, static_cast<unsigned>(log->used));
    store(wall_time_, std::chrono::duration<float, std::milli>(took_).count());
}

CUresult check_parts(Call &call, const Image &image, JitOptions &options) {
    std::vector<ptx::Problem> problems;
    int newest = newest_ptx(state().settings.driver);
    Clock::time_point begin = Clock::now();
    call.lock.unlock();
    for (const std::string &text : image.texts)
        ptx::check_part(text, problems, newest);
    acquire(call.lock);
    note_problem(problems, image);
    options.tell(lines_of(problems), Clock::now() - begin);
    return problems.empty() ? CUDA_SUCCESS : status_of(problems);
}

// Returns the program with at most `most` registers in each kernel. Register numbers are estimates,
// so this changes only what programs can query.
static ProgramPtr limit_registers(const ProgramPtr &program, unsigned most) {
    if (!most)
        return program;
    auto limited = std::make_shared<ptx::Program>(*program);
    for (ptx::Kernel &kernel : limited->kernels)
        kernel.registers = std::min(kernel.registers, most);
    return limited;
}

CUresult compile(Call &call, const Image &image, JitOptions &options, ProgramPtr &program) {
    std::vector<ptx::Problem> problems;
    int newest = newest_ptx(state().settings.driver);
    Clock::time_point begin = Clock::now();
    call.lock.unlock();
    program = make_program(image, newest, problems);
    acquire(call.lock);
    if (program && !image.texts.empty())
        check_limits(*program, problems);
    CUresult status = problems.empty() ? CUDA_SUCCESS : status_of(problems);
    if (!status)
        status = options.check_target(program->capability);
    if (!problems.empty())
        program = nullptr;
    else
        program = limit_registers(program, image.max_registers ? image.max_registers
                                                               : options.max_registers());
    note_problem(problems, image);
    options.tell(lines_of(problems), Clock::now() - begin);
    return status;
}

} // namespace soft
