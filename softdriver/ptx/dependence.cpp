#include "ptx/decoder.h"
#include "ptx/families.h"
#include "ptx/machine.h"

// This file decodes and runs griddepcontrol.

namespace soft::ptx {

namespace {

void launch_dependents(Warp &warp, const Step &) {
    warp.machine.allow(warp.block);
    if (warp.block.held)
        warp.yield();
}

void wait_for_prerequisite(Warp &warp, const Step &step) {
    const auto &prerequisite = warp.machine.launch.prerequisite;
    if (!prerequisite)
        return;
    if (prerequisite->ended) {
        warp.waited = true;
        warp.machine.memory.select(true);
        return;
    }
    warp.machine.waited = true;
    warp.send(&step, warp.active);
    warp.yield();
}

void decode_dependence(Decoder &decoder) {
    int which = decoder.take_any({"launch_dependents", "wait"});
    if (which < 0)
        decoder.refuse(".launch_dependents or .wait is missing");
    decoder.expect_operands(0);
    decoder.emit(which ? wait_for_prerequisite : launch_dependents);
}

} // namespace

void add_dependence(Opcodes &opcodes) { opcodes["griddepcontrol"] = decode_dependence; }

} // namespace soft::ptx
