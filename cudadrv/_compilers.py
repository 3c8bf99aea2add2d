"""Finds and calls the compilers of CUDA C: nvcc of a toolkit, and NVRTC from PyPI."""

import contextlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from cudadrv._compile_inputs import Inputs, read_regular
from cudadrv._cpp_names import instantiations, take_instantiations, with_notes
from cudadrv._environment import toolkits

DEFAULT_TOOLKIT = Path("/usr/local/cuda")
INSTALL_NVRTC = "python -m pip install 'cudadrv[nvrtc]'"
# With surrogateescape, bytes that are not UTF-8 (comments in other encodings) stay unchanged.
ENCODING: Any = {"encoding": "utf-8", "errors": "surrogateescape"}
# nvcc runs its tools through a shell, with names in double quotes. These characters are special
# inside double quotes.
SHELL_IN_PATHS = frozenset('$`"')
SHELL_IN_OPTIONS = frozenset("$`")  # a double quote is allowed: -DNAME="text"
# Environment variables with options and folders for nvcc, its profile, and its host compiler.
VARIABLES = (
    *("INCLUDES", "SYSTEM_INCLUDES", "CUDAFE_FLAGS", "CICC_PATH", "NVVMIR_LIBRARY_DIR"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH"),
)
# This environment variable names a file, to which the host compiler appends the list of files that
# it has read, unless an option or another variable already makes it write such a list. nvcc's own
# -MD cannot be used: it preprocesses the source for the host as well, which may fail, and omits the
# files of -imacros.
LISTING_VARIABLE = "SUNPRO_DEPENDENCIES"
FIRST_HEADER = "cuda_runtime.h"  # nvcc has each source include it
OPTIONS_FILE = re.compile(r"--?(?:optf|options-file)(?:=(.*))?", re.DOTALL)
# Options that make the compiler read files that its list of files does not contain.
UNLISTED_OF_NVCC = re.compile(r"--?(?:ldir|libdevice-directory)\b")
UNLISTED_OF_NVRTC = re.compile(r"-Xcudafe|--?[\w-]*(?:pch|bundled)")
FOLDER_OF_NVRTC = re.compile(r"(?:-I|--include-path)=?(.*)", re.DOTALL)
# With the first option, NVRTC's front end lists the included files, indented by their depth; the
# second one names the file for the list. Both are undocumented; NVRTC 12.0 to 13.5 have them.
LISTING_OF_NVRTC = ("-Xcudafe", "--trace_includes", "-Xcudafe", "--error_output={}")
NO_FILE = Path(os.devnull, "source.cu")  # no file can be there
INSIDE_NVRTC = frozenset({"__nv_nvrtc_builtin_header.h", "__nv_name_map"})


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
    """CUDA C: its text, its name in messages, and its path if it is a file.

    ``names`` are the name expressions of kernels that the compiler has to compile.
    """

    text: str
    name: str
    path: Path | None
    names: tuple[str, ...] = ()


def _with_name(source: Source) -> str:
    """Return the text with its name, which is for messages and ``__FILE__`` and never a path."""
    name = source.name.replace("\\", r"\\").replace('"', r"\"")
    return f'#line 1 "{name}"\n{source.text}'


def _encoded(text: str) -> bytes:
    return text.encode(**ENCODING)


class Compiled(NamedTuple):
    """PTX, the messages of the compiler, and what it has read: None if that is unknown."""

    ptx: str
    log: str
    inputs: Inputs | None


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

    def environment(self) -> list[str]:
        """List the environment variables that change what it does, with their values."""
        return []

    @abstractmethod
    def compile(
        self, source: Source, architecture: str, options: Sequence[str], *, listing: bool
    ) -> Compiled:
        """Compile, or raise CompileError. If listing, find out what the compiler reads."""

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
                [self.path, question],
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
            ).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompilerNotFoundError(f"{self.path} cannot be run: {error}") from None

    def identity(self) -> str:
        status = self.path.stat()  # also distinguishes wrappers, which may add options
        return f"{self.path.resolve()} {status.st_size} {status.st_mtime_ns}\n{self._said}"

    def architectures(self) -> list[int]:
        return [
            int(found) for found in re.findall(r"compute_(\d+)\b", self._ask("--list-gpu-arch"))
        ]

    def all_options(self, options: Sequence[str]) -> list[str]:
        # nvcc reads these variables itself.
        before, after = (os.environ.get(f"NVCC_{end}_FLAGS", "") for end in ("PREPEND", "APPEND"))
        return [*before.split(), *options, *after.split()]

    def environment(self) -> list[str]:
        names = {*VARIABLES, *(name for name in os.environ if name.startswith("NVCC_"))}
        return [f"{name}={os.environ.get(name)}" for name in sorted(names)]

    def compile(
        self, source: Source, architecture: str, options: Sequence[str], *, listing: bool
    ) -> Compiled:
        for option in options:
            _refuse_shell("the option", option, SHELL_IN_OPTIONS)
        given = [f"-arch={architecture}", *options]
        # The kernels to compile are added to the text, because the file cannot be changed.
        if source.names and source.path is not None:
            given.append(f"-I{source.path.parent}")
            _refuse_shell("the option", given[-1], SHELL_IN_OPTIONS)
        compiled = self._run(source, given, listing)
        self._working.add(self._found_by())
        return compiled

    def works(self) -> bool:
        if self._found_by() not in self._working:
            try:
                self._run(Source("", "empty.cu", None), [], listing=False)
            except CompileError:
                return False
            self._working.add(self._found_by())
        return True

    def _found_by(self) -> tuple[str, str]:
        """Return what identifies this nvcc, and the PATH on which it finds a C++ compiler."""
        return self.identity(), os.environ.get("PATH", "")

    def _run(self, source: Source, options: Sequence[str], listing: bool) -> Compiled:
        if source.path is not None:
            _refuse_shell("the file", str(source.path), SHELL_IN_PATHS)
        temporary = tempfile.gettempdir()
        _refuse_shell("the temporary folder (TMPDIR)", temporary, SHELL_IN_PATHS)
        with tempfile.TemporaryDirectory(prefix="cudadrv-", dir=temporary) as folder:
            file = source.path or Path(folder, "source.cu")
            if source.path is None or source.names:
                file = Path(folder, "source.cu")
                file.write_text(_with_name(source) + instantiations(source.names), **ENCODING)
            target = Path(folder, "out.ptx")
            command = [str(self.path), "-ptx", "-x", "cu", *options]
            command += ["-o", str(target), str(file)]
            environ = {**os.environ, "TMPDIR": folder}
            read = Path(folder, "read.d")
            # The variable takes a name without spaces.
            listing = listing and LISTING_VARIABLE not in environ and " " not in str(read)
            adding = {LISTING_VARIABLE: str(read)} if listing else {}
            done = _run_program(command, environ | adding, errors="replace")
            log = (done.stdout + done.stderr).replace(str(file), source.name)
            if done.returncode:
                what = f"{self} could not compile {source.name} (exit status {done.returncode})"
                raise CompileError(what, log, command)
            try:
                ptx = target.read_text(encoding="utf-8", errors="replace")
            except FileNotFoundError:
                ptx = ""
            _check_ptx(ptx, self, source, log, command)
            ptx, known = take_instantiations(ptx, source.names)
            ptx = with_notes(ptx, _all_known(known, source, self, log, command))
            inputs = None
            if listing:
                with contextlib.suppress(OSError, ValueError):  # the files then stay unknown
                    files = _prerequisites(os.fsdecode(read.read_bytes()))
                    files += [] if source.path is None else [str(source.path)]
                    inputs = self._inputs(files, options, command, environ)
            return Compiled(ptx, log, inputs)

    def _inputs(
        self,
        files: list[str],
        options: Sequence[str],
        command: Sequence[str],
        environ: Mapping[str, str],
    ) -> Inputs | None:
        """Return the inputs of a command, from the list of files and the output of nvcc -dryrun."""
        options = self.all_options(options)
        named = _files_of_options(options)
        if named is None or any(map(UNLISTED_OF_NVCC.match, options)):
            return None
        said = _run_program([command[0], "-dryrun", *command[1:]], environ).stderr
        lines = re.findall(r"^#\$ (.*)$", said, re.MULTILINE)
        variables = dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))
        calls = [line for line in lines if " -E " in line]
        if len(calls) != 1 or SHELL_IN_OPTIONS.intersection(calls[0]):
            return None
        call = shlex.split(calls[0])
        # A list without this header is from nvcc's call that asks the host compiler's version.
        if FIRST_HEADER in call and FIRST_HEADER not in {Path(file).name for file in files}:
            return None
        path = variables.get("PATH", environ.get("PATH", ""))
        environ = {**environ, "PATH": path}
        folders = _search_folders(_without_files(call, command[-1]), environ)
        for variable in VARIABLES:
            environ.pop(variable, None)
        usual = _search_folders([call[0], "-E", "-x", "c++"], environ)
        top = variables.get("TOP", str(self.path.resolve().parents[1]))
        own = [*usual, *(folder for folder in folders if folder.startswith(top))]
        profile = Path(variables.get("_HERE_", self.path.resolve().parent), "nvcc.profile")
        return Inputs(
            files=[*files, *named, *([str(profile)] if profile.is_file() else [])],
            folders=folders,
            given=[folder for folder in folders if folder not in own],
            own=own,
            texts=[*options, *named.values()],
            program=(call[0], path.removesuffix(os.environ.get("PATH", "")).rstrip(os.pathsep)),
        )


def _run_program(
    command: Sequence[str], environ: Mapping[str, str], errors: str = "surrogateescape"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors=errors,
        env=environ,
    )


def _check_ptx(
    ptx: str, compiler: Compiler, source: Source, log: str, command: Sequence[str]
) -> None:
    """Raise CompileError unless this is PTX. Some options make a compiler write another format."""
    if not re.search(r"^\s*\.version\s+\d", ptx, re.MULTILINE):
        what = f"{compiler} wrote no PTX for {source.name}; see the options"
        raise CompileError(what, log, command)


def _all_known(
    known: Mapping[str, str],
    source: Source,
    compiler: Compiler,
    log: str,
    command: Sequence[str],
) -> Mapping[str, str]:
    """Raise CompileError if the compiler has not told the mangled name of a name expression."""
    for name in source.names:
        if name not in known:
            what = f"{compiler} has not told which kernel of {source.name} is {name!r}"
            raise CompileError(what, log, command)
    return known


def _prerequisites(rules: str) -> list[str]:
    """Return the files on which the targets of rules for Make depend."""
    files = []
    for rule in rules.replace("\\\n", " ").splitlines():
        _, *words = re.findall(r"(?:[^\\\s]|\\.)+", rule) or [""]
        for word in words:
            # Before a space, backslashes are doubled, and one more is added.
            spaces = re.sub(r"(\\*)\\([ \t#])", lambda at: at[1][::2] + at[2], word)
            files.append(spaces.replace("$$", "$"))
    return files


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long for a name
        return False


def _files_of_options(options: Sequence[str]) -> dict[str, str] | None:
    """Return the text of each file that options may name, and of the files that hold options.

    None if it is not understood which file holds options.
    """
    found: dict[str, str] = {}
    todo = [list(options)]
    while todo:
        words = todo.pop()
        names = {name for word in words for name in re.split(r"[=,\s\"']+", word)}
        names.update(words, (word.partition("=")[2] for word in words))
        holders = {name[1:] for name in names if name.startswith("@") and _is_file(name[1:])}
        for at, word in enumerate(words):
            if match := OPTIONS_FILE.fullmatch(word):
                value = match[1] if match[1] is not None else "".join(words[at + 1 : at + 2])
                named = {value} if _is_file(value) else set(value.split(","))
                if not all(map(_is_file, named)):
                    return None
                holders |= named
        new = holders.union(filter(_is_file, names)).difference(found)
        found |= {name: os.fsdecode(read_regular(name)[0]) for name in new}
        todo += [found[name].split() for name in holders & new]
    return found


def _without_files(call: Sequence[str], source: str) -> list[str]:
    """Return a call of a host compiler without its input, its output, and nvcc's long header."""
    kept: list[str] = []
    for word in call:
        if kept and (kept[-1] == "-o" or (kept[-1], word) == ("-include", FIRST_HEADER)):
            kept.pop()
        elif word != source:
            kept.append(word)
    return kept


def _search_folders(call: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return the folders that a host compiler searches for included files.

    Folders that do not exist come first, because the compiler does not say where they would be in
    its list.
    """
    # No `-o /dev/null`: a compiler that fails as root would delete the device.
    said = _run_program([*call, "-v", os.devnull], {**environ, "LC_ALL": "C"}).stderr
    _, _, rest = said.partition("search starts here:\n")
    listed, end, _ = rest.partition("End of search list.")
    if not end:
        raise ValueError(f"{call[0]} does not say which folders it searches")
    missing = re.findall(r'^ignoring nonexistent directory "(.*)"$', said, re.MULTILINE)
    return [*missing, *re.findall(r"^ (.*)$", listed, re.MULTILINE)]


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
        versions = [_package_version(package) for package in packages]
        return f"{self} {versions} {_loaded_libraries('libnvrtc')}"

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

    def compile(
        self, source: Source, architecture: str, options: Sequence[str], *, listing: bool
    ) -> Compiled:
        given = [f"--gpu-architecture={architecture}"]
        if source.path is not None:
            given.append(f"-I{source.path.parent}")
        given += self.all_options(options)
        if not listing or any(map(UNLISTED_OF_NVRTC.match, options)):
            return Compiled(*self._run(source, given, ()), None)
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cudadrv-"))
            except OSError:  # only the cache needs the list
                return Compiled(*self._run(source, given, ()), None)
            read = Path(folder, "read")
            adding = [option.format(read) for option in LISTING_OF_NVRTC]
            ptx, log = self._run(source, given, adding)
            files = _included(os.fsdecode(read.read_bytes())) if read.exists() else None
            return Compiled(ptx, log, self._inputs(given, files))

    def _run(self, source: Source, given: Sequence[str], adding: Sequence[str]) -> tuple[str, str]:
        """Return PTX and log. If this NVRTC does not know the options in `adding`, omits them."""
        # NVRTC searches the folder of a source for included files. A text without a file gets a
        # folder that cannot exist.
        file, text = source.path or NO_FILE, source.text if source.path else _with_name(source)
        program = self._call("nvrtcCreateProgram", *map(_encoded, (text, str(file))), 0, [], [])
        try:
            for name in source.names:
                self._call("nvrtcAddNameExpression", program, _encoded(name))
            encoded = [_encoded(option) for option in (*given, *adding)]
            (status,) = self._api.nvrtcCompileProgram(program, len(encoded), encoded)
            log = self._text(program, "ProgramLog").replace(str(NO_FILE), source.name)
            if status != 0:
                if adding and re.match(r"nvrtc: error|Command-line error", log):
                    return self._run(source, given, ())
                what = f"{self} could not compile {source.name} ({status.name})"
                raise CompileError(what, log, given)
            ptx = self._text(program, "PTX")
            _check_ptx(ptx, self, source, log, given)
            known = {name: self._lowered(program, name) for name in source.names}
            return with_notes(ptx, known), log
        finally:
            self._call("nvrtcDestroyProgram", program)

    def _lowered(self, program: Any, name: str) -> str:
        mangled: bytes = self._call("nvrtcGetLoweredName", program, _encoded(name))
        return mangled.decode().rstrip("\0")

    def _inputs(self, given: Sequence[str], files: Sequence[str] | None) -> Inputs | None:
        if files is None:
            return None
        folders = []
        for at, option in enumerate(given):
            if match := FOLDER_OF_NVRTC.fullmatch(option):
                folders.append(match[1] or "".join(given[at + 1 : at + 2]))
        own = self._headers()
        return Inputs(
            files=files,
            folders=folders,
            given=[folder for folder in folders if folder not in own],
            own=own,
            texts=given,
        )

    def _text(self, program: Any, what: str) -> str:
        text = bytearray(self._call(f"nvrtcGet{what}Size", program))
        self._call(f"nvrtcGet{what}", program, text)
        return text.decode(errors="replace").rstrip("\0")


def _included(listing: str) -> list[str] | None:
    """Return the files that NVRTC's list names; None if the list is not as expected."""
    files = []
    first, *lines = listing.splitlines() or [""]
    if first not in INSIDE_NVRTC:
        return None
    for line in lines:
        if line not in INSIDE_NVRTC:
            path = line.lstrip(" ")
            # A name that starts with spaces looks like one of a file at a greater depth.
            depth = len(line) - len(path)
            if any(Path(" " * more + path).exists() for more in range(1, depth + 1)):
                return None
            files.append(path)
    return files


def _loaded_libraries(name: str) -> list[str]:
    """Return what identifies each loaded library of this name, such as the library of a toolkit."""
    maps = Path("/proc/self/maps").read_text(**ENCODING)
    found = re.findall(rf"(\d+) +(/.*/{name}\.so[^/\n]*)$", maps, re.MULTILINE)
    libraries = []
    for inode, path in sorted(set(found)):
        try:
            status = Path(path).stat()
            libraries.append(f"{path} {status.st_size} {status.st_mtime_ns}")
        except OSError:  # the library was replaced after it had been loaded
            libraries.append(f"{path} {inode}")
    return libraries


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
    for variable, folder in toolkits(environ):
        # The user chose this toolkit, so no other one is used.
        chosen = Path(folder, "bin", "nvcc")
        if not chosen.is_file():
            raise CompilerNotFoundError(
                f"{variable} is set to {folder!r}, but there is no bin/nvcc in it"
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
