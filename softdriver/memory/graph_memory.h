#pragma once

#include <cstdint>
#include <memory>

namespace soft {

struct Allocation;
struct Device;

// Memory that a node of a graph allocates. The address belongs to the graph, and to its executable
// graphs. If the graph does not free the memory, it stays allocated after a launch. It is then an
// allocation like any other, and the program can free it.
struct GraphMemory {
    uintptr_t address = 0;
    uint64_t allocation = 0; // the id of the allocation
    bool there = false;      // the memory is allocated

    ~GraphMemory();
};

using GraphMemoryPtr = std::shared_ptr<GraphMemory>;

// Makes an allocation the memory of a node, which has not been launched.
GraphMemoryPtr give_to_graph(Allocation &allocation);
// Returns the allocation of the memory, or null if it was freed with its context.
Allocation *find_allocation(const GraphMemory &memory);
// Updates how much memory the device holds for graphs. Called when graphs have allocated memory.
void note_graph_memory(Device &device);
// Marks the memory as allocated or as freed, as the program sees it.
void set_there(Allocation &allocation, bool there);

} // namespace soft
