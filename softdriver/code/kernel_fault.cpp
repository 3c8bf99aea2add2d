#include "code/kernel_fault.h"

#include "api/state.h"
#include "base/notes.h"
#include "race/race_names.h"

#include <cstdio>
#include <utility>

namespace soft {

void KernelFault::tell() {
    if (std::exchange(told, true))
        return;
    if (print)
        std::fprintf(stderr, "%s\n", text.c_str());
    note(Note::KernelFault, text);
}

void name_kernel_fault(Lock &lock) {
    KernelFault &fault = state().kernel_fault;
    if (fault.told)
        return;
    cudadrvSoftWords client = state().words;
    KernelFault asked = fault;
    std::string memory, made, launch;
    bool freed = is_freed(asked.address);
    lock.unlock();
    bool answered = name_memory(client, asked.address, freed, memory, made) &&
                    name_operation(client, asked.label, launch);
    acquire(lock);
    // Meanwhile another thread may have named the error, or another kernel may have failed.
    if (!answered || fault.told || fault.text != asked.text)
        return;
    if (!memory.empty())
        fault.text += " (" + memory + (made.empty() ? "" : ", made at " + made) + ")";
    if (!launch.empty())
        fault.text += "; " + launch;
    fault.tell();
}

} // namespace soft
