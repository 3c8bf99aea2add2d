"""Two processes send each other rows by UCX. A buffer is lent to no stream while UCX has it."""

import asyncio
import multiprocessing

import numpy as np
import ucxx

import cudadrv as cu

COUNT = 1 << 16


async def answer(endpoint):
    """Receive a row, double it on the device, and send it back."""
    row = cu.LockedBuffer(COUNT, "f4", name="row")
    work = cu.DeviceBuffer(COUNT, "f4", name="work")
    await endpoint.recv(memoryview(row.lend(None)))
    stream = cu.Stream()
    work.copy_from_async(row, stream)  # the loan has ended: the row has arrived
    row.copy_from_async(work, stream)
    await stream
    with row.write() as array:
        array *= 2
    await endpoint.send(memoryview(row.lend(None, readonly=True)))


async def ask(port):
    endpoint = await ucxx.create_endpoint("127.0.0.1", port)
    work = cu.DeviceBuffer.from_array(np.arange(COUNT, dtype="f4"), name="work")
    row, stream = cu.LockedBuffer(COUNT, "f4", name="row"), cu.Stream()
    row.copy_from_async(work, stream)
    try:
        await endpoint.send(memoryview(row.lend(None, readonly=True)))
    except cu.BufferBorrowedError as error:
        print("\n".join(str(error).splitlines()[:2]))
    await stream
    await endpoint.send(memoryview(row.lend(None, readonly=True)))
    view = memoryview(row.lend(None))
    receive = asyncio.ensure_future(endpoint.recv(view))
    try:
        work.copy_from_async(row, stream)  # the row may not have arrived
    except cu.BufferExportedError as error:
        print("\n".join(str(error).splitlines()[:2]))
    await receive
    del view, receive
    work.copy_from(row, stream=stream)
    assert np.array_equal(work.to_numpy(), 2 * np.arange(COUNT, dtype="f4"))
    print(f"{row.nbytes} bytes went there and back")
    await endpoint.close()


async def listen(ports):
    done = asyncio.Event()

    async def accept(endpoint):
        await answer(endpoint)
        done.set()

    listener = ucxx.create_listener(accept)
    ports.put(listener.port)
    await done.wait()
    await asyncio.sleep(0.2)  # gives the other side time to close


def serve(ports):
    asyncio.run(listen(ports))


if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    ports = spawn.Queue()
    server = spawn.Process(target=serve, args=(ports,))
    server.start()
    asyncio.run(ask(ports.get()))
    server.join()
