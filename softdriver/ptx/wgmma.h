#pragma once

#include "ptx/matrix.h"

// This header has what decode_wgmma.cpp and wgmma.cpp share. In wgmma, the four warps of a
// warpgroup compute D = A * B + D together. D has 64 rows, of which each warp has 16 in its
// registers. A row of A and a column of B have 32 bytes. B, and mostly A, are in shared memory.

namespace soft::ptx {

constexpr unsigned warps_of_group = 4, rows_of_warp = 16, most_columns = 256;

// Returns how many items a row of A or a column of B has.
constexpr unsigned inner_items(Item item) { return 256 / bits_of(item); }

// Step::place of wgmma.mma_async is the index in Code::fragments of the fragments of D, A and B.
// The fragment of A has no registers if A is in shared memory, and the fragment of B never has any.
// The rows of the step:
constexpr unsigned descriptor_of_a = 0, descriptor_of_b = 1, adds_to_d = 2;
// The flags in Step::detail. With a transposed matrix, items that follow each other in memory
// belong to a column of A or to a row of B.
constexpr uint16_t saturates_bit = 1, negates_bit = 2, transposes_a_bit = 4, transposes_b_bit = 8;

// The handler of wgmma.mma_async.
void multiply_together(Warp &warp, const Step &step);

} // namespace soft::ptx
