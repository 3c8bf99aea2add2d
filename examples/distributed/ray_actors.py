"""Actors of Ray, each with a device, which send each other page-locked memory as NumPy arrays."""

import numpy as np
import ray

import cudadrv as cu

COUNT = 1 << 16


@ray.remote
class Worker:
    """Keeps numbers on a device between the calls."""

    def __init__(self, seed):
        numbers = np.random.default_rng(seed).random(COUNT, "f4")
        self.numbers = cu.DeviceBuffer.from_array(numbers, name="numbers")
        self.row = cu.LockedBuffer(COUNT, "f4", name="row")
        self.stream = cu.Stream()

    def take(self, array):
        """An argument of Ray lies in Ray's store, read-only. The copy only reads it."""
        self.numbers.copy_from(array, stream=self.stream)

    def send(self, wait=True):
        """Ray copies a result when the method returns, so it has to be complete by then."""
        self.row.copy_from_async(self.numbers, self.stream)
        if wait:
            self.stream.synchronize()
        # The row is lent to the host until the array is gone. Without the wait, this is refused.
        return np.from_dlpack(self.row.lend(None, readonly=True, device="cpu"))


def main():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    first, second = Worker.remote(0), Worker.remote(1)
    try:
        ray.get(first.send.remote(wait=False))
    except cu.BufferBorrowedError as error:
        print("\n".join(str(error).splitlines()[-4:-2]))
    moved = first.send.remote()  # a reference to the row in Ray's store, which the next call awaits
    ray.get(second.take.remote(moved))
    result = ray.get(second.send.remote())
    assert np.array_equal(result, np.random.default_rng(0).random(COUNT, "f4"))
    print(f"{result.nbytes} bytes went from actor to actor")
    ray.shutdown()


if __name__ == "__main__":
    main()
