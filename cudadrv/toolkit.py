"""Compiles CUDA C to PTX with the compiler of this machine: nvcc, or NVRTC from PyPI.

Nothing else in cudadrv needs a compiler: a module loads PTX that was compiled anywhere. Importing
``cudadrv.toolkit`` does not search for a compiler, and ``import cudadrv`` does not import it.
"""

import logging
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from cudadrv._compile_cache import Cache, Entry, cache_folder, cache_key
from cudadrv._compile_inputs import now, take_snapshot
from cudadrv._compilers import (
    ENCODING,
    INSTALL_NVRTC,
    CompileError,
    Compiler,
    CompilerNotFoundError,
    Source,
    each_compiler,
    find_compilers,
)
from cudadrv._device import Device
from cudadrv._errors import show_as
from cudadrv._library import driver_info
from cudadrv._stream import Stream

__all__ = [
    "CompileError",
    "Compiler",
    "CompilerNotFoundError",
    "PTXVersionError",
    "cache_folder",
    "compile",
    "find_compilers",
    "newest_ptx",
]

_log = logging.getLogger("cudadrv")

# The newest PTX version of each release of CUDA 12, from 12.0 on. Release 13.n has PTX 9.n.
PTX_OF_12 = ((8, 0), (8, 1), (8, 2), (8, 3), (8, 4), (8, 5), (8, 5), (8, 6), (8, 7), (8, 8))

# Surrogates in U+DC80 to U+DCFF stand for bytes that are not UTF-8.
UNWRITABLE = re.compile(r"[\0\ud800-\udc7f\udd00-\udfff]")


# Options with which the PTX has lines of the source.
LINE_OPTIONS = {"-lineinfo", "--generate-line-info", "-G", "--device-debug"}


class PTXVersionError(RuntimeError):
    """The compiler is newer than the driver, which cannot read its PTX."""


def compile(
    source: str | os.PathLike[str],
    *,
    device: Device | None = None,
    arch: str | None = None,
    options: Sequence[str] = (),
    name: str | None = None,
    names: Sequence[str] = (),
    compiler: str | None = None,
    cache: bool = True,
) -> str:
    """Compile CUDA C to PTX.

    Blocks while the compiler runs. Does not order any work. The PTX is kept in `cache_folder`, so
    the same source with the same included files, options, architecture and compiler is compiled
    only once for a user. PTX that may change although all of these stay the same (``__TIME__``) is
    not kept. Warnings of the compiler go to the logger ``cudadrv``; PTX from the cache causes no
    warnings.

    Parameters
    ----------
    source
        The source itself as a str, or the path of a file (`pathlib.Path`).
    device
        The device to compile for; default: the current device. An architecture that the compiler
        does not know is replaced by the newest earlier one that it knows.
    arch
        A virtual architecture instead of a device: ``"compute_75"``. If it is given, no driver is
        loaded, and the PTX is not checked against the driver.
    options
        Passed to the compiler unchanged: ``["-DSIZE=4", "--use_fast_math", "-Iinclude"]``. The
        compiler searches for quoted includes in the folder of the source file and in the folders of
        ``-I``; if the source is a str, only in the latter. Options of nvcc can run programs
        (``-ccbin``): accept none from people you do not trust. On the software driver, unless
        ``arch`` is given, ``-lineinfo`` is added: its reports then have lines of the source.
    name
        The name of a source given as a str, in messages and ``__FILE__``: any text of one line.
    names
        Kernels that are to be compiled, as in C++: ``["scale<float>", "deep::put<4>"]``.
        Kernels of templates are compiled only if they are named here, or used in the source. The
        PTX then says which mangled names they have, so ``module["scale<float>"]`` finds them.
    compiler
        ``"nvcc"`` or ``"nvrtc"``. Default: nvcc, else NVRTC. Compilers that are not newer than the
        device's driver are tried first. A compiler that cannot compile even an empty source, such
        as an nvcc without a C++ compiler, is skipped; the log says so.
    cache
        Whether to take PTX from the cache, and to keep new PTX there.

    Returns
    -------
    str
        PTX, which `cudadrv.Module` takes.

    Raises
    ------
    CompileError
        The compiler rejected the source or the options, or cannot compile anything; or an option
        made it write something other than PTX (``-E``). The error has the log and the command.
    CompilerNotFoundError
        No compiler was found, or not the one that ``compiler`` names.
    PTXVersionError
        The device's driver is too old for the PTX of this compiler.
    TypeError
        An argument has the wrong type.
    ValueError
        The arguments contradict each other; a str is a path rather than a source; a path names a
        FIFO or a device; a text has a null character or half of a surrogate pair; or a file or an
        option has characters that the shell of nvcc would interpret.
    OSError
        The file cannot be read.
    CudaError
        No architecture was given, and the driver has no device.
    """
    read = _read(source, name)._replace(names=_checked_names(names))
    if isinstance(options, str):
        raise TypeError(f"options={options!r} is one str; give a list of them: [{options!r}]")
    if not isinstance(options, Iterable):
        raise TypeError(f"options={options!r} is no list of str")
    options = tuple(options)  # an iterator gives them only once
    for option in options:
        if not isinstance(option, str):
            raise TypeError(f"options={options!r}: {option!r} is no str")
        _check_text(f"the option {option!r}", option)
    if compiler not in (None, "nvcc", "nvrtc"):
        raise ValueError(f"compiler={compiler!r}: must be 'nvcc' or 'nvrtc', or None for either")
    if arch is not None:
        if device is not None:
            raise ValueError(f"give device={device} or arch={arch!r}, not both")
        if not isinstance(arch, str) or not re.fullmatch(r"compute_\d+[af]?", arch):
            raise ValueError(f"arch={arch!r} is not a virtual architecture such as 'compute_75'")
        found = each_compiler(compiler)
        return _try_each(found, compiler, lambda each: _compile(each, read, arch, options, cache))
    if device is not None and not isinstance(device, Device):
        raise TypeError(f"device={device!r} is no Device; cudadrv.Device({device!r}) makes one")
    driver = driver_info().version
    target = Stream.legacy().device if device is None else device
    if driver_info().is_software and not LINE_OPTIONS.intersection(options):
        options += ("-lineinfo",)

    def compile_for_target(compiler: Compiler) -> str:
        ptx = _compile(compiler, read, _architecture(compiler, target), options, cache)
        _check_version(ptx, compiler, driver)
        return ptx

    found = _newer_last(each_compiler(compiler), driver)
    return _try_each(found, compiler, compile_for_target)


def _checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return name expressions as a tuple. Raises TypeError or ValueError."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"names={names!r} is no list of str; give a list: ['scale<float>']")
    found = tuple(names)
    for each in found:
        if not isinstance(each, str):
            raise TypeError(f"names={names!r}: {each!r} is no str")
        if not each.strip() or re.search(r"[\r\n\0;]", each) or "//" in each or "/*" in each:
            raise ValueError(f"names={names!r}: {each!r} is not the name of a kernel")
        _check_text(f"the name {each!r}", each)
    return tuple(dict.fromkeys(found))


def newest_ptx(driver: tuple[int, int]) -> tuple[int, int]:
    """Return the newest version of PTX that a driver of a CUDA version can read.

    Parameters
    ----------
    driver
        As in ``cudadrv.driver_info().version``.

    Returns
    -------
    tuple of int
        Such as ``(9, 0)`` for CUDA 13.0.
    """
    major, minor = driver
    return PTX_OF_12[min(minor, len(PTX_OF_12) - 1)] if major == 12 else (major - 4, minor)


def _read(source: str | os.PathLike[str], name: str | None) -> Source:
    if isinstance(source, str):
        if "\n" not in source and source.strip().endswith((".cu", ".cuh")):
            raise ValueError(f"{source!r} looks like a path; for a file give pathlib.Path(...)")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name={name!r} is no str")
        if name and re.search(r"[\r\n\0]", name):
            raise ValueError(f"name={name!r} has to be one line")
        _check_text("the source", source)
        _check_text(f"name={name!r}", name or "")
        return Source(source, name or "source.cu", None)
    if not isinstance(source, os.PathLike):
        what = type(source).__name__
        raise TypeError(f"a {what} is no source; give CUDA C as a str, or a pathlib.Path of a file")
    if name is not None:
        raise ValueError(f"name={name!r} is for a source given as a str; a file has its own name")
    path = Path(source)
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        # The compiler would have to read the file again, which may be impossible.
        raise ValueError(f"{path} is no regular file; read it, and give its text as a str")
    text = path.read_text(**ENCODING)
    _check_text(f"the file {path}", text)
    return Source(text, str(path), path.absolute())


def _check_text(what: str, text: str) -> None:
    """Raise ValueError for characters with which a compiler would get another text."""
    if found := UNWRITABLE.search(text):
        character = f"U+{ord(found[0]):04X}"
        why = "NVRTC would end it there" if found[0] == "\0" else "UTF-8 cannot encode that"
        raise ValueError(f"{what} has the character {character} at index {found.start()}: {why}")


def _newer_last(found: Iterable[Compiler], driver: tuple[int, int]) -> Iterator[Compiler]:
    """Yield the compilers that are not newer than the driver, then the others."""
    newer = []
    for compiler in found:
        if compiler.version <= driver:
            yield compiler
        else:
            newer.append(compiler)
    yield from newer


def _try_each(
    found: Iterable[Compiler], wanted: str | None, compile_by: Callable[[Compiler], str]
) -> str:
    """Compile with the first compiler that can compile anything at all."""
    broken: list[tuple[Compiler, CompileError]] = []
    for compiler in found:
        if broken:
            before, failure = broken[-1]
            _log.warning(
                "%s\n%s cannot compile an empty source either; using %s", failure, before, compiler
            )
        try:
            return compile_by(compiler)
        except CompileError as error:
            if wanted is not None or compiler.works():
                raise
            broken.append((compiler, error))
    first, failure = broken[0]
    raise CompileError(
        f"{first} cannot compile even an empty source, and no other compiler was found."
        f" NVRTC needs no C++ compiler:\n  {INSTALL_NVRTC}\n{first} wrote",
        failure.log,
        failure.command,
    ) from None


def _architecture(compiler: Compiler, device: Device) -> str:
    """Return the newest architecture that the compiler knows and the device can run."""
    major, minor = device.compute_capability
    known = compiler.architectures()
    usable = [number for number in known if number <= 10 * major + minor]
    if not usable:
        raise CompileError(
            f"{compiler} compiles for compute_{min(known)} and newer, and {device.name} is of"
            f" compute capability {major}.{minor}; an older toolkit can",
            "",
            (),
        )
    return f"compute_{max(usable)}"


def _compile(
    compiler: Compiler, source: Source, arch: str, options: Sequence[str], use_cache: bool
) -> str:
    cache, key = None, None
    if use_cache and (folder := cache_folder()) is not None:
        cache, key = Cache(folder), cache_key(compiler, source, arch, options)
    if cache and key and (kept := cache.load(key)) is not None and kept.snapshot.holds():
        return kept.ptx
    start = now()
    ptx, log, inputs = compiler.compile(source, arch, options, listing=key is not None)
    if log.strip():
        _log.warning("%s, %s:\n%s", compiler, source.name, log.rstrip())
    if cache and key and inputs is not None:
        snapshot = take_snapshot(inputs, source.text, start)
        if snapshot is not None:
            cache.store(key, Entry(ptx, snapshot))
    return ptx


def _check_version(ptx: str, compiler: Compiler, driver: tuple[int, int]) -> None:
    """Raise PTXVersionError for PTX that the driver cannot read."""
    found = re.search(r"^\s*\.version\s+(\d+)\.(\d+)", ptx, re.MULTILINE)
    if found is None or (int(found[1]), int(found[2])) <= newest_ptx(driver):
        return
    release = f"{driver[0]}.{driver[1]}"
    newest = "{}.{}".format(*newest_ptx(driver))
    package = "nvidia-cuda-nvrtc" if driver[0] >= 13 else f"nvidia-cuda-nvrtc-cu{driver[0]}"
    raise PTXVersionError(
        f"{compiler} writes PTX {found[1]}.{found[2]}, and the driver, of CUDA {release},"
        f" understands PTX up to {newest}.\nUse a compiler of CUDA {release} or older:\n"
        f"  python -m pip install '{package}=={release}.*' 'cuda-bindings=={driver[0]}.*'\n"
        f"with compiler='nvrtc', or CUDA_HOME of such a toolkit; or install a newer driver."
    )


# Messages and pickles name this module, not the internal ones that define the names.
show_as(sys.modules[__name__], " ".join(__all__), __name__)
