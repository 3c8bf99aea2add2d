"""A ring of frames: streams read a camera and store results by functions of the host.

The program only queues work. While the device works on a frame, the camera fills the next one.
"""

from pathlib import Path

import cudadrv as cu

PIXELS, FRAMES, SLOTS = 256 * 256, 12, 3
# y = a * x + y
saxpy = cu.Module.from_file(Path(__file__).parent / "kernels" / "saxpy.ptx")["saxpy"]


class Camera:
    """Delivers frames, into memory that it is given."""

    shot = 0

    def read_into(self, frame):
        self.shot += 1
        frame[:] = self.shot


camera, sums = Camera(), []
filling, adding = cu.Stream(name="camera"), cu.Stream(name="device")
total = cu.DeviceBuffer.zeros(PIXELS, "f4", name="total")
result = cu.LockedBuffer(PIXELS, "f4", name="result")
shots = [cu.LockedBuffer(PIXELS, "f4", name=f"shot {slot}") for slot in range(SLOTS)]
frames = [cu.DeviceBuffer(PIXELS, "f4", name=f"frame {slot}") for slot in range(SLOTS)]
copied = [None] * SLOTS

for number in range(FRAMES):
    slot = number % SLOTS
    if copied[slot]:
        filling.wait(copied[slot])  # without this wait, the next line is refused
    filling.call(camera.read_into, shots[slot])
    adding.wait(filling)
    copied[slot] = frames[slot].copy_from_async(shots[slot], adding)
    saxpy.launch(PIXELS // 256, 256, 1, cu.read(frames[slot]), total, PIXELS, stream=adding)
    result.copy_from_async(total, adding)
    adding.call(lambda array: sums.append(float(array[0])), cu.read(result))

adding.synchronize()  # raises what a function has raised
assert sums == [shot * (shot + 1) / 2 for shot in range(1, FRAMES + 1)]
print(sums)

# A stream that does not wait for the camera cannot use what the camera writes.
filling.call(camera.read_into, shots[0])
try:
    frames[0].copy_from_async(shots[0], adding)
except cu.BufferBorrowedError as error:
    print(error)
filling.synchronize()
