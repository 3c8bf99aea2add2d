"""Builds of the software driver and its fuzz tests with a compiler's sanitizers."""

import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "sanitizers"
DRIVER = sorted((ROOT / "softdriver").rglob("*.cpp"))
PTX = sorted((ROOT / "softdriver" / "ptx").glob("*.cpp"))
FUZZ = ROOT / "tests" / "softdriver" / "fuzz.cpp"
PTX_FUZZ = FUZZ.parent / "ptx_fuzz.cpp"
PTX_DUMP = FUZZ.parent / "ptx_dump.cpp"
PTX_RUN = FUZZ.parent / "ptx_run.cpp"
DRIVER_HEADERS = [*(ROOT / "softdriver").rglob("*.h"), *(ROOT / "softdriver").glob("*.def")]
FUZZ_HEADERS = [*DRIVER_HEADERS, *FUZZ.parent.glob("*.h")]
COMMON = ["-std=c++17", "-O1", "-g", "-pthread", "-fPIC", "-fno-omit-frame-pointer"]
# Programs are C or ctypes, and may pass any number where an enumeration is declared.
ADDRESS = [
    "-fsanitize=address,undefined",
    "-fno-sanitize=enum",
    "-fno-sanitize-recover=all",
]
THREAD = ["-fsanitize=thread"]


def compiler() -> str:
    for name in (os.environ.get("CXX", ""), "g++", "c++", "clang++"):
        if name and shutil.which(name):
            return name
    pytest.skip("there is no C++ compiler")


def require(flags: list[str], folder: Path) -> None:
    """Skips where the compiler or its sanitizer's library is absent, or cannot run here."""
    source, program = folder / "empty.cpp", folder / "empty"
    source.write_text("int main() { return 0; }\n", encoding="utf-8")
    for command in ([compiler(), *flags, str(source), "-o", str(program)], [str(program)]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{flags[0]} does not work here: {done.stderr.strip()[-200:]}")


def _header_folder() -> str:
    sys.path.insert(0, str(ROOT))
    try:
        from cuda_header import HeaderError, find_cuda_header
    finally:
        sys.path.pop(0)
    try:
        return str(find_cuda_header().folder)
    except HeaderError as error:
        pytest.skip(str(error))


class Build:
    """The driver's files, and the fuzz tests, compiled with these flags; files that are as new as
    their sources and all headers are kept from the last time."""

    def __init__(self, name: str, flags: list[str]) -> None:
        self.folder = BUILD / name
        self.folder.mkdir(parents=True, exist_ok=True)
        require(flags, self.folder)
        self.flags = [*COMMON, *flags]
        self.includes = [
            f"-iquote{ROOT / 'softdriver'}",  # its names must not hide the system's headers
            *("-isystem", _header_folder()),
            *("-isystem", sysconfig.get_path("include")),
        ]

    def _compile(self, source: Path) -> str:
        target = self.folder / "_".join(source.relative_to(ROOT).with_suffix(".o").parts)
        headers = FUZZ_HEADERS if source.parent == FUZZ.parent else DRIVER_HEADERS
        newest = max(path.stat().st_mtime for path in (source, *headers, Path(__file__)))
        if not target.exists() or target.stat().st_mtime < newest:
            command = [compiler(), *self.flags, *self.includes, "-c", str(source)]
            self._run([*command, "-o", str(target)])
        return str(target)

    def _objects(self, sources: list[Path]) -> list[str]:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return list(pool.map(self._compile, sources))

    @staticmethod
    def _run(command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-4000:]}"

    def program(self) -> Path:
        sources = [path for path in DRIVER if path.name != "module.cpp"]
        # The longest first.
        objects = self._objects([FUZZ, *sources])
        target = self.folder / "fuzz"
        link = ["-Wl,--wrap=munmap", "-ldl", "-o", str(target)]
        self._run([compiler(), *self.flags, *objects, *link])
        return target

    def ptx_program(self, source: Path) -> Path:
        """With what reads PTX, and without the driver."""
        target = self.folder / source.stem
        self._run([compiler(), *self.flags, *self._objects([source, *PTX]), "-o", str(target)])
        return target

    def library(self) -> Path:
        target = self.folder / "libcuda.so.1"
        exports = f"-Wl,--version-script={ROOT / 'softdriver' / 'exports.map'}"
        link = ["-shared", "-Wl,-Bsymbolic", exports, "-ldl", "-o", str(target)]
        self._run([compiler(), *self.flags, *self._objects(DRIVER), *link])
        return target
