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

// Calls `visit` with the index of each of these pages that is in the process's page table. The
// program has used such a page, or a page near it, since the page was mapped or last removed from
// the table. `begin` must be the beginning of a page. Visits nothing if the system does not show
// the table.
void visit_present(const char *begin, size_t pages, const std::function<void(size_t)> &visit);
bool sees_page_table();

} // namespace soft
