"""Short names for frequent steps of the tests of the engine."""


def write(stream, memory, start=0, stop=8, **options):
    return stream.issue((memory, start, stop, "write"), **options)[0]


def read(stream, memory, start=0, stop=8, **options):
    return stream.issue((memory, start, stop, "read"), **options)[0]


def reach(stream, memory, start=0, stop=8, **options):
    return stream.issue((memory, start, stop, "reach"), **options)[0]


def shared(stream, memory, start=0, stop=8, **options):
    return stream.issue((memory, start, stop, "shared"), **options)[0]


def host(memory, mode="write", start=0, stop=8, **options):
    """Make a host access that ends before this function returns. Returns the engine's answer."""
    answer, view = memory.export(start, stop, mode, **options)
    if answer == "ok":
        view.close()
    return answer


def record(stream):
    return stream.snapshot(record=True)


def after(stream, *others):
    """Make a stream wait for everything that others have queued."""
    for other in others:
        stream.wait(record(other))


def synchronize(*streams):
    for stream in streams:
        stream.snapshot().join_host()


class During:
    """Runs an action during the driver call of an operation, before the engine knows the outcome.

    It is passed as `driver_fails` to `issue`, which evaluates it between the check and the settling
    of the operation.
    """

    def __init__(self, action, fails=False):
        self.action, self.fails = action, fails

    def __bool__(self):
        self.action()
        return self.fails
