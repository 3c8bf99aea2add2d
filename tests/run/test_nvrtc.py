"""The libnvrtc of `cudadrv run`, which returns PTX in place of cubins.

It calls a stand-in for NVIDIA's NVRTC.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE
from running import clean_environment, line

from cudadrv import _libcuda
from cudadrv._libcuda import lay_out, variables
from cudadrv._nvrtc_search import NAMES, find_nvrtc

HERE = Path(__file__).parent
PACKAGES = "lib/python3.99/site-packages"
COMPILER = shutil.which(os.environ.get("CC") or "cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


def build(target, source, *options):
    subprocess.run([COMPILER, HERE / source, "-o", target, *options], check=True)


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory):
    """A folder with stand-ins for NVRTC of CUDA 12 and 13, and their builtins."""
    folder = tmp_path_factory.mktemp("stand-ins")
    for name in NAMES:
        major = name.rpartition(".")[2]
        versions = folder / f"{major}.map"
        versions.write_text(f"{name} {{ global: nvrtc*; local: *; }};\n")
        shared = ("-shared", "-fPIC", f"-DMAJOR={major}", "-ldl")
        builtins = f"libnvrtc-builtins.so.{major}.7"
        options = ("-DBUILTINS", f"-Wl,-soname,{builtins}")
        build(folder / builtins, "nvrtc_stand_in.c", *shared, *options)
        options = (f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}")
        build(folder / name, "nvrtc_stand_in.c", *shared, *options)
    return folder


def put_into(packages, stand_ins, major=13):
    """Put a stand-in where the packages of pip have NVRTC."""
    folder = packages / "nvidia" / {12: "cuda_nvrtc", 13: "cu13"}[major] / "lib"
    folder.mkdir(parents=True)
    for name in (f"libnvrtc.so.{major}", f"libnvrtc-builtins.so.{major}.7"):
        shutil.copy2(stand_ins / name, folder)
    return folder / f"libnvrtc.so.{major}"


@pytest.fixture
def environment(stand_ins, tmp_path):
    """A separate Python, with the stand-in among its packages."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    python = tmp_path / "env" / "bin" / "python"
    python.symlink_to(sys.executable)
    put_into(tmp_path / "env" / PACKAGES, stand_ins)
    return python


def nvrtc_of(python):
    return python.parents[1] / PACKAGES / "nvidia/cu13/lib/libnvrtc.so.13"


@pytest.fixture
def program(run, environment):
    """A function that runs a program with the functions of client.py and nvrtc_client.py."""

    def program(text, *arguments, options=()):
        head = f"import sys\nsys.path.insert(0, {str(HERE)!r})\n"
        head += "from client import *\nfrom nvrtc_client import *\n"
        done = run(*options, "--", environment, "-c", head + text, *arguments)
        assert done.status == 0, done.err
        return done

    return program


LAUNCH = """
initialise()
module, kernel, number = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(7)
memory = allocate(4)
call("cuMemcpyHtoD_v2", memory, ctypes.byref(number), ctypes.c_size_t(4))
call("cuModuleLoadData", ctypes.byref(module), image)
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"triple")
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
call("cuLaunchKernel", kernel, *[1] * 6, 0, None, arguments, None)
call("cuMemcpyDtoH_v2", ctypes.byref(number), memory, ctypes.c_size_t(4))
print(number.value)
"""

LINK = """
initialise()
def link(kind, text):
    state, linked, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    call("cuLinkCreate_v2", 0, None, None, ctypes.byref(state))
    data = kind, text, ctypes.c_size_t(len(text)), b"name", 0, None, None
    status = cuda.cuLinkAddData_v2(state, *data)
    if not status:
        call("cuLinkComplete", state, ctypes.byref(linked), ctypes.byref(size))
    return status or ctypes.string_at(linked, size.value)
"""


def test_a_cubin_is_ptx_that_runs(program):
    text = f"image = get('CUBIN', compiled(b'', b'--gpu-architecture=sm_90'))\n{LAUNCH}"
    done = program(text)
    assert done.out == "21\n"
    assert done.report["refused_images"] == []


def test_a_cubin_has_the_lines_of_the_ptx(program):
    text = "it = compiled(b'', b'-arch=sm_90')\nprint(get('CUBIN', it))\nprint(get('PTX', it))"
    cubin, ptx = map(eval, program(text).out.splitlines())
    assert cubin == b"/* cudadrv: PTX in place of a cubin */ " + ptx
    assert ptx.startswith(b"//\n// of the stand-in\n.version")
    assert ptx.endswith(b"}\n\0")


def test_a_cubin_can_be_linked_and_other_ptx_is_no_cubin(program):
    text = (
        f"{LINK}it = compiled(b'', b'-arch=sm_90')\ncubin, ptx = 0, 1\n"
        "print(link(cubin, get('PTX', it)), link(ptx, get('PTX', it)) == "
        f"link(cubin, get('CUBIN', it)))\nimage = link(cubin, get('CUBIN', it))\n{LAUNCH}"
    )
    assert program(text).out == "200 False\n21\n"  # CUDA_ERROR_INVALID_IMAGE


def test_without_a_cubin_there_is_none(program):
    """For a virtual architecture, and after an error, NVRTC has no cubin."""
    text = (
        "for it in compiled(), compiled(b'', b'-arch=compute_90'), "
        "compiled(b'mistake', b'-arch=sm_90', expect=6):\n"
        "    print(get('CUBIN', it), get('ProgramLog', it))"
    )
    assert program(text).out.splitlines() == [
        "b'' b'k.cu a.h b.cuh: a remark\\x00'",
        "b'' b'k.cu a.h b.cuh: a remark\\x00'",
        "b'' b'k.cu a.h b.cuh: a mistake\\x00'",
    ]


WRONG_USES = """
it = compiled(b"", b"-arch=sm_90")
for name in "CUBIN", "PTX", "ProgramLog":
    for part in "Size", "":
        call = getattr(nvrtc, f"nvrtcGet{name}{part}")
        print(name, part, call(None, None), call(it, None), call(None, ctypes.byref(it)))
print(nvrtc.nvrtcCreateProgram(None, b"", None, 0, None, None), nvrtc.nvrtcVersion(None, None))
print(nvrtc.nvrtcDestroyProgram(None), nvrtc.nvrtcCompileProgram(None, 0, None))
print(nvrtc.nvrtcDestroyProgram(ctypes.byref(it)), it.value)
print(nvrtc.nvrtcGetErrorString(0), nvrtc.nvrtcGetErrorString(-1))
"""


def test_wrong_uses_are_for_nvrtc(program, environment, stand_ins):
    itself = nvrtc_of(environment)
    builtins = itself.with_name("libnvrtc-builtins.so.13.7")
    load = f"import ctypes\nctypes.CDLL({str(builtins)!r})\n"
    expected = program(load + WRONG_USES, itself).out
    assert program(WRONG_USES).out == expected
    assert expected.startswith("CUBIN Size 4 3 4\nCUBIN  4 3 4\n")


def test_functions_that_a_version_lacks(program):
    text = (HERE.parents[1] / "softdriver" / "nvrtc.c").read_text("utf-8")
    names = set(re.findall(r"\bNAME\((nvrtc\w+)\)", text))
    lacking = names - set(re.findall(r"\bnvrtc\w+", (HERE / "nvrtc_stand_in.c").read_text("utf-8")))
    assert "nvrtcGetTileIR" in lacking
    done = program(f"print({{getattr(nvrtc, name)(0, 0, 0) for name in {sorted(lacking)}}})")
    assert done.out == "{11}\n"  # NVRTC_ERROR_INTERNAL_ERROR
    exports = f"print([name for name in {sorted(names)} if not hasattr(nvrtc, name)])"
    assert program(exports).out == "[]\n"


def test_programs_find_it_before_they_search(program):
    """NVRTC is loaded in advance, so that programs do not search for it in their packages."""
    text = "import os\nfound = ctypes.CDLL('libnvrtc.so.13', os.RTLD_NOLOAD)\n"
    text += "print(hasattr(found, 'cudadrvNvrtc'))"
    assert program(text).out == "True\n"


def test_programs_find_it_without_a_version(program):
    text = "print(hasattr(ctypes.CDLL('libnvrtc.so'), 'cudadrvNvrtc'))"
    assert program(text).out == "True\n"


def test_programs_that_are_linked_find_their_version(stand_ins, tmp_path, monkeypatch):
    """Each of two versions has symbols of its own, although both are loaded in every process."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins))
    monkeypatch.setattr(_libcuda, "find_nvrtc", lambda _: {n: stand_ins / n for n in NAMES})
    library = lay_out(tmp_path / "lib")
    for name in NAMES:
        build(tmp_path / "client", "nvrtc_client.c", stand_ins / name)
        done = subprocess.run(
            [tmp_path / "client"],
            env={**os.environ, **variables(library, {})},
            capture_output=True,
            text=True,
        )
        assert (done.stdout, done.stderr) == (f"0 {name.rpartition('.')[2]}.7\n", "")


def test_nvrtc_that_cannot_be_loaded(tmp_path, monkeypatch):
    nvrtc = tmp_path / "libnvrtc.so.13"
    nvrtc.write_text("no library")
    monkeypatch.setattr(_libcuda, "find_nvrtc", lambda _: {nvrtc.name: nvrtc})
    folder = lay_out(tmp_path / "lib").parent
    text = f"from nvrtc_client import *\n{WRONG}"
    for why in ("invalid ELF header|file too short", "there is no link to it"):
        done = subprocess.run(
            [sys.executable, "-c", text, folder / nvrtc.name],
            env=clean_environment(PYTHONPATH=str(HERE)),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.stdout == "11 11 11 NVRTC could not be loaded\n", done.stderr
        assert re.fullmatch(rf"cudadrv: libnvrtc: cannot load .*({why})\n", done.stderr)
        nvrtc.unlink(missing_ok=True)


WRONG = """
size = ctypes.c_size_t()
print(nvrtc.nvrtcVersion(None, None), nvrtc.nvrtcGetCUBINSize(None, ctypes.byref(size)),
      nvrtc.nvrtcGetCUBIN(None, ctypes.create_string_buffer(9)),
      nvrtc.nvrtcGetErrorString(11).decode())
"""


def test_without_nvrtc_there_is_none(tmp_path, monkeypatch, stand_ins):
    """If an NVRTC is not found, no files are made for it, and its old files are removed."""
    for found in ({n: stand_ins / n for n in NAMES}, {NAMES[0]: stand_ins / NAMES[0]}, {}):
        monkeypatch.setattr(_libcuda, "find_nvrtc", lambda _, found=found: found)
        library = lay_out(tmp_path)
        made = {path.name for path in tmp_path.glob("libnvrtc*")}
        plain = tmp_path / "libnvrtc.so"  # the name that some programs look for
        assert (plain.readlink().name if plain.is_symlink() else None) == max(found, default=None)
        made.discard(plain.name)
        assert made == {f"libnvrtc{part}.{n[-2:]}" for n in found for part in (".so", "-real.so")}
        assert variables(library, {})["LD_PRELOAD"].count("libnvrtc") == len(found)


@pytest.mark.parametrize("name", NAMES)
def test_another_nvrtc_is_left_alone(tmp_path, name, stand_ins):
    shutil.copy2(stand_ins / name, tmp_path)
    with pytest.raises(FileExistsError, match=r"libnvrtc\.so\.\d+ exists and is another library"):
        lay_out(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_where_it_is_searched(stand_ins, tmp_path, environment, monkeypatch):
    """The command's packages come first, then LD_LIBRARY_PATH, then the Python on PATH."""
    libraries, other = tmp_path / "libraries", tmp_path / "other" / "bin"
    libraries.mkdir()
    other.mkdir(parents=True)
    (other / "python3").symlink_to(sys.executable)
    in_other = put_into(other.parent / PACKAGES, stand_ins)
    for name in NAMES:
        shutil.copy2(stand_ins / name, libraries)
    found = nvrtc_of(environment)
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{libraries}")
    monkeypatch.setenv("PATH", f"{other}:{os.environ['PATH']}")
    older = {NAMES[0]: libraries / NAMES[0]}
    assert find_nvrtc([str(environment), "-m", "x"]) == older | {NAMES[1]: found}
    assert find_nvrtc(["sh"]) == older | {NAMES[1]: libraries / NAMES[1]}
    assert find_nvrtc() == find_nvrtc(["sh"])
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    assert find_nvrtc(["sh"])[NAMES[1]] == find_nvrtc()[NAMES[1]] == in_other


def test_a_run_in_a_run_finds_the_same(run, environment):
    text = "import os, sys\nprint(os.path.realpath(os.environ['LD_LIBRARY_PATH'].split(':')[0] + "
    text += "'/libnvrtc-real.so.13'))"
    inner = line("--", "sh", "-c", 'exec "$0" "$@"', sys.executable, "-c", text)
    # The Python of the environment may lack the packages that cudadrv needs.
    start = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
    ran = run("--", environment, "-c", start, *inner)
    assert ran.out.strip() == str(nvrtc_of(environment))


def test_it_does_not_load_nvrtc_before_it_is_called(program):
    text = "maps = open('/proc/self/maps').read()\nprint('site-packages/nvidia/cu13' in maps)\n"
    assert program(f"{text}nvrtc.nvrtcVersion(None, None)\n{text}").out == "False\nTrue\n"
