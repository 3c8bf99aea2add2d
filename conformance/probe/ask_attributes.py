"""Device attributes: which exist; values that every device shares or that programs rely on."""

from driver import INT
from section import INITIALISED, Section

section = Section("attributes", setup=INITIALISED)

SHARED = """
1 max threads per block|2 max block x|3 max block y|4 max block z|5 max grid x|6 max grid y
7 max grid z|8 max shared memory per block|9 constant memory|10 warp size|11 max pitch
12 registers per block|14 texture alignment|15 overlap|17 kernel timeout|18 integrated
19 can map host memory|20 compute mode|31 concurrent kernels|32 error correction|35 tcc
39 max threads per multiprocessor|40 async engines|41 unified addressing
51 texture pitch alignment|75 capability major|76 capability minor|78 stream priorities
79 global l1|80 local l1|81 shared memory per multiprocessor|82 registers per multiprocessor
83 managed memory|84 multi gpu board|86 host native atomics|88 pageable memory access
89 concurrent managed access|90 compute preemption|91 host pointer for registered memory
92 stream memory operations v1|93 64 bit memory operations v1|94 wait value nor v1
95 cooperative launch|96 cooperative multi device|97 max shared memory per block opt in
98 flush remote writes|99 host register|100 pageable by host page tables
101 direct managed access from host|102 virtual memory management|103 handle posix
106 max blocks per multiprocessor|107 generic compression|110 gpudirect with vmm
111 reserved shared memory per block|112 sparse arrays|113 read only host register
114 timeline semaphores|115 memory pools|116 gpudirect rdma|117 flush writes options
118 writes ordering|119 pool handle types|120 cluster launch|121 deferred mapping
122 64 bit memory operations|123 wait value nor|124 dma buf|125 ipc events
126 memory synchronisation domains|127 tensor maps|128 fabric handles|129 unified functions
130 numa config|131 numa id|132 multicast|133 mps|134 host numa id|135 d3d12|136 decompress
141 host numa vmm|142 host numa memory pools|143 host numa multinode ipc
"""

for entry in SHARED.strip().replace("\n", "|").split("|"):
    number, _, name = entry.partition(" ")
    section.ask(
        f"{name} ({number})", lambda p, n=int(number): p.get("cuDeviceGetAttribute", INT, n, 0)
    )

for number in range(1, 161):
    section.ask(
        f"attribute {number} exists",
        lambda p, n=number: p("cuDeviceGetAttribute", p.cell(), n, 0),
    )
