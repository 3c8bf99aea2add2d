"""``python -m cudadrv``, and its commands ``info`` and ``bench``."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from limits import PATIENCE
from schedules import one_schedule

import cudadrv as cu
from cudadrv import _info

pytestmark = one_schedule


@pytest.fixture
def cli(driver, tmp_path):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def run(*arguments, **changes):
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "cudadrv", *arguments],
            cwd=tmp_path,
            env={**environ, **changes},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    return run


def test_no_arguments_shows_help(cli):
    done = cli()
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("usage: python -m cudadrv", "info", "demo", "bench"):
        assert word in done.stdout


def test_unknown_command(cli):
    done = cli("nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ")


def test_version(cli):
    assert cli("--version").stdout == f"cudadrv {cu.__version__}\n"


def test_info(cli):
    done = cli("info", CUDA_LAUNCH_BLOCKING="0")
    assert (done.returncode, done.stderr) == (0, "")
    device = cu.Device(0)
    for word in (cu.__version__, cu.driver_info().path, device.name, str(device.uuid)):
        assert word in done.stdout
    assert re.search(r"CUDADRV_DRIVER +(software|cuda)\n", done.stdout)
    assert re.search(r"CUDA_LAUNCH_BLOCKING +0\n", done.stdout)
    assert re.search(r"compiled with cuda\.h \d+\.\d+", done.stdout)


def test_info_names_variables_that_nobody_reads(cli):
    done = cli("info", CUDADRV_DRIVR="cuda", CUDADRV_CACHE_DIR="off")
    assert re.search(
        r"CUDADRV_DRIVR +cuda \(cudadrv reads no variable of this name\)\n", done.stdout
    )
    assert re.search(r"CUDADRV_CACHE_DIR +off\n", done.stdout)


@pytest.mark.parametrize("command", ["demo", "bench"])
@pytest.mark.parametrize(
    ("choice", "words"),
    [("./nothing.so", "CUDADRV_DRIVER=software"), ("nonsense", "is not one of 'auto'")],
)
def test_no_driver(cli, command, choice, words):
    done = cli(command, CUDADRV_DRIVER=choice)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"CUDADRV_DRIVER": "./nothing.so"}, "DriverNotFoundError"),
        ({"CUDADRV_DRIVER": "nonsense"}, "is not one of 'auto'"),
        ({"CUDADRV_DRIVER": "software", "CUDADRV_SOFTWARE": "devices=0"}, "no usable device"),
        ({"CUDADRV_DRIVER": "software", "CUDADRV_SOFTWARE": "schedule=x"}, "schedule must be"),
        ({"CUDADRV_DRIVER": "software", "CUDA_VISIBLE_DEVICES": "none"}, "may show"),
    ],
    ids=["missing", "word", "devices", "setting", "hidden"],
)
def test_info_without_a_driver_still_helps(cli, changes, words):
    done = cli("info", **changes)
    assert (done.returncode, done.stderr) == (1, "")
    assert cu.__version__ in done.stdout
    assert words in done.stdout
    for name, value in changes.items():
        assert re.search(rf"{name} +{re.escape(value)}\n", done.stdout)


def test_info_of_a_driver_that_counts_wrong(driver, monkeypatch, capsys):
    """With a wrong number of devices, `info` prints only some of them.

    Printing 2,000,000,000 devices would take too long.
    """

    class Many:
        def __new__(cls, ordinal):
            return cu.Device(0)

        @staticmethod
        def count():
            return 2**31 - 1

    monkeypatch.setattr(_info, "cu", SimpleNamespace(**{**vars(cu), "Device": Many}))
    assert _info.print_info() == 0
    text = capsys.readouterr().out
    assert text.count("compute_capability") == 64
    assert text.endswith("\nDevices 64 to 2147483646 are not shown\n")


@pytest.mark.cuda_software
def test_bench(cli, driver):
    done = cli("bench", CUDADRV_SOFTWARE=f"schedule={driver},seed=7")
    assert (done.returncode, done.stderr) == (0, "")
    assert "copy_from_async" in done.stdout
    assert "not a GPU" in done.stdout


ANY_CLIENT = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
name = ctypes.create_string_buffer(100)
print(cuda.cuInit(0), cuda.cuDeviceGetName(name, 100, 0), name.value.decode())
"""


@pytest.mark.cuda_software
def test_libcuda(cli, tmp_path):
    for _ in range(2):  # the second time, the link exists already
        done = cli("libcuda", "soft driver")
        assert (done.returncode, done.stderr) == (0, "")
    shell = f"{done.stdout}exec {sys.executable} -c '{ANY_CLIENT}'"
    client = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=PATIENCE)
    assert client.stdout == "0 0 cudadrv software device (not a GPU)\n"


@pytest.mark.parametrize("folder", ["", "a:b", "a;b"])
def test_libcuda_in_a_folder_that_cannot_be_named(cli, tmp_path, folder):
    done = cli("libcuda", folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "LD_LIBRARY_PATH cannot name it" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["file", "link"])
def test_libcuda_overwrites_no_library(cli, tmp_path, kind):
    library, other = tmp_path / "libcuda.so.1", tmp_path / "libcuda.so.580.1"
    other.write_text("somebody's")
    if kind == "file":
        other.rename(library)
    else:
        library.symlink_to(other)
    done = cli("libcuda", ".")
    assert (done.returncode, done.stdout) == (1, "")
    assert "another library" in done.stderr
    assert library.read_text() == "somebody's"
