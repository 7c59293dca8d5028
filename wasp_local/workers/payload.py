"""What a worker is given, pickled once for all of them into one shared segment.

The one thing to know: the bytes of large tensors and arrays are not copied to each worker. They lie once in the
segment, and every worker maps them copy-on-write: its tensors are its own to change, the pages are shared until
it does. Functions and classes that a fresh process could not import (from a script, a notebook, `python -c`, a
test file) travel by value, with cloudpickle.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import io
import marshal
import mmap
import os
import pickle
import struct
import sys
import types
from typing import Any, NamedTuple

import cloudpickle
import torch

from wasp_local.shm.arena import Arena
from wasp_local.shm.segment import Segment

__all__ = ["dump", "load", "unpicklable_reason"]

_HEADER = struct.Struct("<q")


class _Piece(NamedTuple):
    offset: int
    nbytes: int


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Keeps tensors' bytes out of the stream, and takes whole what a fresh process could not import."""

    def __init__(self, file: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self._whole: list[types.ModuleType] = []

    def dump(self, obj: Any) -> None:
        try:
            super().dump(obj)
        finally:
            for module in self._whole:
                cloudpickle.unregister_pickle_by_value(module)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.UntypedStorage) and obj.device.type == "cpu":
            return _storage_from, (pickle.PickleBuffer(_bytes_of(obj)), obj.nbytes())
        if type(obj) is torch.Tensor and _is_plain(obj):
            parts = (obj.untyped_storage(), obj.dtype, obj.storage_offset(), obj.shape, obj.stride())
            return _tensor_from, (*parts, obj.requires_grad)
        if isinstance(obj, types.CodeType):
            # cloudpickle drops the file's name, and with it the source lines of a worker's traceback
            return marshal.loads, (marshal.dumps(obj),)
        if isinstance(obj, types.ModuleType) and sys.modules.get(obj.__name__) is obj and _is_odd(obj):
            return importlib.import_module, (obj.__name__,)
        if isinstance(obj, type | types.FunctionType):
            self._take_whole_unless_importable(getattr(obj, "__module__", None))
        return super().reducer_override(obj)

    def _take_whole_unless_importable(self, name: str | None) -> None:
        if not name or name == "__main__" or name not in sys.modules:
            return
        if (
            not _importable(name.partition(".")[0])
            and name not in cloudpickle.list_registry_pickle_by_value()
        ):
            cloudpickle.register_pickle_by_value(sys.modules[name])
            self._whole.append(sys.modules[name])


def dump(value: Any) -> Segment:
    """Pickle `value` into a new segment that `load` reads in any process.

    Raises:
        Shortage: there is too little memory.
        Exception: whatever pickling raised.
    """
    buffers: list[pickle.PickleBuffer] = []
    body = io.BytesIO()
    _Pickler(body, buffers).dump(value)
    arena = Arena()
    arena.take(_HEADER.size)
    raws = [buffer.raw() for buffer in buffers]
    pieces = [_Piece(arena.take(raw.nbytes), raw.nbytes) for raw in raws]
    pickled = body.getbuffer()
    at = arena.take(pickled.nbytes)
    index = pickle.dumps([tuple(piece) for piece in [*pieces, _Piece(at, pickled.nbytes)]])
    index_at = arena.take(_HEADER.size + len(index))
    segment = Segment.create(arena.nbytes, purpose="model and data")
    with segment.memory() as memory:
        _HEADER.pack_into(memory, 0, index_at)
        _HEADER.pack_into(memory, index_at, len(index))
        memory[index_at + _HEADER.size : index_at + _HEADER.size + len(index)] = index
        for piece, raw in zip(pieces, raws, strict=True):
            memory[piece.offset : piece.offset + piece.nbytes] = raw
        memory[at : at + pickled.nbytes] = pickled
    return segment


def load(fd: int) -> Any:
    """Read back what `dump` wrote; comes only from our own coordinator, over an inherited descriptor."""
    size = os.fstat(fd).st_size
    memory = memoryview(mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE))
    (index_at,) = _HEADER.unpack_from(memory, 0)
    (length,) = _HEADER.unpack_from(memory, index_at)
    start = index_at + _HEADER.size
    *pieces, body = [_Piece(*piece) for piece in pickle.loads(memory[start : start + length])]
    buffers = [memory[piece.offset : piece.offset + piece.nbytes] for piece in pieces]
    return pickle.loads(memory[body.offset : body.offset + body.nbytes], buffers=buffers)


def unpicklable_reason(value: Any) -> str | None:
    """Why `value` cannot be sent to a worker, or None if it can."""
    try:
        _Pickler(io.BytesIO(), []).dump(value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _is_odd(module: types.ModuleType) -> bool:
    """Whether it is of a class of its own, as `torch.classes` is, which cloudpickle cannot pickle.

    It tries as soon as a function uses torch and has any attribute or global by the name of `classes`.
    """
    return type(module) is not types.ModuleType


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_leaf
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not getattr(tensor, "__dict__", None)
    )


def _bytes_of(storage: torch.UntypedStorage) -> memoryview:
    if not storage.nbytes():
        return memoryview(b"")
    array: Any = torch.tensor([], dtype=torch.uint8).set_(storage).numpy()
    return memoryview(array)


def _storage_from(buffer: Any, nbytes: int) -> torch.UntypedStorage:
    if not nbytes:
        return torch.empty(0).untyped_storage()
    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()


def _tensor_from(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int,
    shape: torch.Size,
    stride: tuple[int, ...],
    requires_grad: bool,
) -> torch.Tensor:
    tensor = torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)
    return tensor.requires_grad_(requires_grad)


@functools.cache
def _importable(root: str) -> bool:
    if root in sys.builtin_module_names or root in sys.stdlib_module_names:
        return True
    spec = importlib.machinery.PathFinder.find_spec(root)
    return spec is not None
