"""The names of the driver API: `names` collects them from headers, `table` documents them.

    python tools/driver_names.py names HEADER_FOLDER...   # adds to softdriver/base/names.def
    python tools/driver_names.py table                    # writes docs/software-driver-functions.md

A test compares both files with what these commands would write.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMES = ROOT / "softdriver" / "base" / "names.def"
FUNCTIONS = ROOT / "softdriver" / "base" / "functions.def"
TABLE = ROOT / "docs" / "software-driver-functions.md"

HEADERS = ("cuda.h", "cudaProfiler.h")
# Each way of including them shows other names: all versions, or those of the per-thread stream.
MODES = ("", "-D__CUDA_API_VERSION_INTERNAL", "-D__CUDA_API_PER_THREAD_DEFAULT_STREAM")
PROTOTYPE = re.compile(r"\bCUresult\s+(?:CUDAAPI\s+)?(cu\w+)\s*\(")

NAMES_HEAD = """\
// Every function name of cuda.h and cudaProfiler.h, of all toolkits up to the newest that is known.
// Those that functions.def lacks are exported too, and say CUDA_ERROR_NOT_SUPPORTED.
// Made by tools/driver_names.py.
"""
TABLE_HEAD = """\
# The driver functions of the software driver

Made by `tools/driver_names.py` from the sources. The software driver exports every function name
of `cuda.h`, in every version and with the `_ptsz` and `_ptds` variants. Functions that are not
implemented return `CUDA_ERROR_NOT_SUPPORTED`, whatever their arguments, and are counted
(`cudadrv.testing.unsupported_calls()`); `cuGetProcAddress` does not find them.

Where several versions of a function exist, the table names those that are implemented. The missing
ones are mostly of before CUDA 4, when addresses had 32 bits.
"""


def header_names(folder: str) -> tuple[int, set[str]]:
    """CUDA_VERSION of the headers in a folder, and the function names that they declare."""
    names, version = set(), 0
    for header in HEADERS:
        if not Path(folder, header).exists():
            continue
        for mode in MODES:
            text = subprocess.run(
                ["cc", "-E", "-P", *([mode] if mode else []), "-I", folder, "-x", "c", "-"],
                input=f"#include <{header}>\nsoft_version=CUDA_VERSION;\n",
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            names |= set(PROTOTYPE.findall(text))
            version = max(version, int(re.findall(r"soft_version=(\d+)", text)[0]))
    return version, names


def known_names() -> tuple[int, set[str]]:
    """The newest CUDA_VERSION that names.def knows, and its names."""
    text = NAMES.read_text(encoding="utf-8") if NAMES.exists() else ""
    version = max(map(int, re.findall(r"^// newest: (\d+)$", text, re.M)), default=0)
    return version, set(re.findall(r"^SOFT_NAME\((\w+)\)$", text, re.M))


def names_text(version: int, names: set[str]) -> str:
    lines = [f"SOFT_NAME({name})\n" for name in sorted(names)]
    return f"{NAMES_HEAD}// newest: {version}\n\n{''.join(lines)}"


def implemented() -> list[tuple[str, int, str]]:
    """Base name, version and symbol of each implemented function."""
    text = FUNCTIONS.read_text(encoding="utf-8")
    found = re.findall(r"^SOFT_FUNCTION\((\w+), (\d+), (\w+),", text, re.M)
    return [(base, int(version), symbol) for base, version, symbol in found]


def base_name(symbol: str) -> str:
    """A function without its version and its stream variant."""
    return re.sub(r"(_v\d+)?(_pt[sd][sz])?$", "", symbol)


def table_text() -> str:
    """The documentation page."""
    versions: dict[str, list[str]] = {}
    for base, version, symbol in implemented():
        dotted = f"{version // 1000}.{version % 1000 // 10}"
        versions.setdefault(base, []).append(f"`{symbol}` ({dotted})")
    bases = {base_name(name) for name in known_names()[1]}
    missing = sorted(bases - versions.keys())
    lines = [TABLE_HEAD, f"\n## Implemented ({len(versions)} of {len(bases)})\n"]
    lines += ["\n| function | implemented as (CUDA version of the interface) |\n|---|---|\n"]
    lines += [f"| `{base}` | {', '.join(versions[base])} |\n" for base in sorted(versions)]
    lines += [f"\n## Not implemented ({len(missing)})\n\n"]
    lines += [", ".join(f"`{name}`" for name in missing), "\n"]
    return "".join(lines)


def main(command: str, *folders: str) -> None:
    if command == "table":
        TABLE.write_text(table_text(), encoding="utf-8")
        return
    version, names = known_names()
    for folder in folders:
        found = header_names(folder)
        version, names = max(version, found[0]), names | found[1]
    NAMES.write_text(names_text(version, names), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] not in (["names"], ["table"]):
        sys.exit(__doc__)
    main(*sys.argv[1:])
