"""Sends buffers from one process to another with Dask (``pip install cudadrv[dask]``).

Importing this module registers the three kinds of buffers with Dask's serialization, in the process
that imports it. `BufferPlugin` does so on all workers of a cluster. ``import cudadrv`` does not
import this module, nor Dask.

A buffer arrives as a copy: a new buffer of the same kind, shape, dtype and name, on the current
device of the process that receives it. Sending reads the buffer, and is refused like any access of
the host, if work that may write the buffer is not known to be complete.

State that outlives a call: whether this process is a worker, written once.
"""

import pickle
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import numpy as np

from cudadrv._buffer import Buffer
from cudadrv._buffers import DeviceBuffer, HostBuffer, LockedBuffer, UnifiedBuffer
from cudadrv._exchange import from_cuda_array
from cudadrv._ordering import ordering

try:
    from dask.sizeof import sizeof
    from distributed import Worker, WorkerPlugin
    from distributed.protocol import (
        cuda_deserialize,
        cuda_serialize,
        dask_deserialize,
        dask_serialize,
    )
except ImportError as error:
    raise ImportError(
        f"cudadrv.dask needs Dask and its scheduler: pip install cudadrv[dask] ({error})"
    ) from error

__all__ = ["BufferPlugin", "LostBuffer"]

_Header: TypeAlias = dict[str, Any]
_Context: TypeAlias = dict[str, Any] | None

_on_worker = False


# ---- what programs use ----


class BufferPlugin(WorkerPlugin):
    """Registers cudadrv's buffers on every worker, also on workers that join later.

    Call ``client.register_plugin(BufferPlugin())`` once for each cluster. For a single worker
    ``dask worker --preload cudadrv.dask`` does the same.
    """

    name = "cudadrv"

    def setup(self, worker: Worker) -> None:
        """Called by Dask on each worker."""
        dask_setup(worker)


def dask_setup(worker: Worker) -> None:
    """Called by Dask on a worker that preloads this module."""
    global _on_worker
    _on_worker = True


class LostBuffer:
    """What a worker gets in place of a buffer that could not be sent or received.

    Each use raises the error that says why, such as `BufferBorrowedError`. Dask itself would wait
    for such a buffer for ever.

    Attributes
    ----------
    error : Exception
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python and Dask look for these, and expect an AttributeError
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._raise()

    def _raise(self, *args: object, **kwargs: object) -> NoReturn:
        raise self.error.with_traceback(None)  # a kept traceback would grow at each use

    __len__ = __iter__ = __getitem__ = __setitem__ = __enter__ = __exit__ = _raise
    __array__ = __buffer__ = __dlpack__ = __dlpack_device__ = _raise
    __cuda_array_interface__ = property(_raise)

    def __repr__(self) -> str:
        return f"<LostBuffer: {self.error}>"


# ---- headers ----


def _header_of(buffer: Buffer, by_message: bool) -> _Header:
    return {
        "dtype": pickle.dumps(buffer.dtype),
        "shape": buffer.shape,
        "name": buffer.name,
        "by message": by_message,
    }


def _dtype_of(header: _Header) -> np.dtype[Any]:
    dtype: np.dtype[Any] = pickle.loads(header["dtype"])
    return dtype


def _sent(
    buffer: Buffer, context: _Context, frame_of: Callable[[Any], object]
) -> tuple[_Header, list[object]]:
    """Return a header and frames. Errors travel in a header if Dask would not pass them on.

    Without a context, Dask moves a buffer of a worker to the disk, or pickles an object that
    contains it. The program has not asked for that, so this waits for work that uses the buffer.
    """
    if context is None and _on_worker:
        with ordering("wait"):
            return _header_of(buffer, False), [frame_of(buffer)]
    if context is None:
        return _header_of(buffer, False), [frame_of(buffer)]
    try:
        return _header_of(buffer, True), [frame_of(buffer)]
    except Exception as error:
        return {"error": pickle.dumps(error), "by message": True}, []


def _received(
    header: _Header,
    frames: list[Any],
    kind: type[Buffer],
    make: Callable[[type[Buffer], _Header, Any], Buffer],
) -> Any:
    """Return a buffer. On an error, a worker returns a LostBuffer: raising would hang it."""
    try:
        if "error" in header:
            raise pickle.loads(header["error"])
        return make(kind, header, frames[0])
    except Exception as error:
        if not (_on_worker and header["by message"]):
            raise
        return LostBuffer(error.with_traceback(None))  # a traceback keeps the data


# ---- frames in host memory: every transport ----


_Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]


def _bytes_of(array: np.ndarray[Any, Any]) -> _Bytes:
    """Return a view of an array as bytes, because transports need not know its dtype. The view
    is no memoryview, because Dask cannot pickle a memoryview in an object that contains a buffer.
    """
    return array.reshape(-1).view("u1")


def _copied(buffer: DeviceBuffer) -> _Bytes:
    return _bytes_of(buffer.to_numpy())


def _exported(buffer: HostBuffer) -> _Bytes:
    """Return the memory itself: until Dask has sent it, it is exported for reading."""
    return _bytes_of(np.asarray(buffer.readonly()))


@dask_serialize.register(DeviceBuffer)
def _serialize_copy(buffer: DeviceBuffer, context: _Context = None) -> tuple[_Header, list[object]]:
    return _sent(buffer, context, _copied)


@dask_serialize.register((LockedBuffer, UnifiedBuffer))
def _serialize_export(buffer: HostBuffer, context: _Context = None) -> tuple[_Header, list[object]]:
    return _sent(buffer, context, _exported)


# These are functions of the module, because pickles refer to them by name.


@dask_deserialize.register(DeviceBuffer)
def _deserialize_device(header: _Header, frames: list[Any]) -> Any:
    return _received(header, frames, DeviceBuffer, _from_host)


@dask_deserialize.register(LockedBuffer)
@cuda_deserialize.register(LockedBuffer)
def _deserialize_locked(header: _Header, frames: list[Any]) -> Any:
    return _received(header, frames, LockedBuffer, _from_host)


@dask_deserialize.register(UnifiedBuffer)
def _deserialize_unified(header: _Header, frames: list[Any]) -> Any:
    return _received(header, frames, UnifiedBuffer, _from_host)


def _from_host(kind: type[Buffer], header: _Header, frame: Any) -> Buffer:
    array = np.frombuffer(frame, "u1").view(_dtype_of(header)).reshape(header["shape"])
    return kind.from_array(array, name=header["name"])


# ---- frames in device memory: transports that read and write it themselves, such as UCX ----

_BY_MESSAGE: _Context = {}  # the "cuda" family passes no context, and only sends messages


class _DeviceFrame:
    """The bytes of a buffer, which is lent for reading while this object lives."""

    def __init__(self, buffer: Buffer) -> None:
        self._loan = buffer.lend(None, readonly=True)
        self.nbytes = buffer.nbytes
        self.__cuda_array_interface__ = self._loan.__cuda_array_interface__


@cuda_serialize.register((DeviceBuffer, UnifiedBuffer))
def _serialize_loan(buffer: Buffer) -> tuple[_Header, list[object]]:
    return _sent(buffer, _BY_MESSAGE, _DeviceFrame)


@cuda_serialize.register(LockedBuffer)
def _serialize_locked(buffer: LockedBuffer) -> tuple[_Header, list[object]]:
    return _sent(buffer, _BY_MESSAGE, _exported)


@cuda_deserialize.register(DeviceBuffer)
def _deserialize_kept(header: _Header, frames: list[Any]) -> Any:
    return _received(header, frames, DeviceBuffer, _kept)


@cuda_deserialize.register(UnifiedBuffer)
def _deserialize_managed(header: _Header, frames: list[Any]) -> Any:
    return _received(header, frames, UnifiedBuffer, _managed)


def _kept(kind: type[Buffer], header: _Header, frame: object) -> Buffer:
    """Make a buffer over the memory that the transport has allocated and filled."""
    arrived, dtype = from_cuda_array(frame, ordered=True), _dtype_of(header)
    buffer = kind.from_address(
        arrived.address,
        arrived.nbytes // dtype.itemsize,
        dtype,
        owner=arrived,
        device=arrived.device,
        name=header["name"],
    )
    return buffer.reshape(header["shape"])


def _managed(kind: type[Buffer], header: _Header, frame: object) -> Buffer:
    arrived = from_cuda_array(frame, ordered=True).view(_dtype_of(header))
    buffer = UnifiedBuffer(arrived.count, arrived.dtype, name=header["name"])
    buffer.copy_from(arrived)
    return buffer.reshape(header["shape"])


# ---- a lost buffer that is sent on, and sizes ----


@dask_serialize.register(LostBuffer)
def _serialize_lost(lost: LostBuffer) -> tuple[_Header, list[object]]:
    return {"error": pickle.dumps(lost.error), "by message": True}, []


@dask_deserialize.register(LostBuffer)
def _deserialize_lost(header: _Header, frames: list[Any]) -> Any:
    return _received(header, frames, Buffer, _from_host)


@sizeof.register(Buffer)
def _sizeof(buffer: Buffer) -> int:
    """Return the bytes that Dask counts as used memory of a worker, on the host or a device."""
    return buffer.nbytes
