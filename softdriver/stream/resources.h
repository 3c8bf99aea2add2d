#pragma once

#include "device/device.h"

namespace soft {

// How streams of a green context share queues. This driver's streams need no queues of a device, so
// these are only numbers that the program can read back.
struct Queues {
    unsigned limit = 0; // streams that are expected to run at once
    int scope = 0;      // a CUdevWorkqueueConfigScope
};

// What a green context is made of.
struct Parts {
    int device = 0; // its ordinal
    unsigned processors = 0;
    Queues queues;
};

// Returns all multiprocessors of the device, and the queues that contexts have by default.
Parts whole(const Device &device);
// Writes one type of resource of `parts` for the program.
CUresult write_resource(const Parts &parts, CUdevResourceType type, CUdevResource *target);
// Returns the resources of a description that cuDevResourceGenerateDesc has made, or null if the
// description is unknown.
const Parts *described(CUdevResourceDesc description);

} // namespace soft
