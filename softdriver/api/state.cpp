#include "api/state.h"

#include "api/explore_process.h"
#include "api/explore_server.h"
#include "api/report.h"
#include "base/undefined.h"
#include "check/kernel_init.h"
#include "device/visible.h"
#include "stream/transfer.h"

#include <cstdlib>

namespace soft {

State::State() {
    if (const char *text = std::getenv("CUDADRV_SOFTWARE"))
        environment_error = apply_settings(text, settings);
    serve_runs(settings.explore);
    undefined_memory().turn(settings.checks & check_init);
    take_undefined_copies(check::report_undefined_copy);
    report_to(settings.report);
    start_choosing();
    follow_plan(*this);
}

void State::create_devices() {
    for (const auto &device : devices)
        if (device->primary)
            contexts.erase(reinterpret_cast<uintptr_t>(device->primary->handle));
    destroy_pools();
    destroy_reservations();
    std::vector<int> visible = visible_devices(settings.devices);
    size_t wanted = visible.size();
    for (; devices.size() > wanted; devices.pop_back())
        retired.push_back(std::move(devices.back()));
    while (devices.size() < wanted && !retired.empty()) {
        devices.push_back(std::move(retired.back()));
        retired.pop_back();
    }
    while (devices.size() < wanted)
        devices.push_back(std::make_unique<Device>(static_cast<int>(devices.size())));
    for (const auto &device : devices) {
        device->renew();
        device->place = visible[device->ordinal];
    }
}

void State::start_run() {
    steps.start({next_operation, next_allocation, next_condition});
    host_uses.start();
}

void State::start_choosing() {
    Script script;
    if (settings.schedule == Schedule::Replay && parse_script(settings.script, script)) {
        chooser.start_replay(std::move(script));
        start_run();
    } else {
        chooser.start_drawing(settings.seed);
    }
    contexts.clear_freed();
    streams.clear_freed();
    events.clear_freed();
    graphs.clear_freed();
    nodes.clear_freed();
    execs.clear_freed();
    user_objects.clear_freed();
    modules.clear_freed();
    functions.clear_freed();
    libraries.clear_freed();
    kernels.clear_freed();
    links.clear_freed();
}

State &state() {
    static State *immortal = new State;
    return *immortal;
}

} // namespace soft
