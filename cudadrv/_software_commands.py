"""The commands of the software driver, which cudadrv and cudadrv-software both have."""

import argparse
from pathlib import Path


def folder_to_search(text: str) -> Path:
    """Convert a text to a folder. Rejects names that cannot be a part of LD_LIBRARY_PATH."""
    if not text or ":" in text or ";" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r}: LD_LIBRARY_PATH cannot name it; it needs a name without ':' and ';'"
        )
    return Path(text)


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    commands.add_parser(
        "run", help="run a command on the software driver, and report", add_help=False
    )
    libcuda = commands.add_parser(
        "libcuda",
        help="give other programs the software driver",
        description="Make FOLDER/libcuda.so.1, which is the software driver, and libcuda.so for"
        " linkers (-LFOLDER -lcuda). Programs that find it there (LD_LIBRARY_PATH) run on it,"
        " whether they use cudadrv or not.",
    )
    libcuda.add_argument(
        "folder", type=folder_to_search, metavar="FOLDER", help="made if it does not exist"
    )
