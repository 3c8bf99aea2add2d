#include "api/call.h"
#include "graph/graph.h"

#include <cstdio>

// cuGraphDebugDotPrint, which writes a graph as a text for graphviz.

namespace soft {
namespace {

constexpr unsigned picture_flags = 0xffff;
constexpr unsigned shows_everything = CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE;

std::string identifier(const Graph &graph, unsigned node) {
    return "\"graph_" + std::to_string(graph.id) + "_node_" + std::to_string(node) + "\"";
}

void draw(const Graph &graph, bool verbose, std::string &text) {
    text += "subgraph cluster_" + std::to_string(graph.id) + " {\nlabel=\"graph_" +
            std::to_string(graph.id) + "\"\n";
    for (const auto &entry : graph.nodes) {
        const NodeWork &work = *entry.second->work;
        unsigned number = entry.second->number;
        text += identifier(graph, number) + " [shape=\"rectangle\" label=\"" +
                std::to_string(number) + "\\n" + name_of(work.type());
        if (!work.text().empty())
            text += "\\n" + work.text();
        if (verbose)
            text += "\\nid " + std::to_string(entry.first);
        text += "\"];\n";
    }
    for (const auto &entry : graph.nodes)
        for (const Edge &edge : entry.second->after)
            text += identifier(graph, graph.find(edge.from)->number) + " -> " +
                    identifier(graph, entry.second->number) + ";\n";
    text += "}\n";
    for (const auto &entry : graph.nodes)
        for (const GraphPtr &inner : entry.second->work->inner())
            draw(*inner, verbose, text);
}

} // namespace

SOFT_API(cuGraphDebugDotPrint, (CUgraph handle, const char *path, unsigned flags),
         (handle, path, flags)) {
    GraphPtr graph = find_graph(handle);
    if (!graph || !path || (flags & ~picture_flags))
        return CUDA_ERROR_INVALID_VALUE;
    std::string text = "digraph dot {\n";
    draw(*graph, flags & shows_everything, text);
    text += "}\n";
    std::FILE *file = std::fopen(path, "w");
    if (!file)
        return CUDA_ERROR_OPERATING_SYSTEM;
    bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    return std::fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

} // namespace soft
