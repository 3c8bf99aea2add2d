"""``python -m cudadrv demo``, run in a process of its own as a user runs it."""

import errno
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from limits import PATIENCE
from schedules import one_schedule

from cudadrv.__main__ import main, size

KIB = 1024


@pytest.fixture
def command(driver):
    """The command line, and an environment with the test's driver and schedule."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return [sys.executable, "-W", "error", "-m", "cudadrv"], environ


@pytest.fixture
def cli(command, tmp_path):
    """A function that runs a command in an empty folder.

    It returns the output, the error output and the exit status.
    """

    def run(*arguments, **changes):
        line, environ = command
        return subprocess.run(
            [*line, *map(str, arguments)],
            cwd=tmp_path,
            env={**environ, **changes},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    return run


@pytest.fixture
def file(tmp_path):
    """A file whose chunks all differ, and whose size is no multiple of the chunk size."""
    path = tmp_path / "a file"
    path.write_bytes(bytes(range(251)) * 1000)
    return path


def large_file(path, nbytes):
    """Make a sparse file, which takes no space on the disk."""
    try:
        with path.open("wb") as file:
            file.truncate(nbytes)
    except OSError as error:
        pytest.skip(f"no file of {nbytes} bytes here: {error}")


def test_default_file(cli):
    done = cli("demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "_multiarray_umath" in done.stdout
    assert "Every byte came back" in done.stdout
    assert "exactly as often as numpy.bincount says" in " ".join(done.stdout.split())
    assert re.search(r"Overlap: \d+\.\d\d", done.stdout)
    assert "\r" not in done.stdout


def test_says_what_ran_it(cli, driver):
    text = cli("demo", "--chunk", "1MiB").stdout
    assert re.search(r"^Driver  .+, CUDA \d+\.\d+, /", text)
    assert re.search(r"^Device  \S", text, re.MULTILINE)
    assert ("is not a GPU" in " ".join(text.split())) == (driver != "cuda")


@pytest.mark.parametrize("buffers", [2, 3, 7])
@pytest.mark.parametrize("chunk", ["4KiB", "1000", "251000"])
def test_every_byte(cli, file, buffers, chunk):
    done = cli("demo", file, "--buffers", buffers, "--chunk", chunk)
    assert done.returncode == 0, done.stderr
    assert "Every byte came back as it is in the file: 251,000 bytes" in done.stdout


def test_five_mistakes_are_refused(cli, file):
    text = cli("demo", file).stdout
    assert text.count("    BufferBorrowedError: cannot ") == 4
    assert text.count("    BufferExportedError: cannot ") == 1
    assert "bug in cudadrv" not in text


def test_histogram_of_the_file(cli, tmp_path):
    (tmp_path / "abc").write_bytes(b"aab" * 1000 + b"c")
    text = " ".join(cli("demo", "abc", "--chunk", "1000").stdout.split())
    assert "Most frequent: 0x61 (66.6%), 0x62 (33.3%), 0x63 (0.0%)." in text


def test_histogram_that_is_wrong(driver, file, monkeypatch, capsys):
    """A wrong histogram is reported.

    The command runs in this process, where NumPy can be made to count one byte too many.
    """
    from cudadrv import _demo_pipeline

    really_count = _demo_pipeline.count_bytes
    wrong = np.arange(256) == 7
    monkeypatch.setattr(_demo_pipeline, "count_bytes", lambda array: really_count(array) + wrong)
    assert main(["demo", str(file)]) == 1
    assert "the kernels counted byte 0x07 1,000 times, and numpy.bincount 1,001 times" in (
        capsys.readouterr().err
    )


@one_schedule
@pytest.mark.parametrize("nbytes", [1, 2, 4095])
def test_smaller_than_a_chunk(cli, tmp_path, nbytes):
    (tmp_path / "tiny").write_bytes(b"x" * nbytes)
    done = cli("demo", "tiny")
    assert done.returncode == 0
    assert "nothing can overlap" in done.stdout


def test_progress_on_a_terminal(command, file):
    line, environ = command
    ours, theirs = pty.openpty()
    chunk = ["--chunk", "1KiB"]
    process = subprocess.Popen([*line, "demo", str(file), *chunk], env=environ, stdout=theirs)
    os.close(theirs)
    text = b""
    with suppress(OSError):  # on Linux, EIO means that the other side is closed
        while part := os.read(ours, 1 << 16):
            text += part
    os.close(ours)
    assert process.wait(PATIENCE) == 0
    assert re.search(rb"\roverlapped: +\d+%", text)


@one_schedule
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: path.touch(), "is empty"),
        (lambda path: os.mkfifo(path), "is no regular file"),
        (lambda path: path.symlink_to(path), "Too many levels"),
    ],
    ids=["missing", "directory", "empty", "fifo", "loop"],
)
def test_bad_file(cli, tmp_path, make, words):
    make(tmp_path / "bad")
    done = cli("demo", "bad")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"python -m cudadrv: demo: bad.*\n", done.stderr)
    assert words in done.stderr


@one_schedule
@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_standard_input(command, file, name, kind):
    line, environ = command
    shell = {"pipe": 'cat "$0" | "$@"', "file": '"$@" < "$0"'}[kind]
    done = subprocess.run(
        ["sh", "-c", shell, str(file), *line, "demo", name],
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "File    standard input\n" in done.stdout
    assert "Every byte came back as it is in the file: 251,000 bytes" in done.stdout


@one_schedule
@pytest.mark.parametrize(
    ("redirection", "words"),
    [
        ("< /dev/null", "- is empty"),
        ("<&-", "-: Bad file descriptor"),
    ],
)
def test_standard_input_without_anything(command, redirection, words):
    line, environ = command
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *line, "demo", "-"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"python -m cudadrv: demo: {words}")


@one_schedule
def test_standard_input_that_is_a_terminal(command):
    line, environ = command
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [*line, "demo", "-"],
        env=environ,
        stdin=theirs,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 2
    assert "standard input is a terminal; name a file, or use a pipe" in done.stderr


def test_unreadable_file(driver, file, monkeypatch, capsys):
    """A file that cannot be read is an error.

    The command runs in this process, where `Path.open` can be replaced: root can read every file.
    """

    really_open = Path.open

    def refuse(path, *arguments, **options):
        if path == Path(file):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return really_open(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    assert main(["demo", str(file)]) == 2
    assert capsys.readouterr().err == f"python -m cudadrv: demo: {file}: Permission denied\n"


@one_schedule
@pytest.mark.parametrize(
    "options",
    [
        ["--chunk", "0"],
        ["--chunk", "-1"],
        ["--chunk", "many"],
        ["--chunk", "1.5M"],
        ["--chunk", "MiB"],
        ["--chunk"],
        ["--buffers", "1"],
        ["--buffers", "0"],
        ["--buffers", "two"],
        ["--buffers", "100000"],
        ["--nonsense"],
        ["one", "two"],
    ],
    ids=" ".join,
)
def test_usage(cli, options):
    done = cli("demo", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ")
    assert "Traceback" not in done.stderr


def test_chunks_that_do_not_fit(cli, tmp_path, driver):
    """Running out of memory is reported by one message, without a traceback."""
    large_file(tmp_path / "large", 1 << 43)
    done = cli("demo", "large", "--chunk", "2048GiB")
    assert done.returncode == 1
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.cuda_software
@pytest.mark.parametrize(
    "fault", ["cuLaunchKernelEx:5:700", "cuMemcpyHtoDAsync_v2:14:1", "cuEventQuery:3:719"]
)
def test_a_driver_that_fails(command, file, fault):
    line, environ = command
    environ["CUDADRV_SOFTWARE"] += f",fault={fault}"
    done = subprocess.run(
        [*line, "demo", str(file), "--chunk", "1KiB"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"python -m cudadrv: {re.split('_v2|:', fault)[0]}")
    assert "Traceback" not in done.stderr


def test_interrupt(command, tmp_path):
    path = tmp_path / "large"
    large_file(path, 1 << 40)
    line, environ = command
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*line, "demo", str(path)], env=environ, **options) as process:
        try:
            while "streams" not in process.stdout.readline():
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, errors) == (130, "python -m cudadrv: interrupted\n")


def test_reader_that_goes_away(command, file):
    line, environ = command
    done = subprocess.run(
        ["sh", "-c", '"$@" | head -n 1', "sh", *line, "demo", str(file)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("1", 1), ("65536", 65536), ("4k", 4 * KIB), ("4KiB", 4 * KIB), ("2M", 2 * KIB**2)],
)
def test_sizes(driver, text, nbytes):
    assert size(text) == nbytes
