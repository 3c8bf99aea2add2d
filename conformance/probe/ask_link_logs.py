"""Links that fail: their errors, the texts of their logs, and the sizes that are reported."""

import ctypes
import tempfile
from pathlib import Path

from ask_libraries import FAR, NEAR
from ask_modules import options
from driver import OUT
from kernels import HEAD, TEXT, entry, image
from section import Section

section = Section("link_logs")
question = section.question

INFO, INFO_SIZE, ERROR, ERROR_SIZE, WALL_TIME, VERBOSE = 3, 4, 5, 6, 2, 12
WRONG = HEAD + entry("wrong", body="    .reg .b32 %r<4>;\n    frobnicate.u32 %r1, %r2;")
OTHER = HEAD + entry("other", body="    .reg .b32 %r<4>;\n    bogus.u32 %r1, %r2;")
UNDECLARED = HEAD + entry("undeclared", body="    mov.u32 %r1, 1;")
NEWER = HEAD.replace("7.5", "99.9") + entry("newer")
MISSING = NEAR
WORDS = "this is no PTX"


class Logs:
    """The buffers for the info log and the error log, passed as options."""

    def __init__(self, p, room=4096, more=()):
        self.info, self.error = (p.keep(ctypes.create_string_buffer(b"?" * 4095)) for _ in range(2))
        self.count, self.names, self.values = options(
            p,
            (INFO, ctypes.addressof(self.info)),
            (INFO_SIZE, room),
            (ERROR, ctypes.addressof(self.error)),
            (ERROR_SIZE, room),
            *more,
        )

    @property
    def given(self):
        return self.count, self.names, self.values

    def tell(self):
        """For each log: whether it was written, and how the reported size relates to its length."""
        found = []
        for name, buffer, index in (("info", self.info, 1), ("error", self.error, 3)):
            text = "untouched" if buffer.raw[:1] == b"?" else len(buffer.value) > 0
            said = self.values[index] or 0
            if said == 4096:
                said = "all"
            elif said == len(buffer.value):
                said = "its length" if said else 0
            else:
                said = f"its length {said - len(buffer.value):+}"
            found.append({name: text, "size": said})
        return found

    def words(self):
        """The first line of the error log."""
        if self.error.raw[:1] == b"?":
            return "untouched"
        return self.error.value.split(b"\n")[0][:200].decode(errors="replace").replace("=", ":")


NONE = (0, 0, 0)


def create(p, given=NONE):
    return p.make("cuLinkDestroy", "cuLinkCreate_v2", *given, OUT)


def add(p, link, text, given=NONE, name=0, kind=1):
    data = p.keep(image(text))
    return p("cuLinkAddData_v2", link, kind, data, len(text) + 1, name, *given)


def complete(p, link):
    made, size = p.keep(ctypes.c_uint64(77)), p.keep(ctypes.c_size_t(77))
    status = p("cuLinkComplete", link, ctypes.byref(made), ctypes.byref(size))
    return status, "nothing written" if (made.value, size.value) == (77, 77) else "written"


TEXTS = {
    "a right text": TEXT,
    "an unknown opcode": WRONG,
    "an undeclared register": UNDECLARED,
    "a newer version": NEWER,
    "a missing function": MISSING,
    "words": WORDS,
}

for what, text in TEXTS.items():

    @question(f"logs of the link: {what}")
    def _(p, text=text):
        logs = Logs(p)
        link = create(p, logs.given)
        first = logs.tell()
        added = add(p, link, text), logs.tell()
        completed = complete(p, link), logs.tell()
        return (
            {"created": first},
            {"added": added},
            {"completed": completed},
            {"destroyed": (p.release(link), logs.tell())},
        )

    @question(f"words of the link's log: {what}")
    def _(p, text=text):
        logs = Logs(p)
        link = create(p, logs.given)
        add(p, link, text)
        found = [logs.words()]
        complete(p, link)
        return [*found, logs.words()]

    @question(f"logs of the addition: {what}")
    def _(p, text=text):
        logs, link = Logs(p), create(p)
        added = add(p, link, text, logs.given), logs.tell()
        completed = complete(p, link), logs.tell()
        return {"added": added}, {"completed": completed}

    @question(f"logs of both: {what}")
    def _(p, text=text):
        whole, part = Logs(p), Logs(p)
        link = create(p, whole.given)
        added = add(p, link, text, part.given), whole.tell(), part.tell()
        completed = complete(p, link), whole.tell(), part.tell()
        return {"added": added}, {"completed": completed}

    @question(f"without logs: {what}")
    def _(p, text=text):
        link = create(p)
        return add(p, link, text), complete(p, link)


for name, room in (("0", 0), ("1", 1), ("20", 20)):

    @question(f"room for {name}")
    def _(p, room=room):
        logs = Logs(p, room)
        link = create(p, logs.given)
        status = add(p, link, WRONG)
        return status, logs.error.raw.index(b"?"), logs.values[3], logs.values[1]

    @question(f"room for {name}, completed")
    def _(p, room=room):
        logs = Logs(p, room)
        link = create(p, logs.given)
        add(p, link, MISSING)
        return complete(p, link)[0], logs.error.raw.index(b"?"), logs.values[3], logs.values[1]


@question("two wrong texts")
def _(p):
    logs = Logs(p)
    link = create(p, logs.given)
    found = [add(p, link, WRONG), logs.tell(), add(p, link, OTHER), logs.tell()]
    text = logs.error.value
    return found, b"frobnicate" in text, b"bogus" in text, complete(p, link)


@question("a wrong text, then a right one")
def _(p):
    logs = Logs(p)
    link = create(p, logs.given)
    found = [add(p, link, WRONG), add(p, link, TEXT), b"frobnicate" in logs.error.value]
    return found, complete(p, link), b"frobnicate" in logs.error.value, logs.tell()


@question("a right text, then a wrong one")
def _(p):
    logs = Logs(p)
    link = create(p, logs.given)
    found = [add(p, link, TEXT), add(p, link, WRONG), b"frobnicate" in logs.error.value]
    return found, complete(p, link), b"frobnicate" in logs.error.value, logs.tell()


@question("two right texts")
def _(p):
    logs = Logs(p)
    link = create(p, logs.given)
    found = [add(p, link, NEAR), logs.tell(), add(p, link, FAR), logs.tell()]
    return found, complete(p, link), logs.tell()


@question("a function twice")
def _(p):
    logs = Logs(p)
    link = create(p, logs.given)
    found = [add(p, link, FAR), add(p, link, FAR), logs.tell()]
    return found, complete(p, link), logs.tell()


@question("completed after a failed completion")
def _(p):
    logs = Logs(p)
    link = create(p, logs.given)
    found = [add(p, link, MISSING), complete(p, link)]
    found += [add(p, link, FAR), complete(p, link)]
    return found, logs.tell()


@question("the name of an addition")
def _(p):
    logs = Logs(p)
    link = create(p, logs.given)
    add(p, link, WRONG, name=b"named.ptx")
    return b"named.ptx" in logs.error.value


@question("verbose")
def _(p):
    logs = Logs(p, more=[(VERBOSE, 1)])
    link = create(p, logs.given)
    return add(p, link, TEXT), logs.tell(), complete(p, link), logs.tell()


@question("wall time")
def _(p):
    logs = Logs(p, more=[(WALL_TIME, 0)])
    link = create(p, logs.given)
    found = [add(p, link, TEXT), bool(logs.values[4])]
    return found, complete(p, link), bool(logs.values[4])


@question("wall time of a failure")
def _(p):
    logs = Logs(p, more=[(WALL_TIME, 0)])
    link = create(p, logs.given)
    return add(p, link, WRONG), bool(logs.values[4]), logs.tell()


for kind, word in ((0, "cubin"), (2, "fatbin"), (3, "object"), (4, "library"), (5, "nvvm")):

    @question(f"text as {word}")
    def _(p, kind=kind):
        logs = Logs(p)
        link = create(p, logs.given)
        return add(p, link, TEXT, kind=kind), logs.tell(), complete(p, link)


@question("a file")
def _(p):
    logs = Logs(p)
    link = create(p, logs.given)
    with tempfile.NamedTemporaryFile(suffix=".ptx", delete=False) as file:
        file.write(WRONG.encode())
    status = p("cuLinkAddFile_v2", link, 1, file.name.encode(), 0, 0, 0)
    Path(file.name).unlink()
    return status, logs.tell(), file.name.encode() in logs.error.value


@question("a file that is not there")
def _(p):
    logs = Logs(p)
    link = create(p, logs.given)
    return p("cuLinkAddFile_v2", link, 1, b"/nothing/here", 0, 0, 0), logs.tell()


for key, name, value in (
    (0, "max registers 0", 0),
    (0, "max registers 32", 32),
    (9, "target 10", 10),
    (9, "target 80", 80),
    (14, "cache mode 3", 3),
    (99, "99", 0),
):

    @question(f"option of the link: {name}")
    def _(p, key=key, value=value):
        link = p.cell()
        status = p("cuLinkCreate_v2", *options(p, (key, value)), link)
        if status != "SUCCESS":
            return status
        handle = link._obj.value
        found = add(p, handle, TEXT), complete(p, handle)
        p("cuLinkDestroy", handle)
        return status, found

    @question(f"option of the addition: {name}")
    def _(p, key=key, value=value):
        link = create(p)
        return add(p, link, TEXT, options(p, (key, value))), complete(p, link)


@question("log buffer of the addition without a size")
def _(p):
    buffer = p.keep(ctypes.create_string_buffer(b"?" * 100))
    link = create(p)
    return add(p, link, WRONG, options(p, (ERROR, ctypes.addressof(buffer)))), buffer.raw[:1]


@question("log buffer of the link without a size")
def _(p):
    buffer = p.keep(ctypes.create_string_buffer(b"?" * 100))
    link = p.cell()
    return p("cuLinkCreate_v2", *options(p, (ERROR, ctypes.addressof(buffer))), link)


@question("the options' arrays changed after the creation")
def _(p):
    logs = Logs(p)
    link = create(p, logs.given)
    other = p.keep(ctypes.create_string_buffer(b"?" * 4095))
    logs.values[2] = ctypes.addressof(other)
    status = add(p, link, WRONG)
    return status, logs.error.raw[:1] == b"?", other.raw[:1] == b"?", complete(p, link)[0]
