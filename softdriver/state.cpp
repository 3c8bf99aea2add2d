#include "state.h"

#include <cstdlib>

namespace soft {

State::State() {
    if (const char *text = std::getenv("CUDADRV_SOFTWARE"))
        environment_error = apply_settings(text, settings);
    random = Random(settings.seed);
}

void State::create_devices() {
    for (const auto &device : devices)
        if (device->primary)
            contexts.erase(reinterpret_cast<uintptr_t>(device->primary->handle));
    devices.clear();
    for (int i = 0; i < settings.devices; i++)
        devices.push_back(std::make_unique<Device>(i));
}

State &state() {
    static State *immortal = new State;
    return *immortal;
}

} // namespace soft
