#pragma once

#include "ptx/decoder.h"

// Each function adds a family of instructions to the table of opcodes.

namespace soft::ptx {

using Opcodes = std::unordered_map<std::string_view, Decode>;

// Decodes a call of a function that the driver provides, such as vprintf.
void decode_provided_call(Decoder &decoder, const Function &function, const Operand *results,
                          const Operand *arguments);
// Returns whether the driver provides a function of this name, if the program does not define it.
bool is_provided(const std::string &name);
// Decodes a call of malloc or free. Returns false if it is a call of another function.
bool decode_heap_call(Decoder &decoder, const std::string &function, const Operand *results,
                      const Operand *arguments);
// Returns whether this is the malloc or free that the driver provides.
bool is_heap_function(const Function &function);

// Decodes the rest of barrier.cluster.
void decode_cluster_barrier(Decoder &decoder);

void add_load_store(Opcodes &opcodes);
void add_moves(Opcodes &opcodes);
void add_control(Opcodes &opcodes);
void add_barriers(Opcodes &opcodes);
void add_integer(Opcodes &opcodes);
void add_bits(Opcodes &opcodes);
void add_comparisons(Opcodes &opcodes);
void add_conversions(Opcodes &opcodes);
void add_float(Opcodes &opcodes);
void add_approximate(Opcodes &opcodes);
void add_atomics(Opcodes &opcodes);
void add_shuffles(Opcodes &opcodes);
void add_stack(Opcodes &opcodes);
void add_clusters(Opcodes &opcodes);
void add_dependence(Opcodes &opcodes);
void add_mbarriers(Opcodes &opcodes);
void add_copies(Opcodes &opcodes);
void add_matrix_moves(Opcodes &opcodes);
void add_matrix_products(Opcodes &opcodes);
void add_wmma(Opcodes &opcodes);
void add_wgmma(Opcodes &opcodes);
void add_tensor_maps(Opcodes &opcodes);
void add_video(Opcodes &opcodes);
void add_textures(Opcodes &opcodes);
void add_surfaces(Opcodes &opcodes);

} // namespace soft::ptx
