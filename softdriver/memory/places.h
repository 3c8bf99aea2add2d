#pragma once

#include "base/range.h"
#include "memory/pages.h"

#include <cstdint>
#include <vector>

namespace soft {

struct Device;
struct Managed;

// The places of the pages of managed memory. The host uses pages without calling the driver, so the
// driver finds these uses later, before it changes or reads the place of a page. It finds them in
// the program's page table: the driver removes a page from this table when the page is no longer on
// the host, and the system puts the page back when the host uses it.

// How often blocks have been moved or copied because the host, or a device, used them while they
// were elsewhere.
struct PageFaults {
    uint64_t host = 0, device = 0;
};

// Returns an error if managed memory cannot be at this location. If the location is the host, sets
// its id to CU_DEVICE_CPU.
CUresult check_page_place(CUmemLocation &location);
CUmemLocation location_of_processor(int processor);
inline int processor_at(const CUmemLocation &location) {
    return location.type == location_device ? location.id : the_host;
}

// Called after work of a device has used these bytes. Blocks to which the device has no access at
// their current place are moved to the device or copied. Ignores bytes outside of managed memory.
void use_pages(Device &device, const std::vector<Range> &reads, const std::vector<Range> &writes);
// Moves pages to a processor, or gives it a copy if they are mostly read.
void move_pages(const Pages &pages, int processor);
void set_read_mostly(const Pages &pages, bool read_mostly);
// Sets the place of pages to `nowhere`, because their bytes are not needed any more.
void empty_pages(const Pages &pages);
// Called when the memory is about to be unmapped.
void forget_pages(Managed &managed);
// If managed memory exceeds the capacity of the device, moves some of its pages to the host. The
// pages that have not been used for longest go first.
void make_room(Device &device);
// Updates places and copies after uses and writes of the host since the last call. The driver does
// not see uses of the host when they happen.
void notice_host(const Pages &pages);
// Returns the sum of the faults of all blocks that contain these pages.
PageFaults faults_of(const Pages &pages);

} // namespace soft
