"""Builds of the software driver and its fuzz tests with a compiler's sanitizers."""

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from cuda_header import HeaderError, find_cuda_header
from setup import units

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "sanitizers"
DRIVER = sorted((ROOT / "softdriver").rglob("*.cpp"))
PTX = sorted((ROOT / "softdriver" / "ptx").glob("*.cpp"))
UNDEFINED = ROOT / "softdriver" / "base" / "undefined.cpp"
FUZZ = ROOT / "tests" / "softdriver" / "fuzz.cpp"
PTX_FUZZ = FUZZ.parent / "ptx_fuzz.cpp"
PTX_DUMP = FUZZ.parent / "ptx_dump.cpp"
PTX_RUN = FUZZ.parent / "ptx_run.cpp"
DRIVER_HEADERS = [*(ROOT / "softdriver").rglob("*.h"), *(ROOT / "softdriver").rglob("*.def")]
FUZZ_HEADERS = [*DRIVER_HEADERS, *FUZZ.parent.glob("*.h")]
# -Og compiles a quarter faster than -O1, and its code is nearly as fast.
COMMON = ["-std=c++17", "-Og", "-g1", "-pthread", "-fPIC", "-fno-omit-frame-pointer"]
# gcc spends a tenth of its time on its own garbage collections if it may not use more memory.
COMMON += ["--param", "ggc-min-expand=1000", "--param", "ggc-min-heapsize=524288"]
# `enum` is off, because programs may pass any number as an enumeration. The other checks are off
# because the address sanitizer finds invalid pointers, too, and they would double the build time.
ADDRESS = [
    "-fsanitize=address,undefined",
    "-fno-sanitize=enum,null,alignment,object-size,vptr",
    "-fno-sanitize-recover=all",
]
THREAD = ["-fsanitize=thread"]


def compiler() -> str:
    for name in (os.environ.get("CXX", ""), "g++", "c++", "clang++"):
        if name and shutil.which(name):
            return name
    pytest.skip("there is no C++ compiler")


def require(flags: list[str], folder: Path) -> None:
    """Skip the test if the compiler or its sanitizer is missing, or does not work here."""
    source, program = folder / "empty.cpp", folder / "empty"
    source.write_text("int main() { return 0; }\n", encoding="utf-8")
    for command in ([compiler(), *flags, str(source), "-o", str(program)], [str(program)]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{flags[0]} does not work here: {done.stderr.strip()[-200:]}")


def _header_folder() -> str:
    try:
        return str(find_cuda_header().folder)
    except HeaderError as error:
        pytest.skip(str(error))


class Build:
    """The driver's files and the fuzz tests, compiled with these flags.

    Files that are newer than their sources and all headers are kept from earlier builds. A lock
    keeps parallel tests from building at the same time.
    """

    def __init__(self, name: str, flags: list[str]) -> None:
        self.folder = BUILD / name
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            require(flags, self.folder)
        self.flags = [*COMMON, *flags]
        self.includes = [
            # -iquote, because names of the driver's headers must not hide the system's headers.
            f"-iquote{ROOT / 'softdriver'}",
            *("-isystem", _header_folder()),
            *("-isystem", sysconfig.get_path("include")),
        ]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _link(self, name: str, sources: list[Path], *options: str) -> Path:
        target = self.folder / name
        with self._alone():
            objects = self._objects(sources)
            newest = max(Path(path).stat().st_mtime for path in objects)
            if not target.exists() or target.stat().st_mtime < newest:
                made = target.with_suffix(".new")  # the old program may be running
                self._run([compiler(), *self.flags, *objects, *options, "-o", str(made)])
                made.replace(target)
        return target

    def _compile(self, unit: tuple[str, list[str]]) -> str:
        source, parts = unit
        name = Path(source)
        target = self.folder / f"{name.parent.name}_{name.stem}.o"
        headers = FUZZ_HEADERS if name.parent == FUZZ.parent else DRIVER_HEADERS
        if self._is_old(target, name, *map(Path, parts), *headers):
            self._run([compiler(), *self.flags, *self.includes, "-c", source, "-o", str(target)])
        return str(target)

    @staticmethod
    def _is_old(target: Path, *sources: Path) -> bool:
        newest = max(path.stat().st_mtime for path in (*sources, Path(__file__)))
        return not target.exists() or target.stat().st_mtime < newest

    def _objects(self, sources: list[Path]) -> list[str]:
        driver = units([str(source) for source in sources if source in DRIVER], str(self.folder))
        others = {str(source): [str(source)] for source in sources if source not in DRIVER}
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return list(pool.map(self._compile, [*driver.items(), *others.items()]))

    @staticmethod
    def _run(command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-4000:]}"

    def program(self, source: Path = FUZZ) -> Path:
        """Build a program from `source` and the driver."""
        sources = [path for path in DRIVER if path.name != "module.cpp"]
        options = ["-Wl,--wrap=munmap"] if source == FUZZ else []
        return self._link(source.stem, [source, *sources], *options, "-ldl")

    def ptx_program(self, source: Path) -> Path:
        """Build a program from `source` and softdriver/ptx, with little else of the driver."""
        return self._link(source.stem, [source, *PTX, UNDEFINED])

    def library(self) -> Path:
        exports = f"-Wl,--version-script={ROOT / 'softdriver' / 'exports.map'}"
        return self._link("libcuda.so.1", DRIVER, "-shared", "-Wl,-Bsymbolic", exports, "-ldl")
