"""Each allocation of Python in the small programs fails, one at a time: see cases.py.

A case is the number of the allocation that fails, from the program's beginning.
"""

import _testcapi

import cases

from cudadrv._host_function import keep_thread

FIRST_GUESS = 1 << 20  # more allocations than any program makes


class Without:
    """A context manager in which allocations from `first` up to `last` fail."""

    def __init__(self, first, last):
        self.range = first, last

    def __enter__(self):
        # Cython 3.3.1 crashes if it cannot allocate the tuple for keywords of a constructor. Freed
        # tuples that Python keeps for reuse prevent that.
        [((number,), (number, number)) for number in range(500)]
        _testcapi.set_nomemory(*self.range)

    def __exit__(self, *exception):
        _testcapi.remove_mem_hooks()


def run(name, number, left, show=False):
    """Run a program in which one allocation fails."""

    def run():
        if name.startswith("functions"):
            keep_thread()
        around = Without(int(number), int(number) + 1)
        return cases.meet(name, around, is_expected, left, show)

    return cases.in_a_child(run)


def is_expected(error):
    return isinstance(error, MemoryError | None) or is_of_others(error)


def is_of_others(error):
    """Whether NumPy or Python has replaced the MemoryError by another exception."""
    if isinstance(error, SystemError):
        return "numpy" in str(error) or _innermost_file(error) == "<frozen _collections_abc>"
    if isinstance(error, TypeError):  # os.fspath, although a PosixPath is an os.PathLike
        return str(error).endswith("os.PathLike object, not PosixPath")
    return str(error).startswith(("can't allocate ", "can't start new thread"))


def _innermost_file(error):
    """The file of the line that raised: os.environ.get() may say that an exception is missing."""
    traceback = error.__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename


def count_of(name):
    """The number of allocations that a program makes."""

    def is_enough(number):
        def run():
            cases.begin()
            return cases.run_program(name, Without(number, FIRST_GUESS)).is_success()

        return cases.in_a_child(run) is True

    least, most = 0, FIRST_GUESS
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if is_enough(middle) else (middle, most)
    return most


if __name__ == "__main__":
    cases.main(run, cases.by_number(run, count_of, first=0, sample=8))
