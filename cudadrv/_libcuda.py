"""The software driver as a libcuda.so.1, for programs that look for that name."""

import ctypes
import os
import shlex
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from cudadrv._library import software_path
from cudadrv._nvrtc_search import MARK as COMPILER_MARK
from cudadrv._nvrtc_search import NAMES as COMPILERS
from cudadrv._nvrtc_search import find_nvrtc, real_name

NAME = "libcuda.so.1"
BUILT_AS = b"cudadrv-libcuda.so.1"  # the SONAME with which setup.py builds the software driver
MARK = b"cudadrvSoftVersion"  # a function that no other driver has
# Libraries without functions that have the names of nvJitLink (softdriver/nvjitlink.c). Programs
# that find them assume an old nvJitLink, and let the driver link PTX. They must not use a real
# nvJitLink, because the software driver cannot run its output.
NO_LINKERS = ("libnvJitLink.so.12", "libnvJitLink.so.13")
NO_LINKER_MARK = b"cudadrvNoNvJitLink"
MONITOR = "libnvidia-ml.so.1"  # NVML (softdriver/nvml.c), which finds the driver beside itself
MONITOR_MARK = b"cudadrvSoftNvml"
MARKS = (MARK, NO_LINKER_MARK, MONITOR_MARK, COMPILER_MARK)
LOAD, DYNAMIC = 1, 2  # segments of ELF files
STRING_TABLE, SONAME = 5, 14  # entries of the dynamic section


def lay_out(folder: Path, command: Sequence[str] = ()) -> Path:
    """Make FOLDER/libcuda.so.1, and libcuda.so for linkers; return the path of the first.

    The file is a copy of the software driver with the SONAME libcuda.so.1. The library that cudadrv
    itself loads has another SONAME: otherwise every later dlopen("libcuda.so.1") in the process
    would return it, and programs that check for a GPU would be misled. With
    ``CUDADRV_DRIVER=FOLDER/libcuda.so.1``, cudadrv loads the copy, and shares it with all users of
    libcuda.so.1 in the process.

    The folder also gets a libnvidia-ml.so.1 about the same devices, libraries without functions
    under the names of nvJitLink, and, for each NVRTC that ``command`` would find, a libnvrtc that
    returns PTX for cubins, with a link to the NVRTC that it calls. libnvrtc.so is a link to the
    newest one.

    Raises FileExistsError if another library has one of these names.
    """
    library, link, monitor = folder / NAME, folder / "libcuda.so", folder / MONITOR
    linkers = [folder / name for name in NO_LINKERS]
    compilers = [folder / name for name in COMPILERS]
    compiler = folder / "libnvrtc.so"
    for path in (library, link, monitor, *linkers, *compilers, compiler):
        if os.path.lexists(path) and not _is_ours(path):
            raise FileExistsError(f"{path} exists and is another library")
    found = find_nvrtc(command)
    folder.mkdir(parents=True, exist_ok=True)
    _write(library, _renamed(Path(software_path()).read_bytes()))
    _write(monitor, _content_of("_nvml"))
    for path in linkers:
        _write(path, _content_of("_nvjitlink").replace(NO_LINKERS[-1].encode(), path.name.encode()))
    for path in compilers:
        _write_compiler(path, found.get(path.name))
    _link(link, [library])
    _link(compiler, compilers[::-1])
    return library


def place(folder: Path) -> int:
    """Do the command `libcuda`: put the software driver into a folder. Returns the exit status."""
    try:
        library = lay_out(folder.absolute())
    except FileExistsError as error:
        print(f"python -m {__package__}: libcuda: {error}; choose another folder", file=sys.stderr)
        return 1
    for name, value in variables(library, {}).items():
        print(f"export {name}={shlex.quote(value)}${{{name}:+:${name}}}")
    return 0


def variables(library: Path, before: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables by which programs find what `lay_out` has made.

    ``before`` is the present environment: its values are appended to the new ones.
    """
    # LD_PRELOAD cannot contain a path with spaces, because spaces separate its entries. Names
    # without a path are searched for in LD_LIBRARY_PATH.
    spaced = any(letter.isspace() for letter in str(library))
    preloaded = [path.name if spaced else str(path) for path in _preloaded(library)]
    ours = {"LD_LIBRARY_PATH": str(library.parent), "LD_PRELOAD": ":".join(preloaded)}
    return {name: ":".join(filter(None, (ours[name], before.get(name)))) for name in ours}


def open_here(library: Path) -> None:
    """Load what `lay_out` has made: later searches for these names in this process find it."""
    for path in (library, library.with_name(MONITOR), *_preloaded(library)):
        ctypes.CDLL(str(path))


def _preloaded(library: Path) -> list[Path]:
    """Return the libraries that programs would not find by LD_LIBRARY_PATH.

    Programs search other folders first, but use a library of that name if it is already loaded.
    """
    compilers = [library.with_name(name) for name in COMPILERS]
    linkers = [library.with_name(name) for name in NO_LINKERS]
    return [*linkers, *(path for path in compilers if path.exists())]


def _link(link: Path, targets: list[Path]) -> None:
    """Make a link to the first of these files that exists. If there is none, remove the link."""
    link.unlink(missing_ok=True)
    existing = [target for target in targets if target.exists()]
    if existing:
        link.symlink_to(existing[0].name)


def _write_compiler(path: Path, nvrtc: Path | None) -> None:
    """Write a libnvrtc and the link to the NVRTC that it calls, or remove both."""
    link = path.with_name(real_name(path.name))
    link.unlink(missing_ok=True)
    if nvrtc is None:
        path.unlink(missing_ok=True)
        return
    link.symlink_to(nvrtc)
    built, name = COMPILERS[-1].encode(), path.name.encode()
    # The name is also the version of the symbols, whose hash the dynamic loader compares.
    content = _content_of("_nvrtc").replace(built, name)
    _write(path, content.replace(_elf_hash(built), _elf_hash(name)))


def _elf_hash(name: bytes) -> bytes:
    """Return the ELF hash of the name of a symbol version."""
    value = 0
    for letter in name:
        value = (value << 4) + letter
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return struct.pack("=I", value)


def _content_of(name: str) -> bytes:
    """Return the content of a library that is built with the software driver."""
    found = find_spec(f"{__package__}.{name}")
    if found is None or found.origin is None:
        raise FileNotFoundError(f"{__package__} was installed without its file {name}")
    return Path(found.origin).read_bytes()


def _write(path: Path, content: bytes) -> None:
    """Write a library. Programs that have loaded the previous file keep using that file."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.chmod(0o755)
    unfinished.replace(path)


def _is_ours(path: Path) -> bool:
    """Whether `lay_out` wrote this file, or the path is a dangling link to such a file."""
    if not path.exists():
        return path.is_symlink() and path.readlink().name.startswith(
            ("_softdriver", NAME, *COMPILERS)
        )
    content = path.read_bytes()
    return any(mark in content for mark in MARKS)


def _renamed(library: bytes) -> bytes:
    """Return the content of a library with its SONAME changed from BUILT_AS to NAME.

    NAME is the end of BUILT_AS, so only the offset of the SONAME in the string table changes.
    """
    [(start, _, size)] = _segments(library, DYNAMIC)
    entries: dict[int, tuple[int, int]] = {}
    for place in range(start, start + size, 16):
        tag, value = struct.unpack_from("=qQ", library, place)
        entries.setdefault(tag, (place, value))
    place, name = entries[SONAME]
    strings = _file_offset(library, entries[STRING_TABLE][1])
    if not library.startswith(BUILT_AS + b"\0", strings + name):
        raise RuntimeError(f"the software driver was not built with the SONAME {BUILT_AS.decode()}")
    content = bytearray(library)
    shift = len(BUILT_AS) - len(NAME)
    struct.pack_into("=qQ", content, place, SONAME, name + shift)
    return bytes(content)


def _segments(library: bytes, kind: int) -> Iterator[tuple[int, int, int]]:
    """Yield the offset in the file, the address and the size of each segment of a kind."""
    (table,) = struct.unpack_from("=Q", library, 32)
    each, count = struct.unpack_from("=HH", library, 54)
    for place in range(table, table + each * count, each):
        found, _, offset, address, _, size = struct.unpack_from("=IIQQQQ", library, place)
        if found == kind:
            yield offset, address, size


def _file_offset(library: bytes, address: int) -> int:
    for offset, begin, size in _segments(library, LOAD):
        if begin <= address < begin + size:
            return offset + address - begin
    raise RuntimeError("the software driver's file has no string table")
