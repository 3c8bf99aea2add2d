#include "memory/graph_memory.h"

#include "api/state.h"

namespace soft {

GraphMemoryPtr give_to_graph(Allocation &allocation) {
    auto memory = std::make_shared<GraphMemory>();
    memory->address = allocation.begin;
    memory->allocation = allocation.id;
    allocation.graph = memory;
    allocation.captured = allocation.of_graph = true;
    return memory;
}

Allocation *find_allocation(const GraphMemory &memory) {
    Allocation *allocation = find_start(memory.address);
    return allocation && allocation->id == memory.allocation ? allocation : nullptr;
}

void set_there(Allocation &allocation, bool there) {
    allocation.captured = !there;
    if (GraphMemoryPtr memory = allocation.graph.lock())
        memory->there = there;
    note_graph_memory(*allocation.device);
}

// Nothing can use the address any more, unless the program still has to free the memory.
GraphMemory::~GraphMemory() {
    Allocation *allocation = find_allocation(*this);
    if (allocation && !there)
        free_allocation(*allocation);
}

} // namespace soft
