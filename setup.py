"""Builds the extension modules. Everything that needs no code is in pyproject.toml."""

import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError
from setuptools.modified import newer_group

# PEP 517 builds do not add these folders.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(1, os.path.join(sys.path[0], "tools"))
from cuda_header import HeaderError, find_cuda_header

GENERATED = Path("build/cython")
HEADERS = sorted(map(str, Path("include/cudadrv").glob("*.h")))
SOFTDRIVER = sorted(map(str, Path("softdriver").rglob("*.cpp")))
SOFTDRIVER_HEADERS = sorted(
    str(path) for path in Path("softdriver").rglob("*.*") if path.suffix in (".h", ".def")
)
LIBRARY = "cudadrv._compiled"  # has all Cython modules: see cudadrv/_finder.py
KERNELS = ["examples/kernels/histogram.ptx"]  # for `python -m cudadrv demo`
# The sources of each folder of the driver are compiled as one file, so that headers are read once.
# The following sources are compiled alone, because they have functions with equal names, or declare
# functions of cuda.h differently. The last two are not in all programs of the sanitizer tests.
ALONE = ("names", "constant", "decode_approximate", "decode_bits", "decode_convert")
ALONE += ("decode_float", "decode_integer", "module", "undefined")
EXPORTS = "softdriver/exports.map"
NVJITLINK = "softdriver/nvjitlink.c"
NVML = "softdriver/nvml.c"
NVRTC = "softdriver/nvrtc.c"
NVRTC_EXPORTS = "softdriver/nvrtc.map"
BUILD_FILES = ["setup.py", "cuda_header.py"]
CPUS = len(os.sched_getaffinity(0))

# These flags override those that Python was built with (often -O3 -g: slower builds, much larger
# files). A flag that CFLAGS sets is left out.
DEFAULTS = [flag for flag in ("-O2", "-g0") if flag[:2] not in os.environ.get("CFLAGS", "")]
# -Wno-unused-function: Cython emits helpers that a module may not need.
# Cython modules that no loop of a program spends its time in, such as those that make objects or
# raise errors, and such folders of the software driver. With -O1 they compile in two thirds of the
# time.
SELDOM_USED = {
    *("_array_copy", "_array_memory", "_array_staging", "_arrays", "_call_node", "_conditions"),
    *("_device", "_driver_pool", "_errors", "_growing", "_guard", "_host_function", "_in_place"),
    *("_joined", "_kinds", "_library", "_limits", "_managed", "_memory_kinds", "_migrations"),
    *("_module", "_offload", "_opening", "_peers", "_refusal", "_sharing", "_signal_node"),
    *("_textures", "_virtual"),
    *("api", "code", "device", "explore", "graph", "memory"),
}
C_FLAGS = [*DEFAULTS, "-pthread", "-fvisibility=hidden", "-Wall", "-Wno-unused-function"]
# -ffp-contract=off: the compiler must not fuse two operations that PTX rounds separately.
CXX_FLAGS = [*DEFAULTS, "-std=c++17", "-pthread", "-fvisibility=hidden", "-ffp-contract=off"]
CXX_FLAGS += ["-Wall", "-Wextra"]
CXX_FLAGS += ["-iquote", "softdriver"]  # for #include "..." only: it hides no system headers
# No code reads errno or floating-point exception flags, so loops over lanes can be vectorized.
CXX_FLAGS += ["-fno-math-errno", "-fno-trapping-math"]
# Copies of the library have the end of this name: see cudadrv/_libcuda.py.
SONAME = "cudadrv-libcuda.so.1"
# -Bsymbolic: the library exports cu* like libcuda.so.1, and must call its own functions even if
# both libraries are loaded.
CXX_LINK_FLAGS = ["-Wl,-Bsymbolic", f"-Wl,-soname,{SONAME}"]
CXX_LINK_FLAGS += [f"-Wl,--version-script={EXPORTS}", "-pthread"]

DIRECTIVES = {
    "language_level": 3,
    "binding": True,
    "embedsignature": False,
    "auto_pickle": False,
    "autotestdict": False,
}


def cython_extension(name: str, *sources: Path) -> Extension:
    return Extension(
        name,
        list(map(str, sources)),
        include_dirs=["include"],
        depends=[*HEADERS, *BUILD_FILES],
        extra_compile_args=C_FLAGS,
        extra_link_args=["-pthread"],
    )


def extensions() -> list[Extension]:
    pyx = Path("pyx")
    library = cython_extension(LIBRARY, *sorted(pyx.rglob("_*.pyx")), *sorted(pyx.glob("*.c")))
    library.define_macros = [("CUDADRV_LIBRARY", None)]
    library.define_macros += [("PyImport_ImportModule", "cudadrv_import_module")]  # see library.c
    library.define_macros += [("PyTraceBack_Here", "cudadrv_trace_back")]
    library.define_macros += [("PyModuleDef_Init", "cudadrv_define_module")]  # see methods.c
    found = [library]
    if SOFTDRIVER:
        found += software_driver("cudadrv")
    return found


def software_driver(package: str, py_limited_api: bool = False) -> list[Extension]:
    """Return the software driver's libraries for a package: cudadrv, or cudadrv_software."""
    macros = [("Py_LIMITED_API", "0x030b0000")] if py_limited_api else []
    return [
        Extension(
            f"{package}._softdriver",
            SOFTDRIVER,
            language="c++",
            # No include_dirs: it uses no header of cudadrv, and -iquote finds its own.
            depends=[*SOFTDRIVER_HEADERS, EXPORTS, *BUILD_FILES],
            extra_compile_args=CXX_FLAGS,
            extra_link_args=CXX_LINK_FLAGS,
            py_limited_api=py_limited_api,
            define_macros=macros,
        ),
        Extension(
            f"{package}._nvjitlink",
            [NVJITLINK],
            depends=BUILD_FILES,
            extra_compile_args=[*DEFAULTS, "-Wall", "-Wextra"],
            extra_link_args=["-Wl,-soname,libnvJitLink.so.13"],
            py_limited_api=py_limited_api,
            define_macros=macros,
        ),
        Extension(
            f"{package}._nvml",
            [NVML],
            depends=["softdriver/nvml_names.def", *BUILD_FILES],
            extra_compile_args=[*DEFAULTS, "-fvisibility=hidden", "-Wall", "-Wextra"],
            extra_link_args=["-Wl,-Bsymbolic", "-Wl,-soname,libnvidia-ml.so.1", "-ldl"],
            py_limited_api=py_limited_api,
            define_macros=macros,
        ),
        Extension(
            f"{package}._nvrtc",
            [NVRTC],
            depends=[NVRTC_EXPORTS, *BUILD_FILES],
            extra_compile_args=[*DEFAULTS, "-pthread", "-Wall", "-Wextra"],
            extra_link_args=[
                "-Wl,-Bsymbolic",
                "-Wl,-soname,libnvrtc.so.13",
                f"-Wl,--version-script={NVRTC_EXPORTS}",
                "-ldl",
                "-pthread",
            ],
            py_limited_api=py_limited_api,
            define_macros=macros,
        ),
    ]


def test_extensions() -> list[Extension]:
    """Return the tests' extension modules, which are built beside the tests and never packaged."""
    return [
        cython_extension(".".join(pyx.with_suffix("").parts), pyx)
        for pyx in sorted(Path("tests/ownership").glob("*.pyx"))
    ]


def declarations(module: str, found: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return a module's .pxd and all that it names, such as by cimport. Extra ones do no harm."""
    pxd = Path("cudadrv", module + ".pxd")
    if str(pxd) not in found and pxd.exists():
        found |= {str(pxd)}
        for named in re.findall(r"\b_\w+", pxd.read_text(encoding="utf-8")):
            found = declarations(named, found)
    return found


def warnings_of_cython() -> dict[str, bool]:
    """Return directives that make Cython's warnings errors, if CUDADRV_WARNINGS asks for that."""
    if os.environ.get("CUDADRV_WARNINGS") != "error":
        return {}
    from Cython.Compiler import Options

    Options.warning_errors = True
    return Options.extra_warnings


def refuse(why: str) -> NoReturn:
    sys.exit(f"\ncudadrv cannot be built: {why}\n")


def units(sources: Iterable[str], folder: str) -> dict[str, list[str]]:
    """Return the files to compile for an extension, each with the sources that it contains.

    Most sources of the software driver are compiled together: a file in `folder` includes them.
    The files that take longest come first.
    """
    found: dict[str, list[str]] = {}
    for source in map(Path, sources):
        alone = source.suffix != ".cpp" or source.stem in ALONE
        name = source if alone else Path(folder, f"{source.parent.name}.cpp")
        found.setdefault(str(name), []).append(str(source))
    for name, parts in found.items():
        text = "".join(f'#include "{"/".join(Path(part).parts[-2:])}"\n' for part in parts)
        if name not in parts and not (Path(name).exists() and Path(name).read_text() == text):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text)
    longest = sorted(found, key=lambda name: -sum(map(os.path.getsize, found[name])))
    return {name: found[name] for name in longest}


def with_less_optimization(source: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a compilation, with -O1 for code that is seldom used."""
    flags = options["extra_postargs"]
    if Path(source).stem not in SELDOM_USED or "-O2" not in flags:
        return options
    return {**options, "extra_postargs": ["-O1" if flag == "-O2" else flag for flag in flags]}


class BuildExtensions(build_ext):
    """Builds in parallel. Finds cuda.h and runs Cython only if something is really built."""

    def finalize_options(self) -> None:
        if self.inplace and not self.editable_mode:
            self.distribution.ext_modules += test_extensions()
        super().finalize_options()
        if self.parallel is None:
            self.parallel = CPUS

    def build_extensions(self) -> None:
        if self.editable_mode:
            # With the default, a temporary folder, each install would compile everything again.
            self.build_temp = f"build/temp.{self.plat_name}-{sys.implementation.cache_tag}"
        self._try_compilers()
        self._use_cuda_header()
        self._cythonize()
        compile_all = self.compiler.compile
        with ThreadPoolExecutor(int(self.parallel)) as pool:

            def compile_each(sources, output_dir=None, depends=(), **options):
                # distutils would compile the files of an extension in turn, and always all of them.
                def compile_one(unit):
                    source, parts = unit
                    (target,) = self.compiler.object_filenames([source], output_dir=output_dir)
                    if self.force or newer_group([source, *parts, *depends], target):
                        chosen = with_less_optimization(source, options)
                        compile_all([source], output_dir=output_dir, **chosen)
                    return target

                return list(pool.map(compile_one, units(sources, output_dir).items()))

            self.compiler.compile = compile_each
            super().build_extensions()

    def _try_compilers(self) -> None:
        """Report what is missing now, before Cython has run for a minute."""
        include = Path(sysconfig.get_path("include"))
        if not (include / "Python.h").exists():
            refuse(
                f"Python.h was not found in {include}.\nInstall the headers of this Python"
                " (Debian: apt-get install python3-dev)."
            )
        for language, variable, command, suffix, flags in (
            ("C", "CC", self.compiler.compiler_so, ".c", C_FLAGS),
            ("C++", "CXX", self.compiler.compiler_so_cxx, ".cpp", CXX_FLAGS),
        ):
            with tempfile.TemporaryDirectory() as folder:
                source = Path(folder, f"try{suffix}")
                source.write_text(f"#include <{'cstdlib' if suffix == '.cpp' else 'stdlib.h'}>\n")
                try:
                    self.compiler.compile([str(source)], folder, extra_postargs=flags)
                except CompileError as error:
                    refuse(
                        f"the {language} compiler {command[0]!r} does not work.\n{error}\n"
                        "A C and a C++17 compiler are needed (Debian: apt-get install"
                        f" build-essential); {variable}=... names another one."
                    )

    def _use_cuda_header(self) -> None:
        try:
            header = find_cuda_header()
        except HeaderError as error:
            refuse(str(error))
        print(f"cudadrv: building with {header}", flush=True)
        # Time stamps do not show a change: the header of another toolkit is often older than the
        # objects.
        used = Path(self.build_temp, "cuda_version.txt")
        if not used.exists() or used.read_text() != str(header.version):
            used.parent.mkdir(parents=True, exist_ok=True)
            used.write_text(str(header.version))
        for extension in self.extensions:
            extension.include_dirs.append(str(header.folder))
            extension.depends.append(str(used))

    def _cythonize(self) -> None:
        ours = [ext for ext in self.extensions if ext.sources[0].endswith(".pyx")]
        if not ours:
            return
        from Cython.Build import cythonize

        modules = {}  # cythonize() needs an extension for each module
        sources = [Path(source) for extension in ours for source in extension.sources]
        for pyx in (source for source in sources if source.suffix == ".pyx"):
            package = ("cudadrv",) if pyx.parts[0] == "pyx" else pyx.parent.parts
            modules[str(pyx)] = Extension(".".join([*package, pyx.stem]), [str(pyx)])
            # Cython checks the time of a module's own .pxd only if it lies beside the .pyx.
            generated = GENERATED / pyx.with_suffix(".c")
            if newer_group(sorted(declarations(pyx.stem)), str(generated)):
                generated.unlink(missing_ok=True)
        translated = cythonize(
            list(modules.values()),
            build_dir=str(GENERATED),
            include_path=["."],
            compiler_directives={**DIRECTIVES, **warnings_of_cython()},
            nthreads=int(self.parallel),
            force=self.force,
            quiet=self.verbose == 0,
        )
        c_of = {extension.name: extension.sources[0] for extension in translated}
        for extension in ours:
            extension.sources = [
                c_of[modules[source].name] if source in modules else source
                for source in extension.sources
            ]


class BuildPackage(build_py):
    """Packages headers as cudadrv/include/cudadrv/*.h, and PTX as cudadrv/kernels/*.ptx."""

    def _shipped(self) -> dict[str, str]:
        package = Path(self.build_lib, "cudadrv")
        folders = {package / "include" / "cudadrv": HEADERS, package / "kernels": KERNELS}
        return {
            str(folder / Path(file).name): file
            for folder, files in folders.items()
            for file in files
        }

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for target, source in self._shipped().items():
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *self._shipped()]

    def get_output_mapping(self) -> dict[str, str]:
        return {**super().get_output_mapping(), **self._shipped()}


if __name__ == "__main__":
    from links import repository, rewritten

    setup(
        long_description=rewritten(Path("README.md").resolve(), None, repository()),
        long_description_content_type="text/markdown",
        ext_modules=extensions(),
        cmdclass={"build_ext": BuildExtensions, "build_py": BuildPackage},
    )
