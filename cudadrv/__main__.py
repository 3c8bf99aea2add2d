"""The command line: ``python -m cudadrv info | demo | bench | trace | libcuda | run | explore``."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import cudadrv as cu
from cudadrv._software_commands import add_commands

INTERRUPTED = 130  # the exit status that shells give to a program that Ctrl-C ended
UNITS = {"": 0, "b": 0, "k": 10, "kib": 10, "m": 20, "mib": 20, "g": 30, "gib": 30}
MOST_BUFFERS = 64


def size(text: str) -> int:
    """Convert a text such as ``65536``, ``64K`` or ``64KiB`` to a number of bytes."""
    digits = text.rstrip("BKMGIbkmgi")
    unit = text[len(digits) :].lower()
    if not (digits.isascii() and digits.isdigit() and unit in UNITS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 65536, 64KiB or 1MiB")
    nbytes = int(digits) << UNITS[unit]
    if nbytes < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a chunk needs at least 1 byte")
    return nbytes


def buffer_count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 2 <= count <= MOST_BUFFERS:
        raise argparse.ArgumentTypeError(
            f"{count}: from 2 (with one buffer nothing overlaps) to {MOST_BUFFERS}"
        )
    return count


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cudadrv",
        description="The CUDA driver API with ownership.",
        epilog="CUDADRV_DRIVER=software runs all of it without a GPU.",
    )
    parser.add_argument("--version", action="version", version=f"cudadrv {cu.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    commands.add_parser(
        "info",
        help="say which driver and devices were found, and where",
        description="Say which driver and devices were found, and where. Exit status 1: none.",
    )
    demo = commands.add_parser(
        "demo",
        help="stream a file through the device, count its bytes, then provoke some errors",
        description="Stream a file through the device in a pipeline, check every"
        " byte that comes back and the histogram that a kernel counts, and then show what the"
        " library says to five mistakes.",
    )
    demo.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="any file, or - for standard input; default: NumPy's largest library",
    )
    demo.add_argument(
        "--buffers",
        "--streams",
        type=buffer_count,
        default=3,
        metavar="N",
        help="how many chunks are under way at a time (default: 3)",
    )
    demo.add_argument(
        "--chunk",
        type=size,
        default=size("1MiB"),
        metavar="SIZE",
        help="bytes of one chunk, such as 65536, 64KiB or 4MiB (default: 1MiB)",
    )
    commands.add_parser(
        "bench",
        help="measure what calls cost",
        description="Measure what single calls of cudadrv cost on this machine.",
    )
    trace = commands.add_parser(
        "trace",
        help="print what a trace adds up to, and draw it",
        description="Print what a trace of cudadrv adds up to: operations, waits, calls of the"
        " driver, and refusals. Exit status 2: FILE is no such trace.",
    )
    trace.add_argument("file", metavar="FILE", help="what cudadrv.trace has written")
    trace.add_argument("--svg", metavar="FILE", help="draw the trace as a picture")
    add_commands(commands)
    commands.add_parser(
        "explore", help="run a command under every order of its asynchronous work", add_help=False
    )
    return parser


def run(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["run"]:  # argparse would parse options of the command as its own options
        from cudadrv._run import run_command

        return run_command(arguments[1:])
    if arguments[:1] == ["explore"]:
        from cudadrv._explore_run import explore_command

        return explore_command(arguments[1:])
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command == "info":
        from cudadrv._info import print_info

        return print_info()
    if options.command == "demo":
        return demo(options.file, options.buffers, options.chunk)
    if options.command == "bench":
        from cudadrv._bench import run_bench

        return run_bench() if driver_is_usable() else 1
    if options.command == "trace":
        return show_trace(options.file, options.svg)
    if options.command == "libcuda":
        from cudadrv._libcuda import place

        return place(options.folder)
    parser.print_help()
    return 0


def show_trace(file: str, svg: str | None) -> int:
    from cudadrv._trace_file import NotATraceError, read
    from cudadrv._trace_picture import picture
    from cudadrv._trace_table import summary, table

    try:
        trace = read(file)
    except NotATraceError as error:
        complain(f"trace: {file} is no trace of cudadrv: {error}")
        return 2
    print(table(summary(trace)))
    if svg is not None:
        Path(svg).write_text(picture(trace), encoding="utf-8")
    return 0


def demo(file: str | None, buffers: int, chunk: int) -> int:
    from cudadrv._demo import BadFileError, default_file, open_file, run_demo
    from cudadrv._demo_pipeline import DemoError

    name = str(default_file()) if file is None else file
    try:
        with open_file(name) as opened:
            return run_demo(opened, name, buffers, chunk) if driver_is_usable() else 1
    except BadFileError as error:
        complain(f"demo: {error}")
        return 2
    except DemoError as error:
        complain(f"demo: {error}")
        return 1


def driver_is_usable() -> bool:
    """Load the driver. If that fails, print why and return False."""
    try:
        cu.driver_info()
    except (cu.DriverNotFoundError, ValueError) as error:
        complain(str(error))
        return False
    return True


def complain(text: str) -> None:
    print(f"python -m cudadrv: {text}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status. Expected failures print a message, no traceback."""
    try:
        status = run(arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        if sys.stdout.isatty():
            print()  # ends the line that shows the progress
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the program that reads the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (cu.CudaError, OSError) as error:  # such as too little memory, or an unreadable file
        complain(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
