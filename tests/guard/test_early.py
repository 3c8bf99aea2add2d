"""Accesses that are too early end the process, and the message says what was wrong."""

import os
import shutil
import signal
import subprocess

import pytest

COMPILER = shutil.which(os.environ.get("CC", "cc").split()[-1])
END = "cudadrv: a page guard ends the process here: docs/guard.md\n"


def line_of(done, text):
    """The number of the line of a program that has this text."""
    return next(n for n, line in enumerate(done.program.splitlines(), 1) if text in line)


def early(done):
    """The message of a process that a guard has ended."""
    assert done.returncode == -signal.SIGSEGV, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.count(END) == 1
    return done.stderr


READS_WRITTEN = {
    "a kept address": "ctypes.string_at(address + 5000, 1)",
    "another thread": "import threading\n"
    "thread = threading.Thread(target=lambda: ctypes.string_at(address + 5000, 1))\n"
    "thread.start(), thread.join()",
    "a library that releases the GIL": "LIBC = ctypes.CDLL(None)\n"
    "LIBC.memcmp(ctypes.c_void_p(address + 5000), b'x', ctypes.c_size_t(1))",
}


@pytest.mark.parametrize("access", READS_WRITTEN.values(), ids=READS_WRITTEN)
def test_a_read_of_what_is_being_written(run_program, access):
    done = run_program(f"token = written()\n{access}\n")
    first, place, *rest = early(done).splitlines()
    assert first == (
        "cudadrv: the host reads LockedBuffer 'frames', made at program.py:6, at its byte 5000,"
    )
    assert place.startswith(f"  at program.py:{line_of(done, 'address + 5000')}, in ")
    assert rest == [
        "  while it is being written by copy_to_async on Stream 'down', queued at program.py:12,",
        "  and that is not known to be complete.",
        "  Wait first: down.synchronize() or token.wait().",
        END.rstrip(),
    ]


def test_a_write_of_what_is_being_read(run_program):
    message = early(run_program("token = read()\nctypes.memset(address, 1, 1)\n"))
    assert message.startswith("cudadrv: the host writes LockedBuffer 'frames'")
    assert "while it is being read by copy_from_async on Stream 'up', queued at" in message


def test_an_array_that_was_kept(run_program):
    program = """
import numpy
array = numpy.ctypeslib.as_array((ctypes.c_uint8 * 16384).from_address(address))
array[:] = 1    # nothing uses it yet
token = written()
array[0]
"""
    done = run_program(program)
    message = early(done)
    assert "the host reads LockedBuffer 'frames'" in message
    assert "multiarray" in message  # the C code is NumPy's, and the line the program's
    assert f"at program.py:{line_of(done, 'array[0]')}, in " in message


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_a_thread_without_python(run_program, tmp_path):
    source, library = tmp_path / "peek.c", tmp_path / "peek.so"
    source.write_text(
        "#include <pthread.h>\n"
        "void *peek(void *p) { return (void *)(long)*(volatile char *)p; }\n"
        "void in_thread(void *p) {\n"
        "    pthread_t thread;\n"
        "    pthread_create(&thread, 0, peek, p);\n"
        "    pthread_join(thread, 0);\n"
        "}\n"
    )
    subprocess.run([COMPILER, "-shared", "-fPIC", source, "-o", library], check=True)
    message = early(
        run_program(
            f"token = written()\n"
            f"ctypes.CDLL({str(library)!r}).in_thread(ctypes.c_void_p(address))\n"
        )
    )
    assert "in a thread without Python code, in peek+0x" in message
    assert f" of {library}\n" in message


def test_a_launch_of_a_graph_is_named(run_program):
    program = """
graph = cu.Graph()
with graph.capture(down):
    work.copy_to_async(frames, down)
executable = graph.instantiate()
for _ in range(3):
    token = executable.launch(down)
ctypes.string_at(address, 1)
"""
    message = early(run_program(program))
    assert "while it is being written by copy_to_async" in message
    assert "on Stream 'down', launched at program.py:" in message


def test_a_dropped_buffer(run_program):
    message = early(run_program("written()\ndel frames\nctypes.string_at(address, 1)\n"))
    assert "LockedBuffer 'frames', made at program.py:6 and dropped, at its byte 0," in message


def test_work_that_was_queued_before_the_guard(run_program):
    if_guarded = """
token = written()
with cu.guard() as guard:
    if not guard.unguarded:     # the software driver itself uses memory made before
        ctypes.string_at(address, 1)
    print(guard.unguarded)
"""
    done = run_program(if_guarded, guard="0")
    if done.returncode == 0:
        assert "LockedBuffer 'frames', made at program.py:6: it was made before the" in done.stdout
    else:
        assert "while an operation uses it that is not known to be complete" in early(done)


# ---- other handlers ----

TRACEBACK = "Fatal Python error: Segmentation fault"


@pytest.mark.parametrize("when", ["before", "behind", "during work"])
def test_faulthandler_goes_on_working(run_program, when):
    enable = "import faulthandler\nfaulthandler.enable()\n"
    program = "ctypes.string_at(address, 1)\n"
    done = {
        "before": lambda: run_program("token = written()\n" + program, "-X", "faulthandler"),
        "behind": lambda: run_program(enable + "token = written()\n" + program),
        "during work": lambda: run_program("token = written()\n" + enable + program),
    }[when]()
    message = early(done)
    assert "while it is being written by copy_to_async" in message
    assert message.count(TRACEBACK) == 1
    assert "string_at" in message.partition(TRACEBACK)[2] + message


def test_other_errors_are_not_a_guards(run_program):
    done = run_program("token = read()\nctypes.string_at(16, 1)\n", "-X", "faulthandler")
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr.count(TRACEBACK) == 1
    assert "cudadrv:" not in done.stderr


def test_other_errors_without_other_handlers(run_program):
    done = run_program("token = read()\nctypes.string_at(16, 1)\n")
    assert (done.returncode, done.stderr) == (-signal.SIGSEGV, "")


def test_a_signal_that_is_sent(run_program):
    done = run_program("import os, signal\ntoken = read()\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    assert (done.returncode, done.stderr) == (-signal.SIGSEGV, "")


def test_the_handler_is_gone_behind_the_guard(run_program):
    program = """
import signal
libc = ctypes.CDLL(None)
def handler():
    now = ctypes.create_string_buffer(256)
    libc.sigaction(signal.SIGSEGV, None, now)
    return now.raw[:8]
before = handler()
with cu.guard():
    assert handler() != before
assert handler() == before
"""
    done = run_program(program, guard="0")
    assert (done.returncode, done.stderr) == (0, "")
