#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace soft {

// Returns true if the process has mapped the whole range and, with `to_write`, can write to it.
// Only such memory can be page-locked.
bool is_mapped(uintptr_t begin, size_t bytes, bool to_write);
// Returns true if other processes may have mapped part of this memory.
bool is_shared(uintptr_t begin, size_t bytes);

// Calls a function with the number of each of these pages that is in the process's page table: the
// program has used it, or a page near it, since it was mapped or removed from the table. `begin` is
// where a page begins. Visits nothing if the system does not show the table.
void visit_present(const char *begin, size_t pages, const std::function<void(size_t)> &visit);
bool sees_page_table();

} // namespace soft
