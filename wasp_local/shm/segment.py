"""One block of shared memory without a name: nothing to leak, freed by the kernel with its last user."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING

import psutil

from wasp_local.errors import Shortage

if TYPE_CHECKING:
    import torch


def free_bytes() -> int:
    return psutil.virtual_memory().available


class Segment:
    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        self.nbytes = nbytes
        self._map: mmap.mmap | None = mmap.mmap(fd, nbytes)

    @classmethod
    def create(cls, nbytes: int, purpose: str) -> Segment:
        free = free_bytes()
        if nbytes > free:
            raise Shortage(f"{purpose} needs {nbytes} bytes of shared memory, {free} are free")
        fd = os.memfd_create("wasp_local", os.MFD_CLOEXEC)
        os.posix_fallocate(fd, 0, max(nbytes, 4096))
        return cls(fd, max(nbytes, 4096))

    @classmethod
    def attach(cls, fd: int, nbytes: int) -> Segment:
        return cls(fd, nbytes)

    def memory(self) -> memoryview:
        return memoryview(self._map)

    def words(self, offset: int, count: int) -> memoryview:
        return memoryview(self._map)[offset : offset + 8 * count].cast("q")

    def doubles(self, offset: int, count: int) -> memoryview[float]:
        return memoryview(self._map)[offset : offset + 8 * count].cast("d")

    def tensor(self, offset: int, numel: int, dtype: torch.dtype) -> torch.Tensor:
        import torch

        if not numel:
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(self._map, dtype=dtype, count=numel, offset=offset)

    def address(self, offset: int) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(self._map, offset))

    def close(self) -> None:
        if self._map is not None:
            self._map = None
            os.close(self.fd)
