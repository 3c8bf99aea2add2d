"""Memory of pools of the host, and of managed pools: copies, kernels, batches and frees."""

import ctypes

import kernels
from ask_placed_pools import KINDS, RECORDED, SIZE, ask_uses, ready
from driver import INT
from section import INITIALISED, Section

section = Section("pool_uses")
question = section.question

for _name, _of in KINDS.items():
    if _name not in RECORDED:
        ask_uses(section, _name, _of)

    def _unified(p, of=_of, devices=True):
        _, stream, address = ready(p, of, devices=devices)
        p.fill_host(address, b"abcdefgh")
        target = p.device(8)
        steps = [p("cuMemcpyAsync", target, address, 8, stream)]
        steps += [p("cuMemcpyAsync", address + 8, target, 8, stream)]
        steps += [p("cuStreamSynchronize", stream)]
        return *steps, p.read(target, 8), p.bytes_at(address + 8, 8)

    section.ask(f"unified copies of {_name}", _unified, alone=True)
    section.ask(
        f"unified copies of {_name} without access",
        lambda p, f=_unified: f(p, devices=False),
        alone=True,
    )

    def _kernel(p, of=_of, devices=True):
        _, stream, address = ready(p, of, devices=devices)
        steps = [kernels.launch_on(p, "store", address, 7, stream=stream)]
        steps += [p("cuStreamSynchronize", stream)]
        return steps if steps[-1] != "SUCCESS" else (*steps, p.bytes_at(address, 4))

    section.ask(f"kernel on {_name}", _kernel, alone=True)
    section.ask(
        f"kernel on {_name} without access", lambda p, f=_kernel: f(p, devices=False), alone=True
    )


@question("batches with memory of a managed pool")
def _(p):
    _, stream, address = ready(p, KINDS["managed"])
    addresses, sizes = (ctypes.c_uint64 * 1)(address), (ctypes.c_size_t * 1)(SIZE)
    where, index = (ctypes.c_uint64 * 1)(1), (ctypes.c_size_t * 1)(0)
    to = (where, index, 1)
    return (
        p("cuMemPrefetchBatchAsync", addresses, sizes, 1, *to, 0, stream),
        p("cuMemDiscardBatchAsync", addresses, sizes, 1, 0, stream),
        p("cuMemDiscardAndPrefetchBatchAsync", addresses, sizes, 1, *to, 0, stream),
        p("cuStreamSynchronize", stream),
    )


@question("free managed memory of cuMemAllocManaged asynchronously")
def _(p):
    return p("cuMemFreeAsync", p.managed(), p.stream())


for _number, _name in ((142, "node pools"), (144, "host pools"), (119, "handle types")):
    section.ask(
        f"device attribute: {_name}",
        lambda p, n=_number: p.get("cuDeviceGetAttribute", INT, n, 0),
        setup=INITIALISED,
    )
