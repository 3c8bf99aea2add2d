#include "code/device_runtime.h"

#include <string_view>

// This file has functions of libcudadevrt.a. That library is machine code, and programs link it to
// let the blocks of a cooperative launch wait for each other: numba's grid.sync() calls
// cudaCGGetIntrinsicHandle and cudaCGSynchronize. The functions that launch kernels and copy memory
// are not here, so a program that calls them does not link.

namespace soft {

bool is_device_runtime(const void *data, size_t bytes) {
    // An archive begins with a magic line, which the name of its first member follows.
    constexpr std::string_view archive = "!<arch>\n", member = "cuda_device_runtime";
    std::string_view content(static_cast<const char *>(data), bytes);
    return content.substr(0, archive.size()) == archive &&
           content.find(member) != std::string_view::npos;
}

// A handle is the address of the launch's workspace (GridWorkspace), or 0 if the launch is not
// cooperative. Each block adds 1 to the barrier in the workspace, and the first block adds a number
// such that the highest bit changes when all blocks have arrived. cooperative_groups of CUDA C++
// uses the same protocol, so a kernel can mix both.
const char device_runtime[] = R"(
.version 6.4
.target sm_60
.address_size 64

.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .pred %grid;
    .reg .b32 %low, %high, %scope;
    .reg .b64 %workspace;
    ld.param.u32 %scope, [scope];
    mov.u32 %low, %envreg2;
    mov.u32 %high, %envreg1;
    mov.b64 %workspace, {%low, %high};
    setp.eq.u32 %grid, %scope, 1;
    selp.b64 %workspace, %workspace, 0, %grid;
    st.param.b64 [handle], %workspace;
    ret;
}

.visible .func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .pred %is;
    .reg .b32 %x, %y, %z, %blocks, %arrivals, %before, %now;
    .reg .b64 %workspace;
    ld.param.u64 %workspace, [handle];
    setp.ne.u64 %is, %workspace, 0;
    @%is bra cooperative;
    trap;
cooperative:
    bar.sync 0;
    mov.u32 %x, %tid.x;
    mov.u32 %y, %tid.y;
    mov.u32 %z, %tid.z;
    or.b32 %x, %x, %y;
    or.b32 %x, %x, %z;
    setp.ne.u32 %is, %x, 0;
    @%is bra all_arrived;
    mov.u32 %x, %nctaid.x;
    mov.u32 %y, %nctaid.y;
    mov.u32 %z, %nctaid.z;
    mul.lo.u32 %blocks, %x, %y;
    mul.lo.u32 %blocks, %blocks, %z;
    mov.u32 %x, %ctaid.x;
    mov.u32 %y, %ctaid.y;
    mov.u32 %z, %ctaid.z;
    or.b32 %x, %x, %y;
    or.b32 %x, %x, %z;
    sub.u32 %arrivals, 0x80000001, %blocks;
    setp.eq.u32 %is, %x, 0;
    selp.u32 %arrivals, %arrivals, 1, %is;
    membar.gl;
    atom.add.u32 %before, [%workspace+4], %arrivals;
wait:
    ld.volatile.u32 %now, [%workspace+4];
    xor.b32 %now, %now, %before;
    setp.ge.s32 %is, %now, 0;
    @%is bra wait;
    membar.gl;
all_arrived:
    bar.sync 0;
    st.param.b32 [status], 0;
    ret;
}

.visible .func (.param .b32 status) cudaCGSynchronizeGrid(.param .b64 handle, .param .b32 flags)
{
    .reg .b32 %status;
    .reg .b64 %workspace;
    ld.param.u64 %workspace, [handle];
    {
        .param .b64 given;
        .param .b32 none;
        .param .b32 result;
        st.param.b64 [given], %workspace;
        st.param.b32 [none], 0;
        call (result), cudaCGSynchronize, (given, none);
        ld.param.b32 %status, [result];
    }
    st.param.b32 [status], %status;
    ret;
}
)";

} // namespace soft
