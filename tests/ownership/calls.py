"""Short names for what the example tests do most."""


def write(stream, memory, start=0, stop=8, **options):
    return stream.issue((memory, start, stop, "write"), **options)[0]


def read(stream, memory, start=0, stop=8, **options):
    return stream.issue((memory, start, stop, "read"), **options)[0]


def reach(stream, memory, start=0, stop=8, **options):
    return stream.issue((memory, start, stop, "reach"), **options)[0]


def shared(stream, memory, start=0, stop=8, **options):
    return stream.issue((memory, start, stop, "shared"), **options)[0]


def host(memory, mode="write", start=0, stop=8, **options):
    """A host access that ends at once."""
    answer, view = memory.export(start, stop, mode, **options)
    if answer == "ok":
        view.close()
    return answer


def record(stream):
    return stream.snapshot(record=True)


def after(stream, *others):
    """Let a stream wait for all that others have queued."""
    for other in others:
        stream.wait(record(other))


def synchronize(*streams):
    for stream in streams:
        stream.snapshot().join_host()


class During:
    """Runs something while the driver has an operation: neither refused nor accepted so far.

    `issue` asks for `driver_fails` between the engine's check and its answer to the driver's.
    """

    def __init__(self, action, fails=False):
        self.action, self.fails = action, fails

    def __bool__(self):
        self.action()
        return self.fails
