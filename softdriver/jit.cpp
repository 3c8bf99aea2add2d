#include "jit.h"

#include "device_attributes.h"
#include "ptx/link.h"
#include "ptx/parser.h"
#include "state.h"

#include <cstring>

// From what a program hands over to code that can be run.

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
    std::string where = problem.line ? ", line " + std::to_string(problem.line) : "";
    return "ptx input" + where + "; error: " + problem.text + "\n";
}

CUresult status_of(const std::vector<ptx::Problem> &problems) {
    for (const ptx::Problem &problem : problems)
        if (problem.version)
            return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    for (const ptx::Problem &problem : problems)
        if (problem.target)
            return CUDA_ERROR_NO_BINARY_FOR_GPU;
    return CUDA_ERROR_INVALID_PTX;
}

ProgramPtr make_program(const Image &image, std::vector<ptx::Problem> &problems) {
    if (image.texts.size() == 1)
        return ptx::compile(image.texts.front(), problems);
    std::vector<ptx::Tree> trees;
    for (const std::string &text : image.texts)
        if (std::optional<ptx::Tree> tree = ptx::parse(text, problems))
            trees.push_back(std::move(*tree));
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
        switch (static_cast<int>(options[i])) {
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
        case CU_JIT_LOG_VERBOSE:
            verbose_ = value_of<unsigned>(value) != 0;
            break;
        default:
            if (options[i] < 0 || options[i] >= newest_jit_option)
                return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

void JitOptions::write(Log &log, const std::string &text) {
    if (!log.buffer || log.room <= log.used + 1)
        return;
    size_t length = std::min(text.size(), log.room - log.used - 1);
    std::memcpy(log.buffer + log.used, text.data(), length);
    log.used += length;
    log.buffer[log.used] = 0;
}

void JitOptions::finish() {
    for (const Log *log : {&info_, &error_})
        if (log->buffer && log->size)
            store(log->size, static_cast<unsigned>(log->used));
    store(wall_time_, 0.0f);
}

CUresult compile(Call &call, const Image &image, JitOptions &options, ProgramPtr &program) {
    std::vector<ptx::Problem> problems;
    call.lock.unlock();
    program = make_program(image, problems);
    acquire(call.lock);
    CUresult status = program ? CUDA_SUCCESS : status_of(problems);
    if (program && program->capability > device_capability) {
        status = CUDA_ERROR_NO_BINARY_FOR_GPU;
        options.write_error("the text is for devices of capability " +
                            std::to_string(program->capability) + ", this one has " +
                            std::to_string(device_capability) + "\n");
    }
    if (status)
        for (const ptx::Problem &problem : problems)
            options.write_error(line_of(problem));
    options.finish();
    return status;
}

} // namespace soft
