#pragma once

#include "fuzz_arguments.h"

#include <deque>
#include <string>

// Arguments for loading and launching code.

namespace fuzz {

// A kernel that reads a texture and a surface, whatever their formats are.
inline const char *const look_text =
    ".version 7.5\n.target sm_75\n.address_size 64\n"
    ".visible .entry look(.param .u64 t, .param .u64 s, .param .f32 x, .param .u32 i)\n{\n"
    "    .reg .b64 %rd<4>; .reg .f32 %f<8>; .reg .b32 %r<8>;\n"
    "    ld.param.u64 %rd1, [t]; ld.param.u64 %rd2, [s];\n"
    "    ld.param.f32 %f1, [x]; ld.param.u32 %r1, [i];\n"
    "    tex.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%f1, %f1}];\n"
    "    tex.level.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%f1, %f1}], %f1;\n"
    "    tld4.r.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%f1, %f1}];\n"
    "    suld.b.2d.b8.zero %r2, [%rd2, {%r1, %r1}];\n"
    "    sust.b.2d.b8.clamp [%rd2, {%r1, %r1}], %r2;\n"
    "    sust.p.2d.v4.b32.zero [%rd2, {%r1, %r1}], {%r1, %r1, %r1, %r1};\n    ret;\n}\n";

// PTX texts, most of them correct. The kernels use only their module's memory, except one.
inline const char *const code_texts[] = {
    ".version 7.5\n.target sm_75\n.address_size 64\n"
    ".visible .global .u32 counter = 5;\n.visible .const .u32 table[4] = {1, 2, 3, 4};\n"
    ".visible .global .attribute(.managed) .u32 common;\n"
    ".visible .entry empty() { ret; }\n"
    ".visible .entry count(.param .u32 a, .param .u64 b)\n{\n    .reg .b32 %r<4>;\n"
    "    ld.const.u32 %r2, [table+4];\n    atom.global.add.u32 %r1, [counter], %r2;\n    ret;\n}\n"
    ".visible .entry spin() {\n    .reg .b32 %r<2>;\n    .reg .pred %p<2>;\nagain:\n"
    "    ld.volatile.global.u32 %r1, [counter];\n    setp.ne.u32 %p1, %r1, 0;\n    ret;\n}\n",
    ".version 7.5\n.target sm_75\n.address_size 64\n.extern .global .u32 counter;\n"
    ".extern .func far(.param .u32 a);\n"
    ".visible .entry near() { st.global.u32 [counter], 1; ret; }\n",
    ".version 7.5\n.target sm_75\n.address_size 64\n"
    ".visible .entry store(.param .u64 at)\n{\n    .reg .b64 %rd<2>;\n"
    "    ld.param.u64 %rd1, [at];\n    st.global.u32 [%rd1], 7;\n    ret;\n}\n",
    ".version 7.5\n.target sm_75\n.address_size 64\n"
    ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n"
    ".visible .global .u64 last;\n"
    ".visible .entry allocate(.param .u64 n)\n{\n    .reg .b64 %rd<4>;\n"
    "    { .param .b64 n; .param .b64 p; st.param.b64 [n], 40; call (p), malloc, (n);\n"
    "    ld.param.b64 %rd1, [p]; }\n    atom.global.exch.b64 %rd2, [last], %rd1;\n"
    "    { .param .b64 p; st.param.b64 [p], %rd2; call free, (p); }\n    ret;\n}\n",
    look_text,
    ".version 99.9\n.target sm_75\n.address_size 64\n",
    ".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry empty() { frobnicate; }\n",
    "this is no PTX",
    "",
};

// Binaries: headers of an ELF file and of a container, without content.
inline const std::string code_binaries[] = {
    std::string("\x7f"
                "ELF\x02\x01\x01",
                7) +
        std::string(11, '\0') + "\xbe" + std::string(200, '\0'),
    std::string("\x50\xed\x55\xba\x01\x00\x10\x00", 8) + std::string(200, '\0'),
};

struct Code {
    const char *data;
    size_t bytes; // including the final zero
};

inline Code any_code() {
    soft::Random &random = player->random;
    if (player->chance(4)) {
        const std::string &binary = code_binaries[random.below(std::size(code_binaries))];
        return {binary.data(), binary.size()};
    }
    size_t chosen = player->chance(70) ? 0 : random.below(std::size(code_texts));
    return {code_texts[chosen], std::strlen(code_texts[chosen]) + 1};
}

// JIT options. JIT options. The driver keeps the options of a link, so they are never freed here.
struct CodeOptions {
    static constexpr size_t room = 16, log_bytes = 64;
    struct Kept {
        CUjit_option options[room] = {};
        void *values[room] = {};
        char log[log_bytes] = {};
    };

    Kept &kept = keep();
    Argument<unsigned> count;
    Argument<CUjit_option *> options;
    Argument<void **> values;

    CodeOptions() {
        bool wanted = player->chance(30);
        count.value = wanted ? static_cast<unsigned>(any_count()) : 0;
        for (size_t i = 0; i < room; i++) {
            auto option = static_cast<CUjit_option>(player->random.below(37));
            kept.options[i] = option;
            bool buffer = option == CU_JIT_INFO_LOG_BUFFER || option == CU_JIT_ERROR_LOG_BUFFER;
            kept.values[i] = buffer ? kept.log : reinterpret_cast<void *>(player->random.below(65));
        }
        options.value = player->chance(97) ? kept.options : nullptr;
        values.value = player->chance(97) ? kept.values : nullptr;
    }

  private:
    static Kept &keep() {
        static thread_local std::deque<Kept> *all = new std::deque<Kept>;
        return all->emplace_back();
    }
};

// Parameters of a launch, as pointers to each parameter or as one block.
struct KernelArguments {
    uint64_t numbers[16] = {};
    void *addresses_of_numbers[16] = {};
    size_t bytes = 8 * player->random.below(4);
    void *block[5] = {CU_LAUNCH_PARAM_BUFFER_POINTER, numbers, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                      CU_LAUNCH_PARAM_END};
    Argument<void **> parameters, extra;

    KernelArguments() {
        for (size_t i = 0; i < std::size(numbers); i++) {
            numbers[i] = looked_up_address();
            addresses_of_numbers[i] = player->chance(99) ? &numbers[i] : nullptr;
        }
        parameters.value = player->chance(80) ? addresses_of_numbers : nullptr;
        extra.value = player->chance(15) ? block : nullptr;
    }
};

inline CUfunction any_kernel() {
    return player->chance(20) ? reinterpret_cast<CUfunction>(any_handle<CUkernel>())
                              : any_handle<CUfunction>();
}

inline size_t CUDA_CB shared_of_block(int threads) { return threads; }

template <> struct Argument<CUoccupancyB2DSize> : Nothing {
    CUoccupancyB2DSize value = player->chance(50) ? shared_of_block : nullptr;
};

} // namespace fuzz
