"""Waiting in asyncio: while one coroutine waits for the device, others run."""

import asyncio

import numpy as np

import cudadrv as cu


async def there_and_back(number: int) -> int:
    source = cu.LockedBuffer.from_array(np.full(4096, number, "i4"))
    result = cu.LockedBuffer(4096, "i4")
    work = cu.DeviceBuffer(4096, "i4")
    stream = cu.Stream()
    work.copy_from_async(source, stream)
    await result.copy_from_async(work, stream)
    source[:] = 0  # `await` counts as `wait()`: both copies are known to be complete
    return int(result[0])


async def main() -> None:
    numbers = await asyncio.gather(*map(there_and_back, range(5)))
    assert numbers == list(range(5))
    print(numbers)


asyncio.run(main())
