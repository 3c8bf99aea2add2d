"""Libraries that load but are no usable drivers. The tests compile them as libcuda.so.1."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

import cudadrv._softdriver

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")

# A library that forwards all calls to the software driver, except those that a test changes.
PROXY = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

typedef int (*find_function)(const char *, void **, int, uint64_t, int *);

int cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *found) {
    void *real = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    find_function find = (find_function)dlsym(real, "cuGetProcAddress_v2");
    void *replacement;
    if (!strcmp(name, CHANGED)) {
        *address = REPLACEMENT;
        return 0;
    }
    return find(name, address, version, flags, found);
}
"""

SHOW = """
    import cudadrv as cu
    try:
        print(cu.Device(0))
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def compiled(tmp_path):
    """A function that compiles C code to a libcuda.so.1 and returns its path."""

    def compiled(source: str, **definitions: str) -> str:
        (tmp_path / "fake.c").write_text(source)
        target = str(tmp_path / "libcuda.so.1")
        defined = [f"-D{name}={value}" for name, value in definitions.items()]
        command = ["gcc", "-shared", "-fPIC", *defined, "-o", target, str(tmp_path / "fake.c")]
        subprocess.run([*command, "-ldl"], check=True)
        return target

    return compiled


@pytest.fixture
def proxy(compiled):
    def proxy(changed: str, replacement: str, functions: str = "") -> str:
        real = cudadrv._softdriver.__file__
        return compiled(
            functions + PROXY,
            REAL=f'"{real}"',
            CHANGED=f'"{changed}"',
            REPLACEMENT=replacement,
        )

    return proxy


def test_a_driver_from_before_cuda_12(script, compiled):
    path = compiled("int cuInit(unsigned flags) { return 0; }")
    answer = script.quiet(SHOW, CUDADRV_DRIVER=path)
    assert answer.startswith("DriverNotFoundError")
    assert "12.0 or newer" in answer


def test_auto_never_passes_over_a_driver_that_is_there(script, compiled):
    """With `auto`, a driver that is too old is an error.

    Using the software driver instead would go unnoticed.
    """
    folder = Path(compiled("int cuInit(unsigned flags) { return 0; }")).parent
    answer = script.quiet(SHOW, CUDADRV_DRIVER="auto", LD_LIBRARY_PATH=str(folder))
    assert answer.startswith("DriverNotFoundError")
    assert "CUDADRV_DRIVER=software" in answer


@pytest.mark.parametrize("choice", ["auto", "path"])
def test_a_driver_without_a_device(script, proxy, choice):
    path = proxy("cuInit", "no_device", "static int no_device(unsigned flags) { return 100; }\n")
    environment = {"CUDADRV_DRIVER": path}
    if choice == "auto":
        environment = {"CUDADRV_DRIVER": "auto", "LD_LIBRARY_PATH": str(Path(path).parent)}
    answer = script.quiet(SHOW, **environment)
    assert answer.startswith("DriverNotFoundError cuInit: CUDA_ERROR_NO_DEVICE (100)")
    assert f"{path} was loaded, but has no usable device" in answer
    assert "CUDADRV_DRIVER=software" in answer


def test_a_driver_with_no_device_at_all(script, proxy):
    path = proxy("cuDeviceGetCount", "none", "static int none(int *count) { return *count = 0; }\n")
    answer = script.quiet(SHOW, CUDADRV_DRIVER=path)
    assert answer.startswith("DriverNotFoundError cuDeviceGetCount: CUDA_ERROR_NO_DEVICE (100)")


def test_a_stub_says_that_it_is_one(script, compiled):
    """The error for the toolkit's stub library says that the library is a stub.

    Each function of the stub returns error 34.
    """
    path = compiled("""
        int cuInit(unsigned flags) { return 34; }
        int cuGetProcAddress_v2(const char *n, void **a, int v, long f, int *q) { return 34; }
    """)
    answer = script.quiet(SHOW, CUDADRV_DRIVER=path)
    assert answer.startswith("DriverNotFoundError cuInit: CUDA_ERROR_STUB_LIBRARY (34)")


STUB = Path("/usr/local/cuda/lib64/stubs/libcuda.so")


@pytest.mark.skipif(not STUB.exists(), reason="no toolkit with a stub")
def test_the_stub_of_the_toolkit(script):
    answer = script.quiet(SHOW, CUDADRV_DRIVER=str(STUB))
    assert answer.startswith("DriverNotFoundError cuInit: CUDA_ERROR_STUB_LIBRARY (34)")
    assert "CUDADRV_DRIVER=software" in answer


def test_a_function_that_the_driver_lacks_is_not_supported(script, proxy):
    """A function that the driver lacks is not supported: its null pointer is never called."""
    path = proxy("cuMemAllocAsync", "0")
    answer = script.quiet(
        """
        import cudadrv as cu
        from cudadrv._driver import missing_functions
        stream = cu.Stream()
        print(missing_functions())
        try:
            cu.DeviceBuffer(4, stream=stream)
        except cu.CudaError as error:
            print(error.status.name, error.call)
        cu.DeviceBuffer(4).close()
        """,
        CUDADRV_DRIVER=path,
    )
    assert answer.splitlines() == [
        "('cuMemAllocAsync',)",
        "CUDA_ERROR_NOT_SUPPORTED cuMemAllocAsync",
    ]


def test_a_driver_that_cannot_instantiate_has_no_other_executable(script, proxy):
    """NOT_SUPPORTED does not mean that the graph, which has a condition, has another executable."""
    answer = script.quiet(
        """
        import cudadrv as cu
        graph = cu.Graph()
        _, body = graph.add_if(graph.condition(1))
        body.add_fill(cu.DeviceBuffer(4), 1)
        try:
            graph.instantiate()
        except cu.CudaError as error:
            print(error.status.name, error.call)
        """,
        CUDADRV_DRIVER=proxy("cuGraphInstantiateWithFlags", "0"),
    )
    assert answer == "CUDA_ERROR_NOT_SUPPORTED cuGraphInstantiateWithFlags\n"


def test_the_software_driver_lacks_nothing(script):
    program = """
        import cudadrv as cu
        from cudadrv._driver import missing_functions
        cu.driver_info()
        print(missing_functions())
    """
    assert script.quiet(program) == "()\n"


def test_proxies_pass_on(script, proxy):
    path = proxy("no such function", "0")
    assert "software device" in script.quiet(SHOW, CUDADRV_DRIVER=path)


def test_the_fake_is_not_opened_globally(proxy):
    """Symbols of the compiled library are visible only in the programs that load it."""
    path = proxy("no such function", "0")
    assert not hasattr(ctypes.CDLL(None), "cuGetProcAddress_v2"), path
