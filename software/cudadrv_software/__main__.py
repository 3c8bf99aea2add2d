"""The command line: ``python -m cudadrv_software run | libcuda``, or ``cudadrv-software``."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from cudadrv_software._libcuda import place
from cudadrv_software._run import run_command
from cudadrv_software._software_commands import add_commands

INTERRUPTED = 130  # the exit status that shells give to a program that Ctrl-C ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status. Expected failures print a message, no traceback."""
    try:
        return run(arguments)
    except KeyboardInterrupt:
        print("cudadrv-software: interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:  # such as a folder that cannot be written
        print(f"cudadrv-software: {error}", file=sys.stderr)
        return 1


def run(arguments: Sequence[str] | None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["run"]:  # argparse would parse options of the command as its own options
        return run_command(given[1:])
    parser = argparse.ArgumentParser(
        prog="cudadrv-software", description="A libcuda.so.1 in software, which needs no GPU."
    )
    text = f"cudadrv-software {version('cudadrv-software')}"
    parser.add_argument("--version", action="version", version=text)
    add_commands(parser.add_subparsers(dest="command", metavar="COMMAND"))
    options = parser.parse_args(given)
    if options.command == "libcuda":
        return place(options.folder)
    parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
