"""Options, settings and errors. After an error, no command is started."""

import re
import sys
from pathlib import Path

import pytest

SHOWS = ("--", "sh", "-c", "echo $CUDADRV_SOFTWARE")


def settings(ran):
    return ran.out.rpartition(",report=")[0] or ran.out.partition("report=")[0]


def refused(ran, status=2):
    """The message of a run that was refused and has started nothing."""
    assert (ran.status, ran.out) == (status, "")
    assert "Traceback" not in ran.err
    assert "====" not in ran.err
    return ran.err


def test_options_are_settings(run):
    options = ["--schedule=random", "--seed", "7", "--races=print", "--devices", "2"]
    ran = run(*options, "--driver=13.5", "--memory", "64MiB", *SHOWS)
    assert settings(ran) == "schedule=random,seed=7,races=print,devices=2,driver=13.5,memory=64MiB"
    assert ran.report["settings"] == settings(ran)
    assert run(*SHOWS).report["settings"] == ""


def test_options_outweigh_the_environment(run):
    ran = run("--seed=2", *SHOWS, CUDADRV_SOFTWARE="seed=1,free_waits=always")
    assert settings(ran) == "free_waits=always,seed=2,driver=13.5"


def test_the_driver_is_of_the_newest_version(python):
    code = "version = ctypes.c_int()\ncuda.cuDriverGetVersion(ctypes.byref(version))\n"
    code += "print(version.value)"
    assert python(code).out == "13050\n"
    assert python(code, "--driver=12.4").out == "12040\n"
    assert python(code, CUDADRV_SOFTWARE="driver=12.6").out == "12060\n"


def test_the_command_sees_them(python):
    code = "cuda.cudadrvSoftSettings.restype = ctypes.c_char_p\nprint(cuda.cudadrvSoftSettings())"
    assert "schedule=lazy,seed=5," in python(code, "--schedule", "lazy", "--seed=5").out


def test_programs_find_that_nvjitlink_is_too_old(run):
    """The run preloads a libnvJitLink that does nothing, so that programs treat it as too old.

    Programs use a loaded library before they search their own folders.
    """
    code = (
        "import ctypes, os\n"
        "for name in 'libnvJitLink.so.12', 'libnvJitLink.so.13':\n"
        "    found = ctypes.CDLL(name, os.RTLD_NOLOAD)\n"
        "    print(hasattr(found, 'cudadrvNoNvJitLink'), hasattr(found, 'nvJitLinkVersion'))"
    )
    assert run("--", sys.executable, "-c", code).out == "True False\n" * 2


def test_all_find_the_same_driver(run):
    """All users find one driver: by LD_LIBRARY_PATH, in cudadrv, and in pytest with its plugin."""
    names = ("LD_LIBRARY_PATH", "CUDADRV_DRIVER", "PYTEST_CUDADRV_LIBCUDA")
    code = f"import os; print(*[os.environ[name] for name in {names}], sep='\\n')"
    ran = run("--", sys.executable, "-c", code, LD_LIBRARY_PATH="/first:/second")
    searched, driver, libcuda = ran.out.splitlines()
    assert driver == libcuda
    assert searched == f"{Path(driver).parent}:/first:/second"
    assert not Path(driver).exists()  # the library is deleted at the end of the run


def test_the_command_begins_with_the_first_word(run):
    """`--` before the command may be omitted, as with nsys, compute-sanitizer and valgrind."""
    ran = run("--seed", "3", "sh", "-c", 'echo "$@"', "sh", "--seed", "4", "--", "-x")
    assert ran.out == "--seed 4 -- -x\n"
    assert ran.report["settings"] == "seed=3"


def test_two_dashes_are_for_the_run_only_once(run):
    assert run("--", "sh", "-c", 'echo "$@"', "sh", "--", "-x").out == "-- -x\n"


def test_help_names_all_options(run):
    ran = run("--help", report=False)
    assert (ran.status, ran.err) == (0, "")
    names = ("schedule", "seed", "races", "devices", "driver", "memory", "json", "error-exitcode")
    for name in names:
        assert re.search(rf"^  --{name} [A-Z]+ ", ran.out, re.MULTILINE)


@pytest.mark.parametrize("arguments", [(), ("--",), ("--seed", "3"), ("--seed", "3", "--")])
def test_no_command(run, arguments):
    assert "a COMMAND is needed: [OPTIONS] -- COMMAND [ARGS...]" in refused(run(*arguments))


def test_options_of_the_command_before_it(run):
    words = "unknown option -m: options of COMMAND come after it, or after --"
    assert words in refused(run("--seed=3", "-m", "pytest", report=False))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--schedule=late", "schedule must be eager, lazy, random or replay, not 'late'"),
        ("--seed=-1", "seed must be a number, not '-1'"),
        ("--seed=", "seed must be a number, not ''"),
        ("--races=maybe", "races must be off, record, print or abort, not 'maybe'"),
        ("--devices=17", "devices must be 0 to 16, not '17'"),
        ("--driver=11.8", "driver must be a version of CUDA, 12.0 to 12.9 or 13.0 to 13.5"),
        ("--memory=much", "memory must be a size such as 256MiB"),
        ("--seed=1,races=off", "--seed '1,races=off': a value has no comma"),
        ("--error-exitcode=many", "argument --error-exitcode: invalid int value: 'many'"),
    ],
)
def test_a_wrong_setting(run, option, words):
    assert words in refused(run(option, "echo", "started"))


def test_a_wrong_setting_of_the_environment(run):
    ran = run("echo", "started", CUDADRV_SOFTWARE="schedul=lazy")
    assert "unknown setting 'schedul'" in refused(ran)


def test_no_such_command(run):
    for name in ("no-such-command", "./no-such-file", ""):
        assert f"cannot run {name!r}: there is no such file\n" in refused(run("--", name), 127)


def test_a_command_that_cannot_be_executed(run, tmp_path):
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("echo started\n")
    folder.mkdir()
    for path in (file, folder):
        assert f"cannot run '{path}': Permission denied\n" in refused(run("--", path), 126)
    file.chmod(0o755)
    assert "Exec format error (a script needs a first line such as #!/bin/sh)" in refused(
        run("--", file), 126
    )


def test_a_script_whose_interpreter_is_missing(run, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    words = "the interpreter that its first line names was not found"
    assert words in refused(run("--", script), 127)


@pytest.mark.parametrize("file", ["no/such/folder/report.json", "."])
def test_json_that_cannot_be_written(run, file):
    """A JSON file that cannot be written is an error before the command, which may take hours."""
    words = refused(run("--json", file, "echo", "started", report=False))
    assert words.startswith(f"python -m cudadrv run: --json {file}: ")


def test_json_to_a_pipe(run):
    ran = run("--json", "/dev/stdout", "true", report=False)
    assert '"format": 1' in ran.out


def test_json_of_an_earlier_run_is_replaced(run, tmp_path):
    (tmp_path / "mine.json").write_text("x" * 10_000)
    assert run("--json", "mine.json", "--", "no-such-command", report=False).status == 127
    assert (tmp_path / "mine.json").read_text() == "x" * 10_000
    run("--json", "mine.json", "true", report=False)
    assert (tmp_path / "mine.json").read_text().startswith('{\n "format": 1')


@pytest.mark.parametrize("name", ["a,b", "a:b"])
def test_a_folder_for_temporary_files_that_cannot_be_named(run, tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    assert "set TMPDIR to a folder without" in refused(run("echo", "started", TMPDIR=str(folder)))
    assert list(folder.iterdir()) == []


def test_names_with_control_characters(python, tmp_path):
    """Control characters in names do not reach the terminal, and names stay in one line.

    The JSON file has the names unchanged.
    """
    code = """
import ctypes
cuda, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(handle), 0)
cuda.cuCtxSetCurrent(handle), cuda.cuStreamCreate(ctypes.byref(handle), 0)
"""
    program = r"""
import subprocess
subprocess.run([sys.executable, "-c", CODE, b'a\n\x1b[31m"\\\xc3\xbf\xff'], check=True)
"""
    ran = python(program.replace("CODE", repr(code)))
    assert ran.status == 0
    assert "\x1b" not in ran.err
    [child] = ran.report["processes"]
    assert child["command"][3] == 'a\n\x1b[31m"\\\xff\ufffd'
    assert re.search(r"^  process \d+ \(.{,57}\.\.\.\): 1 stream$", ran.err, re.MULTILINE)


def test_names_that_clients_make_up(python):
    """Reports of races have names that clients choose, with any bytes."""
    program = r"""
Describe = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int)
def describe(address, text, size):
    name = b'"\n\x1b\xff}'
    ctypes.memmove(text, name, len(name))
    return len(name)
class Words(ctypes.Structure):
    _fields_ = [
        ("operation", ctypes.c_void_p), ("describe", ctypes.c_void_p), ("memory", Describe),
        ("freed", ctypes.c_void_p),
    ]
words = Words(None, None, Describe(describe))
cuda.cudadrvSoftSetWords(ctypes.byref(words))
initialise()
race()
cuda.cuCtxSynchronize()
"""
    ran = python(program)
    assert ran.status == 0
    [race] = ran.report["data_races"]
    assert race["text"].startswith('race on "\n\x1b\ufffd} (device memory 0x')
    assert 'race on "\\n\\x1b\ufffd} (device memory' in ran.err


def test_reports_that_cannot_be_written(python, tmp_path):
    """If a report cannot be written, the program runs on, and the driver prints one message."""
    program = """
import os, shutil
shutil.rmtree(os.environ["CUDADRV_SOFTWARE"].rpartition("=")[2])
unsupported(2)
print(cuda.cuInit(0))
"""
    ran = python(program)
    assert (ran.status, ran.out) == (0, "0\n")
    assert ran.err.count("cudadrv software driver: cannot write a report to /") == 1
    assert "No process called the software driver." in ran.err


def test_a_report_that_is_cut_off(python):
    """A report may be cut off: its process was killed while it wrote, or the disk was full."""
    program = """
import glob, os
unsupported(2)
folder = os.environ['CUDADRV_SOFTWARE'].rpartition('=')[2]
[file] = glob.glob(folder + "/*.jsonl")
with open(file, "ab") as report:
    report.write(b'{"data_race": "cut off\\n\\xff\\xfe\\n[1]\\n"x"\\n')
with open(folder + "/empty.jsonl", "w") as empty, open(folder + "/other.jsonl", "w") as other:
    other.write('{"other": 1}\\n')
"""
    ran = python(program)
    [process] = ran.report["processes"]
    assert process["unsupported_calls"] == {"cuCheckpointProcessLock": 2}
    assert (process["data_races"], process["end"]) == ([], "exit")


def test_numbers_that_cannot_be_kept(python):
    """Without a file for counts, the report has the mistakes but no counts."""
    program = """
import glob, os
unsupported(2)
[file] = glob.glob(os.environ['CUDADRV_SOFTWARE'].rpartition('=')[2] + "/*.numbers")
os.remove(file)
"""
    ran = python(program)
    [process] = ran.report["processes"]
    assert (process["calls"], process["alive"]) == (None, None)
    assert process["unsupported_calls"] == {"cuCheckpointProcessLock": 1}
    assert "1 process made 0 calls" in ran.err


@pytest.mark.parametrize("path", ["relative", ""])
def test_a_folder_for_reports_is_absolute(run, path):
    """A relative folder for reports is refused, because a program may change its directory.

    Runs set the folder, but a program can set it, too.
    """
    code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    script = f'CUDADRV_SOFTWARE=report={path} exec {sys.executable} -c "{code}"'
    assert run("--", "sh", "-c", script).out == "1\n"


def test_the_folder_does_not_change(python):
    program = """
cuda.cudadrvSoftError.restype = ctypes.c_char_p
print(cuda.cudadrvSoftConfigure(b"report=/tmp"), cuda.cudadrvSoftError().decode())
"""
    assert python(program).out == "1 report is a setting of CUDADRV_SOFTWARE only\n"
