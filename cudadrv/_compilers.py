"""Finds and calls the compilers of CUDA C: nvcc of a toolkit, and NVRTC from PyPI."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

DEFAULT_TOOLKIT = Path("/usr/local/cuda")
INSTALL_NVRTC = "python -m pip install 'cudadrv[nvrtc]'"
# With surrogateescape, bytes that are not UTF-8 (comments in other encodings) stay unchanged.
ENCODING: Any = {"encoding": "utf-8", "errors": "surrogateescape"}
# nvcc runs its tools through a shell, with names in double quotes. These characters are special
# inside double quotes.
SHELL_IN_PATHS = frozenset('$`"')
SHELL_IN_OPTIONS = frozenset("$`")  # a double quote is allowed: -DNAME="text"


class CompileError(RuntimeError):
    """The compiler rejected the source. The message contains its log.

    Attributes
    ----------
    log : str
        The output of the compiler.
    command : tuple of str
        The command line of nvcc, or the options of NVRTC.
    """

    def __init__(self, message: str, log: str, command: Sequence[str]) -> None:
        super().__init__(f"{message}:\n{log.rstrip()}" if log.strip() else message)
        self.log = log
        self.command = tuple(command)


class CompilerNotFoundError(RuntimeError):
    """No compiler of CUDA C was found. The message says where it was searched for."""


class Source(NamedTuple):
    """CUDA C: its text, its name in messages, and its path if it is a file."""

    text: str
    name: str
    path: Path | None


class Compiled(NamedTuple):
    ptx: str
    log: str


class Compiler(ABC):
    """A compiler of this machine.

    Attributes
    ----------
    name : str
        ``"nvcc"`` or ``"nvrtc"``.
    version : tuple of int
        The CUDA release that it belongs to, such as ``(13, 0)``.
    origin : str
        Where it was found.
    """

    def __init__(self, name: str, version: tuple[int, int], origin: str) -> None:
        self.name = name
        self.version = version
        self.origin = origin

    def __repr__(self) -> str:
        return f"<{self} from {self.origin}>"

    def __str__(self) -> str:
        return f"{self.name} {self.version[0]}.{self.version[1]}"

    @abstractmethod
    def identity(self) -> str:
        """A text that differs between compilers that may generate different PTX."""

    @abstractmethod
    def architectures(self) -> list[int]:
        """List the virtual architectures that it can compile for: 75 is ``compute_75``."""

    def all_options(self, options: Sequence[str]) -> list[str]:
        """Return the options, and those that environment variables or the compiler add."""
        return list(options)

    @abstractmethod
    def compile(self, source: Source, architecture: str, options: Sequence[str]) -> Compiled:
        """Compile, or raise CompileError."""

    def works(self) -> bool:
        """Whether the compiler can compile anything. Called after it has rejected a source."""
        return True


class Nvcc(Compiler):
    # What `_found_by` returned for each nvcc that has compiled something.
    _working: ClassVar[set[tuple[str, str]]] = set()

    def __init__(self, path: Path, origin: str) -> None:
        for each in (path, path.resolve()):
            if found := SHELL_IN_PATHS.intersection(str(each)):
                raise CompilerNotFoundError(
                    f"{each} has {min(found)!r} in its name, which nvcc would give to a shell"
                )
        self.path = path
        self._said = self._ask("--version")
        release = re.search(r"release (\d+)\.(\d+)", self._said)
        if release is None:
            raise CompilerNotFoundError(f"{path} --version does not say which release it is")
        super().__init__("nvcc", (int(release[1]), int(release[2])), origin)

    def _ask(self, question: str) -> str:
        try:
            return subprocess.run(
                [self.path, question], check=True, capture_output=True, text=True
            ).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompilerNotFoundError(f"{self.path} cannot be run: {error}") from None

    def identity(self) -> str:
        return f"{self.path.resolve()}\n{self._said}"

    def architectures(self) -> list[int]:
        return [
            int(found) for found in re.findall(r"compute_(\d+)\b", self._ask("--list-gpu-arch"))
        ]

    def all_options(self, options: Sequence[str]) -> list[str]:
        # nvcc reads these variables itself.
        before, after = (os.environ.get(f"NVCC_{end}_FLAGS", "") for end in ("PREPEND", "APPEND"))
        return [*before.split(), *options, *after.split()]

    def compile(self, source: Source, architecture: str, options: Sequence[str]) -> Compiled:
        for option in options:
            _refuse_shell("the option", option, SHELL_IN_OPTIONS)
        compiled = self._run(source, [f"-arch={architecture}", *options])
        self._working.add(self._found_by())
        return compiled

    def works(self) -> bool:
        if self._found_by() not in self._working:
            try:
                self._run(Source("", "empty.cu", None), [])
            except CompileError:
                return False
            self._working.add(self._found_by())
        return True

    def _found_by(self) -> tuple[str, str]:
        """Return what identifies this nvcc, and the PATH on which it finds a C++ compiler."""
        return self.identity(), os.environ.get("PATH", "")

    def _run(self, source: Source, options: Sequence[str]) -> Compiled:
        if source.path is not None:
            _refuse_shell("the file", str(source.path), SHELL_IN_PATHS)
        temporary = tempfile.gettempdir()
        _refuse_shell("the temporary folder (TMPDIR)", temporary, SHELL_IN_PATHS)
        with tempfile.TemporaryDirectory(prefix="cudadrv-", dir=temporary) as folder:
            file = source.path or Path(folder, "source.cu")
            if source.path is None:
                # The name is text for messages and __FILE__, never a path.
                name = source.name.replace("\\", r"\\").replace('"', r"\"")
                file.write_text(f'#line 1 "{name}"\n{source.text}', **ENCODING)
            target = Path(folder, "out.ptx")
            command = [str(self.path), "-ptx", "-x", "cu", *options]
            command += ["-o", str(target), str(file)]
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                env={**os.environ, "TMPDIR": folder},
            )
            log = (done.stdout + done.stderr).replace(str(file), source.name)
            if done.returncode:
                what = f"{self} could not compile {source.name} (exit status {done.returncode})"
                raise CompileError(what, log, command)
            try:
                return Compiled(target.read_text(encoding="utf-8", errors="replace"), log)
            except FileNotFoundError:
                what = f"{self} wrote no PTX for {source.name}; see the options"
                raise CompileError(what, log, command) from None


def _refuse_shell(what: str, text: str, characters: frozenset[str]) -> None:
    if found := characters.intersection(text):
        raise ValueError(
            f"{what} {text!r} has {min(found)!r} in it: nvcc would give that to a shell, which"
            " would expand or run it. Use another name, or compiler='nvrtc', which runs no shell"
        )


class Nvrtc(Compiler):
    """NVRTC, called through the package cuda-bindings."""

    def __init__(self) -> None:
        try:
            self._api: Any = importlib.import_module("cuda.bindings.nvrtc")
            # The first call loads the library, which may be missing although the binding is there.
            major, minor = self._call("nvrtcVersion")
        except (ImportError, RuntimeError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise CompilerNotFoundError(f"cuda.bindings.nvrtc cannot be used: {first}") from None
        super().__init__("nvrtc", (major, minor), str(self._api.__file__))

    def _call(self, function: str, *arguments: Any) -> Any:
        status, *results = getattr(self._api, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function}: {status.name}")
        return results[0] if len(results) == 1 else results

    def identity(self) -> str:
        # nvrtcVersion returns only major and minor; the patch number is in the package's version.
        packages = ("nvidia-cuda-nvrtc", f"nvidia-cuda-nvrtc-cu{self.version[0]}")
        return f"{self} {[_package_version(package) for package in packages]}"

    def architectures(self) -> list[int]:
        return [int(number) for number in self._call("nvrtcGetSupportedArchs")]

    def all_options(self, options: Sequence[str]) -> list[str]:
        return [*options, *(f"-I{folder}" for folder in self._headers())]

    def _headers(self) -> list[str]:
        """Return the folder of the toolkit's headers (cuda_fp16.h), or an empty list without one.

        NVRTC does not search this folder itself.
        """
        try:
            pathfinder: Any = importlib.import_module("cuda.pathfinder")
            found = pathfinder.find_nvidia_header_directory("cudart")
        except (ImportError, AttributeError, RuntimeError):
            return []
        return [str(found)] if found else []

    def compile(self, source: Source, architecture: str, options: Sequence[str]) -> Compiled:
        given = [f"--gpu-architecture={architecture}"]
        if source.path is not None:
            given.append(f"-I{source.path.parent}")
        given += self.all_options(options)
        name = str(source.path or source.name).encode(**ENCODING)
        text = source.text.encode(**ENCODING)
        program = self._call("nvrtcCreateProgram", text, name, 0, [], [])
        try:
            encoded = [option.encode(**ENCODING) for option in given]
            (status,) = self._api.nvrtcCompileProgram(program, len(encoded), encoded)
            log = self._text(program, "ProgramLog")
            if status != 0:
                what = f"{self} could not compile {source.name} ({status.name})"
                raise CompileError(what, log, given)
            return Compiled(self._text(program, "PTX"), log)
        finally:
            self._call("nvrtcDestroyProgram", program)

    def _text(self, program: Any, what: str) -> str:
        text = bytearray(self._call(f"nvrtcGet{what}Size", program))
        self._call(f"nvrtcGet{what}", program, text)
        return text.decode(errors="replace").rstrip("\0")


def _package_version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def find_compilers(
    wanted: str | None = None,
    environ: Mapping[str, str] = os.environ,
    default_toolkit: Path = DEFAULT_TOOLKIT,
    path: Iterable[str] | None = None,
) -> list[Compiler]:
    """List the compilers that are installed, nvcc first.

    Parameters
    ----------
    wanted
        ``"nvcc"`` or ``"nvrtc"``; default: both.
    environ, default_toolkit, path
        Where nvcc is searched for: ``CUDA_HOME``, ``CUDA_PATH`` and ``PATH`` of the environment,
        the default toolkit, and NVIDIA's Python package in the folders of `path` (default:
        ``sys.path``). If ``CUDA_HOME`` or ``CUDA_PATH`` is set, no other place is searched.

    Returns
    -------
    list of Compiler
        At least one.

    Raises
    ------
    CompilerNotFoundError
        No compiler was found. The message says where each was searched for, and how to install one.
    ValueError
        ``wanted`` is neither ``"nvcc"`` nor ``"nvrtc"`` nor None.
    """
    return list(each_compiler(wanted, environ, default_toolkit, path))


def each_compiler(
    wanted: str | None = None,
    environ: Mapping[str, str] = os.environ,
    default_toolkit: Path = DEFAULT_TOOLKIT,
    path: Iterable[str] | None = None,
) -> Iterator[Compiler]:
    """Iterate over the compilers of `find_compilers`. Each is searched for when it is needed."""
    if wanted not in (None, "nvcc", "nvrtc"):
        raise ValueError(f"there is no compiler {wanted!r}: 'nvcc', 'nvrtc', or None for either")
    tried = []
    for name in ("nvcc", "nvrtc"):
        if wanted in (None, name):
            try:
                yield Nvrtc() if name == "nvrtc" else _find_nvcc(environ, default_toolkit, path)
            except CompilerNotFoundError as error:
                tried.append(f"  {name}: {error}")
    if len(tried) == (2 if wanted is None else 1):
        raise CompilerNotFoundError(
            f"no compiler of CUDA C ({wanted or 'nvcc or NVRTC'}) was found. Tried:\n"
            + "\n".join(tried)
            + f"\nInstall NVRTC with\n  {INSTALL_NVRTC}\n"
            "or set CUDA_HOME to the folder of a CUDA toolkit."
        )


def _find_nvcc(
    environ: Mapping[str, str], default_toolkit: Path, path: Iterable[str] | None
) -> Nvcc:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(variable):
            # The user chose this toolkit, so no other one is used.
            chosen = Path(environ[variable], "bin", "nvcc")
            if not chosen.is_file():
                raise CompilerNotFoundError(
                    f"{variable} is set to {environ[variable]!r}, but there is no bin/nvcc in it"
                )
            return Nvcc(chosen, variable)
    on_path = shutil.which("nvcc", path=environ.get("PATH", ""))
    if on_path is not None:
        return Nvcc(Path(on_path).absolute(), "PATH")
    if (nvcc := default_toolkit / "bin" / "nvcc").is_file():
        return Nvcc(nvcc, str(default_toolkit))
    for entry in sys.path if path is None else path:
        for nvcc in sorted(Path(entry, "nvidia").glob("cu[0-9]*/bin/nvcc"), reverse=True):
            return Nvcc(nvcc.absolute(), "the package nvidia-cuda-nvcc")
    raise CompilerNotFoundError(
        "CUDA_HOME and CUDA_PATH are not set, it is neither on PATH nor in"
        f" {default_toolkit}, and the package nvidia-cuda-nvcc is not installed"
    )
