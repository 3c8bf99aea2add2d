#pragma once

#include "fuzz_code.h"

#include <vector>

// Short sequences of correct calls, which random calls would hardly ever produce.

namespace fuzz {

// Makes a usable context current.
inline void find_context() {
    CUcontext context = nullptr;
    unsigned long long id;
    cuCtxGetCurrent(&context);
    if (context && cuCtxGetId(context, &id) == CUDA_SUCCESS)
        return;
    CUdevice device = static_cast<CUdevice>(player->random.below(2));
    if (cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
        return;
    pool_of<CUcontext>().put(reinterpret_cast<uintptr_t>(context));
}

// Creates objects to work with: without them most calls would only find destroyed ones.
inline void supply() {
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CUdeviceptr memory = 0;
    void *host = nullptr;
    size_t bytes = 1 + player->random.below(70000);
    if (!cuStreamCreate(&stream, static_cast<unsigned>(player->random.below(2))))
        pool_of<CUstream>().put(reinterpret_cast<uintptr_t>(stream));
    if (!cuEventCreate(&event, CU_EVENT_DEFAULT))
        pool_of<CUevent>().put(reinterpret_cast<uintptr_t>(event));
    if (player->chance(70) ? !cuMemAlloc_v2(&memory, bytes)
                           : !cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL))
        addresses.put(memory);
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    if (!cuModuleLoadData(&module, code_texts[0])) {
        pool_of<CUmodule>().put(reinterpret_cast<uintptr_t>(module));
        if (!cuModuleGetFunction(&kernel, module, player->chance(50) ? "empty" : "count"))
            pool_of<CUfunction>().put(reinterpret_cast<uintptr_t>(kernel));
    }
    CUarray array = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR description{};
    fill(description);
    if (!cuArray3DCreate_v2(&array, &description))
        pool_of<CUarray>().put(reinterpret_cast<uintptr_t>(array));
    CUmipmappedArray levels = nullptr;
    fill(description);
    if (!cuMipmappedArrayCreate(&levels, &description, 1 + unsigned(player->random.below(5))))
        pool_of<CUmipmappedArray>().put(reinterpret_cast<uintptr_t>(levels));
    CUlibrary library = nullptr;
    CUkernel of_library = nullptr;
    if (!cuLibraryLoadData(&library, code_texts[0], nullptr, nullptr, 0, nullptr, nullptr, 0)) {
        pool_of<CUlibrary>().put(reinterpret_cast<uintptr_t>(library));
        if (!cuLibraryGetKernel(&of_library, library, "count"))
            pool_of<CUkernel>().put(reinterpret_cast<uintptr_t>(of_library));
    }
    if (player->chance(50) && !cuMemHostAlloc(&host, bytes, 0)) {
        player->mine.put(reinterpret_cast<uintptr_t>(host));
        addresses.put(reinterpret_cast<uintptr_t>(host));
    }
}

// A copy between new memory and a new array, usually of the whole array.
inline void fill_whole(CUDA_MEMCPY3D &copy) {
    CUarray array = nullptr;
    CUdeviceptr memory = 0;
    CUDA_ARRAY3D_DESCRIPTOR description = any_shape(player->random.below(7));
    if (cuArray3DCreate_v2(&array, &description) || cuMemAlloc_v2(&memory, 65536))
        return;
    pool_of<CUarray>().put(reinterpret_cast<uintptr_t>(array));
    addresses.put(memory);
    bool loads = player->chance(50);
    copy = {};
    copy.srcMemoryType = loads ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE;
    copy.dstMemoryType = loads ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_ARRAY;
    copy.srcArray = copy.dstArray = array;
    copy.srcDevice = copy.dstDevice = memory;
    copy.srcPitch = copy.dstPitch = 256;
    copy.srcHeight = copy.dstHeight = 16;
    copy.WidthInBytes = 256;
    copy.Height = copy.Depth = 16;
    fit_array(copy, array, copy.srcXInBytes, copy.srcY);
    fit_slices(copy.Depth, array, copy.srcZ);
}

// A node that copies, often from or to an array, after some of the nodes.
inline CUresult add_copy(CUgraphNode *node, CUgraph graph, const std::vector<CUgraphNode> &nodes,
                         size_t dependencies) {
    CUcontext context = nullptr;
    CUDA_MEMCPY3D copy{};
    if (player->chance(50))
        fill_whole(copy);
    else
        fill(copy);
    cuCtxGetCurrent(&context);
    return cuGraphAddMemcpyNode(node, graph, nodes.data(), dependencies, &copy, context);
}

// Builds a graph of a few nodes that depend on each other, and launches it.
inline void build_graph() {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUstream stream = nullptr;
    if (cuGraphCreate(&graph, 0))
        return;
    pool_of<CUgraph>().put(reinterpret_cast<uintptr_t>(graph));
    std::vector<CUgraphNode> nodes;
    for (uint64_t count = player->random.below(6); count > 0; count--) {
        CUgraphNode node = nullptr;
        CUDA_MEMSET_NODE_PARAMS fill{addresses.any(player->random), 0, 1, 1, 8, 1};
        CUDA_HOST_NODE_PARAMS host{count_call, nullptr};
        size_t dependencies = player->random.below(nodes.size() + 1);
        CUresult status = player->chance(30)   ? add_copy(&node, graph, nodes, dependencies)
                          : player->chance(40) ? cuGraphAddMemsetNode(&node, graph, nodes.data(),
                                                                      dependencies, &fill, nullptr)
                          : player->chance(50)
                              ? cuGraphAddHostNode(&node, graph, nodes.data(), dependencies, &host)
                              : cuGraphAddEmptyNode(&node, graph, nodes.data(), dependencies);
        if (status)
            continue;
        nodes.push_back(node);
        pool_of<CUgraphNode>().put(reinterpret_cast<uintptr_t>(node));
    }
    if (cuGraphInstantiateWithFlags(&exec, graph, 0))
        return;
    pool_of<CUgraphExec>().put(reinterpret_cast<uintptr_t>(exec));
    if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
        return;
    pool_of<CUstream>().put(reinterpret_cast<uintptr_t>(stream));
    for (uint64_t count = player->random.below(3); count > 0; count--)
        cuGraphLaunch(exec, stream);
}

// Captures two streams; sometimes joins the second, and sometimes ends the capture.
inline void capture() {
    CUstream streams[2] = {};
    CUevent events[2] = {};
    CUgraph graph = nullptr;
    for (int i = 0; i < 2; i++) {
        if (cuStreamCreate(&streams[i], static_cast<unsigned>(player->random.below(2))) ||
            cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING))
            return;
        pool_of<CUstream>().put(reinterpret_cast<uintptr_t>(streams[i]));
        pool_of<CUevent>().put(reinterpret_cast<uintptr_t>(events[i]));
    }
    auto mode = static_cast<CUstreamCaptureMode>(player->random.below(3));
    if (cuStreamBeginCapture_v2(streams[0], mode) || cuEventRecord(events[0], streams[0]) ||
        cuStreamWaitEvent(streams[1], events[0], 0))
        return;
    CUdeviceptr memory = 0;
    if (player->chance(50) && !cuMemAllocAsync(&memory, 4096, streams[1]))
        addresses.put(memory);
    cuEventRecord(events[1], streams[1]);
    if (player->chance(70))
        cuStreamWaitEvent(streams[0], events[1], 0);
    if (player->chance(50) && !cuStreamEndCapture(streams[player->chance(10)], &graph))
        pool_of<CUgraph>().put(reinterpret_cast<uintptr_t>(graph));
}

} // namespace fuzz
