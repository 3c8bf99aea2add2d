"""The demo's mistakes: the errors that the library raises for wrong programs."""

import textwrap
from collections.abc import Callable

import cudadrv as cu
from cudadrv._demo_pipeline import histogram_kernel

Mistake = tuple[str, str, Callable[[], object]]


class Scene:
    """The objects that the mistakes use. Each mistake is one or two lines, as in many programs."""

    def __init__(self) -> None:
        self.stream, self.other = cu.Stream(), cu.Stream()
        self.frames = cu.LockedBuffer.zeros(4096, name="frames")
        self.result = cu.LockedBuffer.zeros(4096, name="result")
        self.device = cu.DeviceBuffer(4096, name="work")
        self.bins = cu.DeviceBuffer.zeros(256, "u8", name="bins")
        self.kernel = histogram_kernel()

    def refill(self) -> None:
        self.device.copy_from_async(self.frames, self.stream)
        self.frames[:] = 255

    def read_too_early(self) -> None:
        self.result.copy_from_async(self.device, self.stream)
        print(self.result[0])

    def forget_the_event(self) -> None:
        self.device.copy_from_async(self.frames, self.stream)
        self.result.copy_from_async(self.device, self.other)

    def launch_too_early(self) -> None:
        with self.frames.write() as array:
            self.kernel.launch(1, 256, cu.read(self.frames), 4096, self.bins, stream=self.stream)
            array[:] = 255

    def close_too_early(self) -> None:
        self.device.copy_from_async(self.frames, self.stream)
        self.device.close()

    def mistakes(self) -> list[Mistake]:
        """Return the title of each mistake, the code as shown, and the function that runs it."""
        return [
            (
                "Refilling a buffer whose copy is in flight",
                "device.copy_from_async(frames, stream)\nframes[:] = 255",
                self.refill,
            ),
            (
                "Reading a result before it has arrived",
                "result.copy_from_async(device, stream)\nprint(result[0])",
                self.read_too_early,
            ),
            (
                "Using a buffer on a second stream, with nothing that orders the two",
                "device.copy_from_async(frames, stream)\nresult.copy_from_async(device, other)",
                self.forget_the_event,
            ),
            (
                "Launching a kernel while the host still writes what it is to read",
                "with frames.write() as array:\n"
                "    kernel.launch(1, 256, cu.read(frames), 4096, bins, stream=stream)\n"
                "    array[:] = 255",
                self.launch_too_early,
            ),
            (
                "Closing a buffer that the GPU still uses",
                "device.copy_from_async(frames, stream)\ndevice.close()",
                self.close_too_early,
            ),
        ]

    def make_it_right(self) -> None:
        self.other.wait(self.device.copy_from_async(self.frames, self.stream))
        self.result.copy_from_async(self.device, self.other).wait()
        with self.frames.write() as array:
            array[:] = 255
        self.kernel.launch(1, 256, cu.read(self.frames), 4096, self.bins, stream=self.stream).wait()
        print(f"    {self.result[0]}")

    def wait(self) -> None:
        self.stream.synchronize()
        self.other.synchronize()

    def close(self) -> None:
        for thing in (self.frames, self.result, self.device, self.bins, self.stream, self.other):
            thing.close()


def show_mistakes() -> int:
    """Make the mistakes, and print the errors. Returns 1 if one was not refused, else 0."""
    scene = Scene()
    print("Five mistakes, each of which would run on many machines and be wrong on some day.")
    print(
        textwrap.fill(
            "They are refused before the driver hears of them, however fast the GPU was:"
            " what counts is the program's order, not the clock.",
            88,
        )
    )
    missed = 0
    for number, (title, code, mistake) in enumerate(scene.mistakes(), 1):
        print(f"\n{number}. {title}\n")
        first, *others = code.splitlines()
        print("\n".join([f"    >>> {first}", *(f"    {prompt(line)} {line}" for line in others)]))
        try:
            mistake()
            missed += 1
            print("    nothing was refused: that is a bug in cudadrv")
        except cu.OwnershipError as error:
            print(textwrap.indent(f"{type(error).__name__}: {error}", "    "))
        scene.wait()

    print("\nThe way out that the messages name is what makes each of them right:\n")
    print(
        "    >>> other.wait(device.copy_from_async(frames, stream))\n"
        "    >>> result.copy_from_async(device, other).wait()\n"
        "    >>> with frames.write() as array:\n"
        "    ...     array[:] = 255\n"
        "    >>> kernel.launch(1, 256, cu.read(frames), 4096, bins, stream=stream).wait()\n"
        "    >>> result[0]"
    )
    scene.make_it_right()
    scene.close()
    return 1 if missed else 0


def prompt(line: str) -> str:
    return "..." if line.startswith(" ") else ">>>"
