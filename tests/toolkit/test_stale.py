"""PTX in the cache is used only as long as the compiler would read the same again.

Each test changes one file, variable or program that the compiler reads. The kernel stores VALUE, so
that the PTX shows what the compiler has read. After a change, the source must be compiled again.
Without a change it must not, if cudadrv can know that nothing has changed.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from cudadrv import toolkit
from cudadrv._compilers import Nvcc, Nvrtc

ONE = "1193046"
TWO = "2386092"
VALUE_1 = f"#define VALUE {ONE}\n"
VALUE_2 = f"#define VALUE {TWO}\n"  # as long as the other one
BY_A = "#ifdef A\n" + VALUE_2 + "#else\n" + VALUE_1 + "#endif\n"
BY_HAS = "#if {}\n" + VALUE_2 + "#else\n" + VALUE_1 + "#endif\n"
HOST = shutil.which("gcc")
KERNEL = '\nextern "C" __global__ void k(int *x) { *x = VALUE; }\n'
BOTH = ("nvcc", "nvrtc")
NVCC = ("nvcc",)
# The compiler of conftest.py, a script. It tests the forms of nvcc on machines without nvcc.
SCRIPT = "script"
OF_SCRIPT = {
    *("quoted", "digraph", "a macro names it", "absolute", "nested", "-I", "-include"),
    *(
        "a file in CPATH",
        "before another",
        "in a new folder",
        "one vanishes",
        "asks",
        "asks in a header",
    ),
}

HEADER = {"a.h": VALUE_1}
CHANGED: Mapping[str, str | None] = {"a.h": VALUE_2}
IN_FOLDER = {"inc/a.h": VALUE_1}
CHANGED_IN_FOLDER: Mapping[str, str | None] = {"inc/a.h": VALUE_2}


class Form(NamedTuple):
    """A way to compile. ``@/`` stands for the folder of the test, which is the current one.

    Attributes
    ----------
    name
        Of the test.
    source
        What is before the kernel.
    files, change
        Files before and after a change, by name. None is a file that is deleted, and ``->NAME`` a
        symbolic link.
    options, environ, new_environ
        Options; and environment variables before and after the change.
    compilers
        Those that have this form.
    path
        The file that holds the source; None if the source is given as text.
    """

    name: str
    source: str
    files: Mapping[str, str] = {}
    change: Mapping[str, str | None] = {}
    options: tuple[str, ...] = ()
    compilers: tuple[str, ...] = BOTH
    environ: Mapping[str, str] = {}
    new_environ: Mapping[str, str] = {}
    path: str | None = None


def beside(name, source, **more):
    """Return the form of a file that includes the header beside it."""
    given = {"files": HEADER, "change": CHANGED, "path": "main.cu", **more}
    return Form(name, source, **given)


def found_by(name, *options, source='#include "a.h"', **more):
    """Return the form of a header in a folder that an option names."""
    given = {"files": IN_FOLDER, "change": CHANGED_IN_FOLDER, **more}
    return Form(name, source, options=options, **given)


def named_by(name, *options, **more):
    """Return the form of a header that an option names."""
    given = {"files": HEADER, "change": CHANGED, **more}
    return Form(name, "", options=options, **given)


def appears(name, source, files, new, *options, **more):
    """Return the form of a file that was not there before."""
    return Form(name, source, files, {new: VALUE_2}, options, **more)


def asks(name, condition, new, *options, **more):
    """Return a form whose source asks by `condition` whether a file exists."""
    given = {"change": {new: ""}, **more}
    return Form(name, BY_HAS.format(condition), options=options, **given)


FORMS = [
    # The directive.
    beside("quoted", '#include "a.h"'),
    beside("no space", '  #  include"a.h"'),
    beside("comments", '/* 1 */ # /* 2 */ include /* 3 */ "a.h" // 4'),
    beside("spliced", '#inc\\\nlude "a.h"'),
    beside("spliced name", '#include "\\\na.h"'),
    beside("digraph", '%:include "a.h"'),
    beside("spliced digraph", '%\\\n:include "a.h"'),
    beside("trigraph", '??=include "a.h"', options=("-std=c++14",)),
    beside("import", '#import "a.h"', compilers=NVCC),
    beside("a macro names it", '#define HEADER "a.h"\n#include HEADER'),
    beside("made to a string", "#define TEXT(x) #x\n#include TEXT(a.h)"),
    beside("an option names it", "#include HEADER", options=('-DHEADER="a.h"',)),
    beside("another line number", '#line 7 "other/b.h"\n#include "a.h"'),
    beside("in the branch that is taken", '#if 0\n#elif 1\n#include "a.h"\n#endif'),
    beside(
        "for the device only",
        '#ifdef __CUDA_ARCH__\n#include "a.h"\n#else\n#error host\n#endif',
    ),
    beside("the file itself", "", files={}, change={"main.cu": VALUE_2 + KERNEL}),
    Form("absolute", '#include "@/a.h"', HEADER, CHANGED),
    Form("absolute, in angles", "#include <@/a.h>", HEADER, CHANGED),
    Form(
        "absolute, beside the working directory",
        '#include "@/../a.h"',
        {"../a.h": VALUE_1},
        {"../a.h": VALUE_2},
    ),
    # The name.
    *(
        beside(
            f"named {name!r}",
            f'#include "{name}"',
            files={name: VALUE_1},
            change={name: VALUE_2},
            compilers=compilers,
        )
        for name, compilers in [
            ("we ird.h", BOTH),
            (" a.h", BOTH),
            ("a.h ", BOTH),
            ("dollar$and#.h", BOTH),
            ("a: b.h", BOTH),
            ("caf\xe9.h", BOTH),
            ("sub/../a.h", BOTH),
            ("back\\slash.h", NVCC),
            ("back\\ slash\\.h", NVCC),
            ("it's.h", BOTH),
        ]
    ),
    # Files that include files.
    Form(
        "nested",
        '#include "sub/b.h"',
        {"sub/b.h": '#include "a.h"', "sub/a.h": VALUE_1},
        {"sub/a.h": VALUE_2},
        path="main.cu",
    ),
    Form(
        "nested, by an absolute name",
        '#include "@/sub/b.h"',
        {"sub/b.h": '#include "a.h"', "sub/a.h": VALUE_1},
        {"sub/a.h": VALUE_2},
    ),
    beside(
        "they include each other",
        '#include "b.h"',
        files={"a.h": f'{VALUE_1}#include "b.h"', "b.h": '#pragma once\n#include "a.h"'},
        change={"a.h": f'{VALUE_2}#include "b.h"'},
    ),
    beside(
        "another header decides",
        '#include "b.h"\n' + BY_A,
        files={"b.h": "", "a.h": VALUE_1},
        change={"b.h": "#define A\n"},
    ),
    Form(
        "the next one",
        "#include <a.h>",
        {"one/a.h": "#include_next <a.h>", "two/a.h": VALUE_1},
        {"two/a.h": VALUE_2},
        ("-I@/one", "-I@/two"),
    ),
    Form(
        "the same name twice",
        '#include "one/a.h"\n#include "two/a.h"',
        {"one/a.h": "", "two/a.h": VALUE_1},
        {"one/a.h": VALUE_2, "two/a.h": ""},
        path="main.cu",
    ),
    # Links.
    beside(
        "a link", '#include "a.h"', files={"b.h": VALUE_1, "a.h": "->b.h"}, change={"b.h": VALUE_2}
    ),
    beside(
        "a link to another file",
        '#include "a.h"',
        files={"b.h": VALUE_1, "c.h": VALUE_2, "a.h": "->b.h"},
        change={"a.h": "->c.h"},
    ),
    Form(
        "a link to another folder",
        '#include "a.h"',
        {"one/a.h": VALUE_1, "two/a.h": VALUE_2, "inc": "->one"},
        {"inc": "->two"},
        ("-I@/inc",),
    ),
    # Folders by option.
    found_by("-I", "-I@/inc"),
    found_by("-I and a space", "-I", "@/inc"),
    found_by("-I in angles", "-I@/inc", source="#include <a.h>"),
    found_by("-I relative", "-Iinc"),
    found_by("-I and a slash", "-Iinc/"),
    found_by("-I of the current folder", "-I.", source='#include "inc/a.h"'),
    found_by("-I of its parent", "-I@/inc/..", source='#include "inc/a.h"'),
    found_by(
        "-I with a space", "-Ii nc", files={"i nc/a.h": VALUE_1}, change={"i nc/a.h": VALUE_2}
    ),
    found_by("--include-path=", "--include-path=@/inc"),
    found_by("--include-path", "--include-path", "@/inc"),
    found_by("-I, more than one", "-I/nowhere,@/inc", compilers=NVCC),
    found_by("-isystem", "-isystem", "@/inc", compilers=NVCC),
    found_by("-isystem=", "-isystem=@/inc", compilers=NVCC),
    found_by("--system-include", "--system-include", "@/inc", compilers=NVCC),
    found_by("-Xcompiler -I", "-Xcompiler", "-I@/inc", compilers=NVCC),
    found_by("-Xcompiler=-I", "-Xcompiler=-I,@/inc", compilers=NVCC),
    found_by("--compiler-options -I", "--compiler-options", "-I@/inc", compilers=NVCC),
    found_by("--compiler-options=-I", "--compiler-options=-I@/inc", compilers=NVCC),
    found_by("-iquote", "-Xcompiler", "-iquote,@/inc", compilers=NVCC),
    found_by("-idirafter", "-Xcompiler", "-idirafter,@/inc", compilers=NVCC),
    found_by("-iwithprefix", "-Xcompiler", "-iprefix,@/,-iwithprefix,inc", compilers=NVCC),
    found_by("without line numbers", "-I@/inc", "-Xcompiler", "-P", compilers=NVCC),
    # Files by option.
    named_by("-include", "-include", "@/a.h"),
    named_by("-include, relative", "-include", "a.h"),
    named_by("-include=", "-include=@/a.h"),
    named_by("--pre-include", "--pre-include", "@/a.h"),
    named_by("--pre-include=", "--pre-include=@/a.h"),
    named_by(
        "-include of a folder",
        "-include",
        "a.h",
        "-Iinc",
        files=IN_FOLDER,
        change=CHANGED_IN_FOLDER,
    ),
    named_by(
        "-include, nested",
        "-include",
        "b.h",
        files={"b.h": '#include "a.h"', "a.h": VALUE_1},
    ),
    named_by("-Xcompiler -include", "-Xcompiler", "-include,@/a.h", compilers=NVCC),
    named_by("--compiler-options -include", "--compiler-options=-include,a.h", compilers=NVCC),
    named_by("-imacros", "-Xcompiler", "-imacros,a.h", compilers=NVCC),
    named_by(
        "-imacros, nested",
        "-Xcompiler",
        "-imacros,b.h",
        files={"b.h": '#include "a.h"', "a.h": VALUE_1},
        compilers=NVCC,
    ),
    *(
        Form(
            f"options of a file, {options[0]}, {text}",
            "",
            {"options": text.format(ONE), "nested": f"-DVALUE={ONE}", "none": "", **HEADER},
            {"options": text.format(TWO), "nested": f"-DVALUE={TWO}", **CHANGED},
            options,
            NVCC,
        )
        for options, text in [
            (("-optf", "options"), "-DVALUE={}"),
            (("-optf=@/options",), "-DVALUE={}"),
            (("--options-file", "@/options"), "-DVALUE={}"),
            (("--options-file=options",), "-DVALUE={}"),
            (("-optf", "none,options"), "-DVALUE={}"),
            (("-optf", "options"), "-include a.h"),
            (("-optf", "options"), "-optf nested"),
            (("-Xcompiler", "@options"), "-DVALUE={}"),
        ]
    ),
    # Environment variables.
    *(
        Form(
            f"{variable}={text}",
            "",
            {"options": f"-DVALUE={ONE}"},
            {"options": f"-DVALUE={TWO}"},
            (),
            NVCC,
            environ={variable: text.format(ONE)},
            new_environ={variable: text.format(TWO)},
        )
        for variable in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
        for text in ("-DVALUE={}", "-optf @/options")
    ),
    *(
        found_by(f"a file in {variable}", compilers=compilers, environ={variable: folder})
        for variable, folder, compilers in [
            ("CPATH", "@/inc", NVCC),
            ("CPLUS_INCLUDE_PATH", "/nowhere:inc", NVCC),
            ("INCLUDES", "-I@/inc", NVCC),
            ("SYSTEM_INCLUDES", "-isystem @/inc", NVCC),
            ("NVCC_APPEND_FLAGS", "-I@/inc", NVCC),
        ]
    ),
    Form(
        "another folder in CPATH",
        "#include <a.h>",
        {"one/a.h": VALUE_1, "two/a.h": VALUE_2},
        environ={"CPATH": "@/one"},
        new_environ={"CPATH": "@/two"},
        compilers=NVCC,
    ),
    # A file that appears in a folder that is searched before, or vanishes from it.
    appears(
        "before another",
        '#include "a.h"',
        {"two/a.h": VALUE_1, "one/b": ""},
        "one/a.h",
        "-Ione",
        "-Itwo",
    ),
    appears("in a new folder", '#include "a.h"', {"two/a.h": VALUE_1}, "one/a.h", "-Ione", "-Itwo"),
    appears("beside the source", '#include "a.h"', IN_FOLDER, "a.h", "-Iinc", path="main.cu"),
    appears(
        "beside a header",
        '#include "sub/b.h"',
        {"sub/b.h": '#include "a.h"', **IN_FOLDER},
        "sub/a.h",
        "-Iinc",
        "-I.",
    ),
    appears("beside -include", "", IN_FOLDER, "a.h", "-Iinc", "-include", "a.h"),
    appears(
        "by a macro",
        "#define HEADER <a.h>\n#include HEADER",
        {"two/a.h": VALUE_1},
        "one/a.h",
        "-Ione",
        "-Itwo",
    ),
    appears(
        "before -idirafter",
        '#include "a.h"',
        IN_FOLDER,
        "one/a.h",
        "-Xcompiler",
        "-idirafter,inc",
        "-Ione",
        compilers=NVCC,
    ),
    appears(
        "before CPATH",
        "#include <a.h>",
        IN_FOLDER,
        "one/a.h",
        "-Ione",
        environ={"CPATH": "inc"},
        compilers=NVCC,
    ),
    appears(
        "in place of the compiler's own",
        "#include <ciso646>\n#ifndef VALUE\n" + VALUE_1 + "#endif",
        {"one/b": ""},
        "one/ciso646",
        "-Ione",
        compilers=NVCC,
    ),
    Form(
        "one vanishes",
        '#include "a.h"',
        {"one/a.h": VALUE_1, "two/a.h": VALUE_2},
        {"one/a.h": None},
        ("-Ione", "-Itwo"),
    ),
    # The source asks for a file.
    asks("asks", '__has_include("b.h")', "b.h", path="main.cu"),
    asks("asks, in angles", "__has_include(<b.h>)", "inc/b.h", "-Iinc", files={"inc/c": ""}),
    asks("asks, in a new folder", "__has_include(<sub/b.h>)", "inc/sub/b.h", "-Iinc"),
    asks("asks by an absolute name", '__has_include("@/b.h")', "b.h"),
    asks("asks, spliced", '__has_\\\ninclude \\\n ( \\\n "b.h" )', "b.h", "-I."),
    asks("asks whether it can ask", 'defined(__has_include) && __has_include("b.h")', "b.h", "-I."),
    asks(
        "asks in a header",
        '__has_include("inc/none.h")\n#elif HAS_B',
        "inc/b.h",
        "-include",
        "inc/c.h",
        files={"inc/c.h": '#if __has_include("b.h")\n#define HAS_B 1\n#endif\n'},
    ),
    asks(
        "asks by a macro that passes the name on",
        'HAS("b.h")',
        "b.h",
        "-I.",
        "-include",
        "c.h",
        files={"c.h": "#ifdef __has_include\n#  define HAS(_X) __has_include(_X)\n#endif\n"},
    ),
    Form(
        "asks for one that vanishes",
        BY_HAS.format('!__has_include("b.h")'),
        {"b.h": ""},
        {"b.h": None},
        ("-I.",),
    ),
    # Programs.
    *(
        Form(
            f"a host compiler by {name}",
            "",
            {f"bin/{file}": f'#!/bin/sh\nexec {HOST} -DVALUE={ONE} "$@"\n'},
            {f"bin/{file}": f'#!/bin/sh\nexec {HOST} -DVALUE={TWO} "$@" \n'},
            options,
            NVCC,
            environ=environ,
        )
        for name, file, options, environ in [
            ("-ccbin", "gcc", ("-ccbin", "@/bin"), {}),
            ("--compiler-bindir=", "g++-9", ("--compiler-bindir=@/bin/g++-9",), {}),
            ("NVCC_CCBIN", "g++", (), {"NVCC_CCBIN": "@/bin/g++"}),
        ]
    ),
    Form(
        "a host compiler that appears on PATH",
        "#ifndef VALUE\n" + VALUE_1 + "#endif",
        {"bin/b": ""},
        {"bin/gcc": f'#!/bin/sh\nexec {HOST} -DVALUE={TWO} "$@"\n'},
        compilers=NVCC,
        environ={"PATH": f"@/bin:{os.environ['PATH']}"},
    ),
]

TIMED = {
    "time": ("#define VALUE __TIME__[0]", ()),
    "date": ("#define VALUE __DATE__[0]", ()),
    "time of the file": ("#define VALUE __TIMESTAMP__[0]", ()),
    "time, spliced": ("#define VALUE __TI\\\nME__[0]", ()),
    "time, by option": ("", ("-DVALUE=__TIME__[0]",)),
    "time, in a header": ('#include "time.h"', ("-I@/",)),
    "time, pasted": ("#define P(a, b) a ## b\n#define VALUE P(__TI, ME__)[0]", ()),
    "asks, by option": (BY_HAS.format("__has_include(NAME)"), ("-DNAME=<b.h>",)),
    "asks, by a macro": ('#define NAME "b.h"\n' + BY_HAS.format("__has_include(NAME)"), ()),
    "asks, under another name": ("#define HAS __has_include\n" + BY_HAS.format('HAS("b.h")'), ()),
    "asks, in an option": (BY_HAS.format('HAS("b.h")'), ("-DHAS(x)=__has_include(x)",)),
    "the list goes elsewhere": (VALUE_1, ("-Xcompiler", "-MD,-MF,@/list")),
    "asks, pasted": (
        "#define P(a, b) a ## b\n" + BY_HAS.format('P(__has_, include)("b.h")'),
        (),
    ),
}


class Workplace:
    """A folder with the files of a form, and a count of what was compiled in it."""

    def __init__(self, folder: Path, monkeypatch, settle) -> None:
        self.folder, self.monkeypatch, self.settle = folder, monkeypatch, settle
        self.runs = 0
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        for compiler in (Nvcc, Nvrtc):
            monkeypatch.setattr(compiler, "compile", self.counting(compiler.compile))

    def counting(self, compile_):
        def counted(*arguments, **more):
            self.runs += 1
            return compile_(*arguments, **more)

        return counted

    def fill(self, text: str) -> str:
        return text.replace("@/", f"{self.folder}/")

    def write(self, files: Mapping[str, str | None]) -> None:
        """Write files. Files that exist already keep their times."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            before = path.stat() if path.exists() else None
            path.unlink(missing_ok=True)
            if text is not None and text.startswith("->"):
                path.symlink_to(text.removeprefix("->"))
            elif text is not None:
                path.write_text(self.fill(text), encoding="utf-8")
                path.chmod(0o755)
                if before is not None:
                    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.settle(*self.folder.parent.rglob("*"), self.folder.parent)

    def set(self, environ: Mapping[str, str]) -> None:
        for name, text in environ.items():
            self.monkeypatch.setenv(name, self.fill(text))

    def compile(self, source: str | Path, options=(), compiler=None) -> tuple[str, bool]:
        """Return the PTX, and whether the compiler was called."""
        before = self.runs
        if isinstance(source, str):
            source = self.fill(source)
        options = [self.fill(option) for option in options]
        ptx = toolkit.compile(source, arch="compute_75", options=options, compiler=compiler)
        return ptx, self.runs > before


@pytest.fixture
def place(tmp_path, cache, monkeypatch, settle):
    return Workplace(tmp_path / "place" / "work", monkeypatch, settle)


# This script stands in for cicc, which takes most of nvcc's time. nvcc still handles the options,
# the environment and the directives of the source. The script gets the preprocessed source, whose
# last lines are the kernel. Line numbers may surround the value.
CICC = """#!/bin/sh
while [ $# -gt 3 ]; do shift; done
printf '.version 9.0\\n.target sm_75\\n// ' > "$3"
tail -n 9 "$1" | grep -v '^#' | tr -s '\\n ' ' ' | sed 's/ ;/;/g' >> "$3"
"""


@pytest.fixture(scope="module")
def without_cicc(tmp_path_factory) -> Path | None:
    """The toolkit of the machine with another cicc. None if it is laid out in another way."""
    try:
        nvcc = toolkit.find_compilers("nvcc")[0].path
    except toolkit.CompilerNotFoundError as error:
        pytest.skip(str(error).partition("\n")[0])
    # nvcc may be a script that calls the one in the toolkit.
    said = subprocess.run([nvcc, "-dryrun", "-ptx", "-x", "cu", "/dev/null"], capture_output=True)
    top = Path(re.search(r"^#\$ TOP=(.*)$", said.stderr.decode(), re.MULTILINE)[1]).resolve()
    if not ((top / "bin" / "nvcc").is_file() and (top / "nvvm" / "bin" / "cicc").is_file()):
        return None
    home = tmp_path_factory.mktemp("without") / "cicc"
    for folder, changed in (("", {"bin", "nvvm"}), ("bin", set()), ("nvvm", {"bin"})):
        (home / folder).mkdir()
        for file in (top / folder).iterdir():
            if file.name not in changed:
                (home / folder / file.name).symlink_to(file)
    (home / "nvvm" / "bin").mkdir()
    (home / "nvvm" / "bin" / "cicc").write_text(CICC)
    (home / "nvvm" / "bin" / "cicc").chmod(0o755)
    return home


@pytest.fixture
def choose(request, real, monkeypatch):
    """A function that returns what `toolkit.compile` calls a compiler of a form."""

    def chosen(compiler: str) -> str:
        if compiler == SCRIPT:
            request.getfixturevalue("nvcc")
            return "nvcc"
        if compiler == "nvcc" and (home := request.getfixturevalue("without_cicc")):
            monkeypatch.setenv("CUDA_HOME", str(home))
        return real(compiler).name

    return chosen


def value(ptx: str) -> str:
    """Return the number that the kernel stores. The script shows its source instead."""
    (found,) = re.findall(rf"(?:\*x = |\bmov\.\S+ \s*%\w+, )({ONE}|{TWO});", ptx)
    return found


@pytest.mark.parametrize(
    ("form", "compiler"),
    [
        pytest.param(form, compiler, id=f"{form.name}-{compiler}")
        for form in FORMS
        for compiler in (*form.compilers, *([SCRIPT] if form.name in OF_SCRIPT else []))
    ],
)
def test_form(place, choose, form, compiler):
    compiler = choose(compiler)
    text = form.source + KERNEL
    if form.path == "main.cu" and not form.source:
        text = VALUE_1 + text
    place.write(form.files)
    source = text
    if form.path is not None:
        place.write({form.path: text})
        source = place.folder / form.path
    place.set(form.environ)
    first, ran = place.compile(source, form.options, compiler)
    assert ran
    assert value(first) == ONE
    assert place.compile(source, form.options, compiler) == (first, False)
    place.write(form.change)
    place.set(form.new_environ)
    second, ran = place.compile(source, form.options, compiler)
    assert ran
    assert value(second) == TWO
    assert place.compile(source, form.options, compiler) == (second, False)


def test_the_script_has_its_forms():
    assert {form.name for form in FORMS} >= OF_SCRIPT


@pytest.mark.parametrize("compiler", BOTH)
@pytest.mark.parametrize("name", TIMED)
def test_what_cannot_be_known_is_not_kept(place, choose, name, compiler):
    if compiler == "nvrtc" and name in ("time of the file", "the list goes elsewhere"):
        pytest.skip("NVRTC has neither __TIMESTAMP__ nor -MD")
    source, options = TIMED[name]
    place.write({"time.h": "#define VALUE __TIME__[0]"})
    compiler = choose(compiler)
    for _ in range(2):
        _, ran = place.compile(source + KERNEL, options, compiler)
        assert ran
