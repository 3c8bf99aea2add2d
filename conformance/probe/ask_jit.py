"""Options of the compiler of PTX, and its logs."""

import ctypes

from ask_modules import options
from kernels import HEAD, TEXT, entry, image
from section import Section

section = Section("jit")
question = section.question

INFO, INFO_SIZE, ERROR, ERROR_SIZE = 3, 4, 5, 6
WRONG = HEAD + entry("k", body="    .reg .b32 %r<4>;\n    frobnicate.u32 %r1, %r2;")


def loaded(p, text, *pairs):
    count, names, values = options(p, *pairs)
    status = p.tried("cuModuleLoadDataEx", p.cell(), p.keep(image(text)), count, names, values)
    return status, values


for key, name, good, bad in (
    (0, "max registers", [16, 32, 255], [0, 1, 256, 100000]),
    (1, "threads per block", [32, 256], [0, 2048]),
    (2, "wall time", [0], []),
    (7, "optimization level", [0, 1, 2, 3, 4], [5, 100]),
    (8, "target from context", [0, 1], []),
    (9, "target", [75, 80, 90], [0, 10, 70, 100, 999]),
    (10, "fallback", [0, 1], [2, 99]),
    (11, "debug info", [0, 1], [2]),
    (12, "verbose", [0, 1], [2]),
    (13, "line info", [0, 1], [2]),
    (14, "cache mode", [0, 1, 2], [3, 99]),
    (15, "internal 15", [0, 1], []),
    (16, "internal 16", [0, 1], []),
    (20, "LTO", [0, 1], []),
    (21, "flush to zero", [0, 1], []),
    (22, "precise division", [0, 1], []),
    (23, "precise square root", [0, 1], []),
    (24, "fma", [0, 1], []),
    (29, "unused variables", [0, 1], []),
    (30, "position independent", [0, 1], []),
    (31, "blocks per multiprocessor", [0, 1, 2], [1000]),
    (32, "most threads per block", [32, 1024], [0, 2048]),
    (33, "override directives", [0, 1], [2]),
    (34, "split compile", [0, 1], []),
    (35, "beyond the last", [0], []),
    (99, "99", [0], []),
    (-1, "-1", [0], []),
):
    for value in [*good, *bad]:
        section.ask(
            f"{name} {value}", lambda p, key=key, value=value: loaded(p, TEXT, (key, value))[0]
        )


@question("two targets")
def _(p):
    return loaded(p, TEXT, (8, 0), (9, 90))[0]


@question("an option twice")
def _(p):
    return loaded(p, TEXT, (0, 32), (0, 64))[0]


@question("max registers and threads per block")
def _(p):
    return loaded(p, TEXT, (0, 32), (1, 64))[0]


def logs(p, text, room=4096, more=()):
    """Loads a text. Returns the status, both logs, and the option values with the log sizes."""
    info, error = (p.keep(ctypes.create_string_buffer(b"?" * 4095)) for _ in range(2))
    status, values = loaded(
        p,
        text,
        (INFO, ctypes.addressof(info)),
        (INFO_SIZE, room),
        (ERROR, ctypes.addressof(error)),
        (ERROR_SIZE, room),
        *more,
    )
    return status, info, error, values


@question("logs of a right text")
def _(p):
    status, info, error, values = logs(p, TEXT)
    return status, info.value == b"", error.value == b"", values[1], values[3]


@question("verbose log of a right text")
def _(p):
    status, info, error, values = logs(p, TEXT, more=[(12, 1)])
    return status, len(info.value) > 0, error.value == b"", (values[1] or 0) > 0, values[3]


@question("error log of a wrong text")
def _(p):
    status, info, error, values = logs(p, WRONG)
    text = error.value
    return {
        "status": status,
        "info": info.value == b"",
        "names the opcode": b"frobnicate" in text,
        "length": (values[3] or 0) - len(text),
        "ends with a line end": text[-1:] == b"\n",
        "info length": values[1],
    }


@question("the words of the error log")
def _(p):
    return logs(p, WRONG)[2].value.split(b"\n")[0][:200].decode(errors="replace").replace("=", ":")


for name, room in (("0", 0), ("1", 1), ("20", 20)):

    @question(f"error log with room for {name}")
    def _(p, room=room):
        status, _, error, values = logs(p, WRONG, room)
        # Number of bytes that the driver has written. The bytes after them are still `?`.
        written = error.raw.index(b"?")
        return status, written, values[3]


@question("log buffer without a size")
def _(p):
    buffer = p.keep(ctypes.create_string_buffer(b"?" * 100))
    return loaded(p, WRONG, (ERROR, ctypes.addressof(buffer)))[0], buffer.raw[:1]


@question("log size without a buffer")
def _(p):
    status, values = loaded(p, WRONG, (ERROR_SIZE, 100))
    return status, values[0]


@question("log buffer null")
def _(p):
    return loaded(p, WRONG, (ERROR, 0), (ERROR_SIZE, 100))[0]


@question("threads per block tells what was reached")
def _(p):
    status, values = loaded(p, TEXT, (1, 128))
    return status, values[0]
