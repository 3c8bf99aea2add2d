"""The report on the processes of a command, as text and as JSON."""

import re
import sys

import pytest

TOLD = "==== cudadrv run: software driver (not a GPU) "


def process(ran):
    [only] = ran.report["processes"]
    return only


def test_a_program_with_nothing_to_tell(python):
    ran = python("initialise()\ncuda.cuDevicePrimaryCtxRelease_v2(0)", "--seed", "3")
    assert (ran.status, ran.out) == (0, "")
    assert ran.err.splitlines() == [
        TOLD.ljust(80, "="),
        "1 process made 4 calls (seed=3)",
        "Calls that are not supported: none",
        "Images that cannot run: none",
        "Kernel faults: none",
        "Data races: none",
        "Alive at the end: nothing",
    ]


def test_calls_that_are_not_supported(python):
    ran = python("unsupported(3)\ncuda.cuCheckpointProcessUnlock(0)")
    assert "Calls that are not supported: 4\n        3 cuCheckpointProcessLock\n" in ran.err
    assert ran.report["unsupported_calls"] == {
        "cuCheckpointProcessLock": 3,
        "cuCheckpointProcessUnlock": 1,
    }
    assert ran.report["calls"] == 4


def test_calls_that_an_implemented_function_refuses(python):
    """The report has each refused call, with the argument and the reason."""
    graphics = "(ctypes.c_uint64 * 3)(0, 0, 16)"  # only cigParams is not null
    sparse = "struct.pack('QQQiIIxxxx', 16, 8, 0, 32, 1, 0x40)"
    ran = python(f"""
import struct
initialise()
made = ctypes.c_void_p()
for i in range(3):
    print(cuda.cuCtxCreate_v4(ctypes.byref(made), {graphics}, 0, 0))
print(cuda.cuArray3DCreate_v2(ctypes.byref(made), {sparse}))
unsupported()
""")
    assert ran.out == "801\n" * 4
    context = "cuCtxCreate_v4: cigParams: contexts that share resources with graphics"
    array = (
        "cuArray3DCreate_v2: arrays with the flags 0x40: sparse, or with memory that comes later"
    )
    assert ran.report["refused_calls"] == {context: 3, array: 1}
    assert ran.report["unsupported_calls"] == {"cuCheckpointProcessLock": 1}
    assert f"Calls that are not supported: 5\n        3 {context}\n" in ran.err
    assert f"        1 {array}\n" in ran.err


def test_an_injected_refusal_says_where_it_comes_from(python):
    ran = python(
        "initialise()\nprint(cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), 9))",
        CUDADRV_SOFTWARE="fault=cuMemAlloc_v2:1:801",
    )
    assert ran.out == "801\n"
    why = "the setting fault= asks for this error"
    assert ran.report["refused_calls"] == {f"cuMemAlloc_v2: {why}": 1}


def test_many_kinds_of_refused_calls(python):
    """The report has only the first 256 kinds of refused calls."""
    ran = python("""
import struct
initialise()
made = ctypes.c_void_p()
for types in range(2, 602, 2):
    properties = struct.pack('iiii16x', 1, types, 1, 0)
    assert cuda.cuMemCreate(ctypes.byref(made), ctypes.c_size_t(1 << 21), properties, 0) == 801
""")
    assert len(ran.report["refused_calls"]) == 256
    first = "cuMemCreate: requestedHandleTypes 2: only file descriptors (1) are"
    assert ran.report["refused_calls"][first] == 1


def test_variants_of_a_function_are_counted_apart(python):
    """The calls of a function and of its per-thread variant are counted separately."""
    name = "cuSignalExternalSemaphoresAsync"
    ran = python(f"cuda.{name}(0)\nfor i in range(2): cuda.{name}_ptsz(0)")
    assert ran.report["unsupported_calls"] == {
        name: 1,
        f"{name}_ptsz": 2,
    }


def test_a_kernel_fault(python):
    ran = python("initialise()\nkernel_fault()")
    assert ran.status == 0
    [fault] = ran.report["kernel_faults"]
    assert fault["pid"] == process(ran)["pid"]
    assert fault["text"].startswith("kernel 'writes_nowhere', PTX line 11: st.global.u32: write")
    assert "Kernel faults: 1\n" in ran.err
    # The text is printed when the fault happens, and again in the report.
    assert ran.err.count(fault["text"]) == 2


@pytest.mark.parametrize("mode", ["record", "print"])
def test_a_race_with_both_operations(python, mode):
    ran = python("initialise()\nrace()\nprint(cuda.cuCtxSynchronize())", "--races", mode)
    assert ran.out == "0\n"
    [race] = ran.report["data_races"]
    assert len(re.findall("cuMemsetD8Async on stream", race["text"])) == 2
    assert ran.err.count(race["text"]) == {"record": 1, "print": 2}[mode]


def test_a_race_that_ends_the_process(python):
    ran = python("initialise()\nrace()", "--races=abort")
    assert ran.status == 128 + 6
    assert len(ran.report["data_races"]) == 1
    assert process(ran)["end"] == "unknown"
    assert ran.report["alive_at_exit"]["streams"] == 2


def test_races_that_nobody_looks_for(python):
    ran = python("initialise()\nrace()", "--races", "off")
    assert ran.report["data_races"] == []
    assert "Data races: not looked for (races=off)" in ran.err


@pytest.mark.parametrize("mode", ["record", "print"])
def test_a_hazard_in_a_kernel(python, mode):
    ran = python("initialise()\nhazard()", "--checks=race", "--hazards", mode)
    assert ran.status == 0
    [hazard] = ran.report["hazards"]
    assert hazard["pid"] == process(ran)["pid"]
    assert hazard["text"].startswith("race in kernel 'exchange' on bytes ")
    assert "of shared memory 'tile': " in hazard["text"]
    assert "Hazards in kernels: 1\n" in ran.err
    assert ran.err.count(hazard["text"]) == {"record": 1, "print": 2}[mode]


def test_a_hazard_that_ends_the_process(python):
    ran = python("initialise()\nhazard()", "--checks", "all", "--hazards=abort")
    assert ran.status == 128 + 6
    assert len(ran.report["hazards"]) == 1


def test_hazards_that_nobody_looks_for(python):
    ran = python("initialise()\nhazard()")
    assert ran.report["hazards"] == []
    assert "Hazards" not in ran.err
    ran = python("initialise()\nhazard()", "--checks=sync")
    assert ran.report["hazards"] == []
    assert "Hazards in kernels: none\n" in ran.err


ARRAY = """
import struct
given = struct.pack("QQQiIIxxxx", 16, 8, 0, 32, 1, 2) # floats, for surfaces
array, texture, surface = (ctypes.c_void_p() for _ in range(3))
cuda.cuArray3DCreate_v2(ctypes.byref(array), given)
resource = struct.pack("ixxxxQ", 0, array.value).ljust(256, bytes(1))
cuda.cuTexObjectCreate(ctypes.byref(texture), resource, bytes(256), None)
cuda.cuSurfObjectCreate(ctypes.byref(surface), resource)
"""


def test_arrays_and_their_objects_that_are_alive(python):
    ran = python(f"import ctypes\ninitialise()\n{ARRAY}")
    alive = {"arrays": 1, "bytes": 512, "textures": 1, "surfaces": 1}
    assert ran.report["alive_at_exit"] == alive
    assert "1 array, 1 texture object, 1 surface object" in ran.err


def test_a_mistake_that_a_gpu_accepts(python):
    """A surface of an array without its flag: it works, and the report has it once."""
    array = ARRAY.replace("1, 2) #", "1, 0) #") + "print(surface.value > 0)"
    ran = python(f"import ctypes\ninitialise()\n{array}\n{array}")
    assert ran.out == "True\n" * 2
    [warning] = ran.report["warnings"]
    assert "without CUDA_ARRAY3D_SURFACE_LDST" in warning["text"]
    assert "Mistakes that a GPU accepts: 1\n" in ran.err


BEYOND = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry beyond()
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    .shared .align 8 .b8 block[100];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 3;
    mov.u32 %r3, block;
    add.u32 %r2, %r2, %r3;
    ld.shared.u64 %rd1, [%r2];
    ret;
}
"""
BEYOND_BY_A_WRITE = BEYOND.replace(b"ld.shared.u64 %rd1, [%r2]", b"st.shared.u64 [%r2], 1")


@pytest.mark.parametrize(
    ("code", "threads", "rounding", "status", "warnings"),
    [
        (BEYOND, 12, "1", 0, 0),
        (BEYOND, 13, "1", 700, 0),
        (BEYOND, 13, "8", 0, 1),
        (BEYOND, 13, "128", 0, 1),
        (BEYOND, 16, "128", 0, 1),
        (BEYOND, 17, "128", 700, 1),
        (BEYOND_BY_A_WRITE, 13, "128", 700, 0),
    ],
)
def test_reads_beyond_shared_memory(python, code, threads, rounding, status, warnings):
    """With shared_rounding=N such reads are allowed, and reported once for each instruction."""
    ran = python(
        f"""
initialise()
module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
call("cuModuleLoadData", ctypes.byref(module), {code!r})
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"beyond")
for i in range(2):
    call("cuLaunchKernel", kernel, 3, 1, 1, {threads}, 1, 1, 0, None, None, None)
print(cuda.cuCtxSynchronize())
""",
        CUDADRV_SOFTWARE=f"shared_rounding={rounding},schedule=lazy",
    )
    assert ran.out == f"{status}\n"
    found = [warning["text"] for warning in ran.report["warnings"]]
    told = "ld.shared.u64: read of 8 bytes beyond the 100 bytes of shared memory"
    assert found == [f"kernel 'beyond', PTX line 14: {told}"] * warnings


def test_what_is_alive_at_the_end(python):
    ran = python("initialise()\nallocate(1000)\nstream()\nstream()", "--schedule", "lazy")
    assert ran.report["alive_at_exit"] == {"device": 1, "bytes": 1000, "streams": 2}
    assert "1 device allocation, 2 streams, 1,000 bytes\n" in ran.err


def test_work_that_has_not_run(python):
    fill = "call('cuMemsetD8Async', allocate(), 1, ctypes.c_size_t(9), None)"
    ran = python(f"initialise()\n{fill}", "--schedule", "lazy")
    assert process(ran)["unfinished_operations"] == 1
    assert "1,024 bytes, 1 operation not run\n" in ran.err


def test_the_program_frees_last(run, c_client):
    """Memory that the program's destructors free does not count as alive at the end."""
    ran = run("--", c_client, "init", "context", "alloc", "late")
    assert ran.report["alive_at_exit"] == {}
    assert process(ran)["calls"] == 5


def test_cudadrv_is_reported_too(run):
    code = "import cudadrv as cu; s = cu.Stream(name='a\\nb'); print(cu.driver_info().path)"
    ran = run("--", sys.executable, "-c", code)
    assert ran.out.endswith("/lib/libcuda.so.1\n")
    assert process(ran)["end"] == "exit"


def test_who_asks_for_private_tables_is_told_once_what_this_is(python):
    ran = python("for i in range(3): print(cuda.cuGetExportTable(0, 0))")
    assert ran.out == "801\n" * 3
    assert ran.err.count("a library in this program asks for private tables of NVIDIA's") == 1
    assert "        3 cuGetExportTable (private tables of NVIDIA's driver)\n" in ran.err


CUBIN = "b'\\x7fELF' + bytes(14) + b'\\xbe\\x00' + bytes(200)"


@pytest.mark.parametrize(
    ("image", "status", "why"),
    [
        (CUBIN, 209, "a cubin: it has machine code of a GPU, and only PTX can run here"),
        (
            "OUT_OF_BOUNDS.replace(b'8.0', b'9.9')",
            222,
            "PTX, line 2: unsupported .version 9.9: the newest known is 9.5",
        ),
        (
            "OUT_OF_BOUNDS.replace(b'mov.u32', b'move.u32')",
            218,
            'PTX, line 10: move.u32: not supported by the software driver: "move.u32 %r1, 1;"',
        ),
        (
            "OUT_OF_BOUNDS.replace(b'%r1', b'%r9')",
            218,
            "PTX, line 10: unknown symbol '%r9': \"mov.u32 %r9, 1;\" (and 1 more problems)",
        ),
        (
            "b'int main() {}'",
            200,
            "neither PTX, which begins with .version, nor a fatbin or a cubin",
        ),
        (f"({CUBIN}).replace(b'\\xbe', b'\\x3e')", 200, "an ELF file that is not for a GPU"),
        (
            "bytes.fromhex('50ed55ba0100100040') + bytes(71)",
            200,
            "an entry of the fatbin is broken",
        ),
        (
            "OUT_OF_BOUNDS.replace(b'sm_80', b'sm_100')",
            218,
            "PTX: version 8.0 does not know the target sm_100",
        ),
    ],
    ids=["cubin", "version", "instruction", "register", "text", "ELF", "fatbin", "target"],
)
def test_code_that_cannot_run(python, image, status, why):
    program = "initialise()\nmodule = ctypes.c_void_p()\n"
    ran = python(f"{program}print(cuda.cuModuleLoadData(ctypes.byref(module), {image}))")
    assert ran.out == f"{status}\n"
    [refused] = ran.report["refused_images"]
    assert refused["text"].startswith(why)
    assert "Images that cannot run: 1\n" in ran.err


def test_no_process_that_calls_the_driver(run):
    ran = run("--", "true")
    assert ran.status == 0
    assert ran.report["processes"] == []
    assert "No process called the software driver.\nPrograms find it by LD_LIBRARY_PATH." in ran.err


def test_the_schema(python):
    """The types of the fields in the JSON. A change needs a new version of the format."""
    ran = python("initialise()\nrace()\nunsupported()\nkernel_fault()", "--memory", "1MiB")
    kinds = {name: type(value) for name, value in ran.report.items()}
    assert kinds == {
        "format": int,
        "command": list,
        "settings": str,
        "exit_status": int,
        "calls": int,
        "unsupported_calls": dict,
        "refused_calls": dict,
        "refused_images": list,
        "kernel_faults": list,
        "data_races": list,
        "hazards": list,
        "calls_after_fork": list,
        "warnings": list,
        "alive_at_exit": dict,
        "processes": list,
    }
    assert (ran.report["format"], ran.report["settings"]) == (1, "memory=1MiB")
    assert {name: type(value) for name, value in process(ran).items()} == {
        "pid": int,
        "parent": int,
        "command": list,
        "end": str,
        "calls": int,
        "unsupported_calls": dict,
        "refused_calls": dict,
        "refused_images": list,
        "kernel_faults": list,
        "data_races": list,
        "hazards": list,
        "calls_after_fork": list,
        "warnings": list,
        "alive": dict,
        "unfinished_operations": int,
    }


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("initialise()", 0),
        ("unsupported()", 0),
        ("initialise()\nrace()", 7),
        ("initialise()\nkernel_fault()", 7),
        ("initialise()\nrace()\nsys.exit(4)", 4),
    ],
)
def test_an_exit_status_for_mistakes(python, program, status):
    assert python(program, "--error-exitcode", "7").status == status


def test_many_things_are_one_screen(python):
    """The text shows at most one screen of entries. The JSON has all of them."""
    program = """
initialise()
for name in ("MulticastCreate", "MulticastBindMem", "MulticastUnbind", "MulticastAddDevice",
             "MulticastBindAddr", "DestroyExternalMemory", "DestroyExternalSemaphore",
             "GraphicsUnregisterResource"):
    getattr(cuda, "cu" + name)(0, 0, 0, 0)
for i in range(5):
    race()
"""
    ran = python(program)
    assert len(ran.err.splitlines()) <= 24
    assert "  and 2 more\n" in ran.err
    assert len(ran.report["unsupported_calls"]) == 8
    assert len(ran.report["data_races"]) == 5
