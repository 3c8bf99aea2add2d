#pragma once

#include "api/control.h"
#include "base/handles.h"
#include "base/settings.h"
#include "check/hazards.h"
#include "code/code_library.h"
#include "code/kernel_fault.h"
#include "code/link.h"
#include "explore/search.h"
#include "graph/exec.h"
#include "memory/allocation.h"
#include "memory/array.h"
#include "memory/freed.h"
#include "memory/host_uses.h"
#include "memory/location.h"
#include "memory/saved.h"
#include "race/races.h"
#include "stream/capture.h"
#include "stream/event.h"
#include "texture/objects.h"
#include "work/schedule.h"
#include "work/steps.h"

#include <map>
#include <mutex>
#include <tuple>

namespace soft {

// The whole state of the driver, guarded by one mutex. It is never destroyed, because workers and
// late destructors of the program may still use it while the process exits.
struct State {
    State();

    std::mutex mutex;
    Settings settings;
    std::string environment_error;
    bool initialised = false;
    explore::Chooser chooser;
    std::vector<std::unique_ptr<Device>> devices;
    // Devices that a change of the setting `devices` has removed. They are kept because destroyed
    // contexts still point to them.
    std::vector<std::unique_ptr<Device>> retired;
    HandleTable<Context> contexts{0x5c0000001000};
    HandleTable<Stream> streams{0x5c1000001000};
    HandleTable<Event> events{0x5c2000001000};
    HandleTable<Graph> graphs{0x5c3000001000};
    HandleTable<GraphNode> nodes{0x5ca000001000};
    HandleTable<GraphExec> execs{0x5cb000001000};
    HandleTable<OwnedObject> user_objects{0x5cc000001000};
    std::map<uint64_t, std::weak_ptr<Condition>> conditions; // of conditional nodes, by handle
    HandleTable<Pool> pools{0x5c4000001000};
    HandleTable<Module> modules{0x5c5000001000};
    HandleTable<KernelFunction> functions{0x5c6000001000};
    HandleTable<CodeLibrary> libraries{0x5c7000001000};
    HandleTable<LibraryKernel> kernels{0x5c8000001000};
    HandleTable<Link> links{0x5c9000001000};
    HandleTable<Backing> backings{0x5cd000001000};
    HandleTable<Array> arrays{0x5ce000001000};
    HandleTable<Mipmap> mipmaps{0x5cf000001000};
    HandleTable<TextureObject> textures{0x5d0000001000};
    HandleTable<TextureObject> surfaces{0x5d1000001000};
    HandleTable<TextureReference> references{0x5d2000001000};
    // The pools of memory that is not device memory, by kind of memory, and by type and id of the
    // location.
    std::map<std::tuple<MemoryKind, int, int>, PoolSlot> pool_slots;
    std::vector<CapturePtr> captures; // captures in progress
    std::map<uintptr_t, Allocation> allocations;
    Freed freed;
    FreedAddresses freed_addresses;
    KernelFault kernel_fault;
    uint64_t live_allocations[memory_kinds] = {}; // number of live allocations of each MemoryKind
    uint64_t live_bytes = 0;
    uint64_t live_reservations = 0;
    uint64_t next_id = 16;
    uint64_t next_operation = 1, next_allocation = 1, next_condition = 1;
    Scheduler scheduler;
    Steps steps;
    // For exploring (see api/explore.h): what was explored, the next run, and the memory before.
    explore::Search search;
    explore::Search::Plan plan;
    bool planned = false;      // the run follows the plan
    bool places_looks = false; // planned runs look for the lines of the host's steps
    SavedMemory saved;
    HostUses host_uses;
    bool maps_twice = false; // page-locked memory that is allocated now: see cudadrvSoftMapTwice
    Races races;
    Hazards hazards;
    cudadrvSoftWords words = {};

    uint64_t new_id() { return next_id++; }
    // Under the random schedule, returns the generator with which handle tables decide to reuse a
    // handle; otherwise null.
    Random *reuse() { return settings.schedule == Schedule::Random ? &chooser.random() : nullptr; }
    void create_devices();
    // Starts the choices again, from the seed or with the script, so that later choices do not
    // depend on earlier calls.
    void start_choosing();
    // Begins a run under replay, whose steps are recorded.
    void start_run();
};

State &state();

} // namespace soft
