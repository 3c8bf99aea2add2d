#pragma once

#include "base/cuda_api.h"

namespace soft {

// The structures of cuGraphAddNode, which older headers lack.

struct CopyNodeParams {
    int flags, reserved;
    CUcontext context;
    CUDA_MEMCPY3D_v2 copy;
};

struct FillNodeParams {
    CUDA_MEMSET_NODE_PARAMS fill;
    CUcontext context;
};

struct ChildNodeParams {
    CUgraph graph;
    int ownership; // 0: the node gets a copy of the graph, 1: the graph itself
};

struct ConditionalNodeParams {
    uint64_t handle;
    int type; // 0: if, 1: while, 2: switch
    unsigned count;
    CUgraph *graphs;
    CUcontext context;
};

// A CUgraphNodeParams.
struct NodeParams {
    int type;
    int reserved[3];
    union {
        long long words[29];
        CUDA_KERNEL_NODE_PARAMS_v2 kernel;
        CopyNodeParams copy;
        FillNodeParams fill;
        CUDA_HOST_NODE_PARAMS host;
        ChildNodeParams child;
        CUevent event;
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        CUdeviceptr free;
        CUDA_BATCH_MEM_OP_NODE_PARAMS values;
        ConditionalNodeParams conditional;
    };
    long long last_reserved;
};
static_assert(sizeof(NodeParams) == 256, "as in cuda.h");

} // namespace soft
