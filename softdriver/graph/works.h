#pragma once

#include "graph/graph.h"
#include "memory/graph_memory.h"

namespace soft {

struct Call;
struct Event;
struct PreparedLaunch;
struct Transfer;

// Functions that make the work of nodes, one group for each kind of node. The functions that take
// the parameters of the program check them.

// If `old` is not null, the new work gets the attributes of this old work of the node.
CUresult make_kernel_work(Call &call, const CUDA_KERNEL_NODE_PARAMS_v2 *params, NodeWorkPtr &work,
                          const NodeWork *old = nullptr);
// Returns an error if no node can have this launch.
CUresult check_node(const PreparedLaunch &launch);
NodeWorkPtr make_kernel_work(PreparedLaunch launch, CUfunction handle);

// A null context means the current one.
CUresult make_copy_work(Call &call, const CUDA_MEMCPY3D_v2 *params, CUcontext context,
                        NodeWorkPtr &work);
NodeWorkPtr make_copy_work(const Transfer &transfer, const ContextPtr &context);

CUresult make_fill_work(Call &call, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context,
                        NodeWorkPtr &work);
NodeWorkPtr captured_fill_work(const CUDA_MEMSET_NODE_PARAMS &params, const ContextPtr &context);

CUresult make_host_work(const CUDA_HOST_NODE_PARAMS *params, NodeWorkPtr &work);
NodeWorkPtr make_empty_work();

// The work of a node that records an event, or waits for one.
CUresult make_record_work(CUevent event, NodeWorkPtr &work);
CUresult make_wait_work(CUevent event, NodeWorkPtr &work);

// The work of a node of `parent` that runs another graph. With ownership 1 the node owns the graph
// from now on, else a copy of the graph.
CUresult make_child_work(Graph &parent, CUgraph child, int ownership, NodeWorkPtr &work);
// Updates the graph of a child graph node in an executable graph.
CUresult update_child(CUgraphExec exec, CUgraphNode handle, CUgraph child);

CUresult make_alloc_work(Call &call, CUDA_MEM_ALLOC_NODE_PARAMS *params, NodeWorkPtr &work);
NodeWorkPtr make_alloc_work(const CUDA_MEM_ALLOC_NODE_PARAMS &params, GraphMemoryPtr memory,
                            const ContextPtr &context);
// Returns an error if a node of the graph already frees the memory.
CUresult make_free_work(const Graph &graph, CUdeviceptr address, NodeWorkPtr &work);
NodeWorkPtr make_free_work(CUdeviceptr address, const ContextPtr &context);
// Returns true if a node of the graph allocates or frees memory.
bool allocates(const Graph &graph);
// Returns true for graphs that allocate memory or have conditional nodes. Such a graph cannot be
// cloned or have two executable graphs at a time, and a child graph node cannot have a copy of it.
bool is_unique(const Graph &graph);

CUresult make_value_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, NodeWorkPtr &work);
NodeWorkPtr make_value_work(std::vector<CUstreamBatchMemOpParams> items, const ContextPtr &context);

// Returns the context to which the memory belongs, or the given context for memory of a pool and
// for unknown addresses.
CUcontext home_of(uintptr_t address, const Context &context);

// An operation that loses the device, because a node uses memory that is not there.
OperationPtr failing_operation(CUresult status);

} // namespace soft
