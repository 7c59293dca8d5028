"""One block of shared memory without a name: nothing to leak, freed by the kernel with its last user.

The one thing to know: the pages are reserved when the block is made (`fallocate`), after a look at how much memory is
free. A block that exists can be written to its end; one that cannot be had is a `Shortage` before any worker starts,
never a bus error later.

word  | written by       | read by | order relied on | after a kill it means
bytes | whoever has them | all     | none here       | what was written stays

It orders nothing: who writes what, and when another may read it, is said where the bytes are given a meaning.

This code assumes: 64-bit Linux (memfd). A memfd is not bound by the size of /dev/shm, 64 MB in many containers. Words
are 8-byte aligned, and reading or writing one item of a memoryview cast to "q" or "d" is one 64-bit move, which x86-64
and aarch64 do whole.

What doesn't work: unmapping memory that somebody still looks at. After `close` the mapping, and the second descriptor
that Python's mmap keeps for it, go with the last words, tensor, lock or bell made from it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING

from wasp_local.errors import Shortage
from wasp_local.shm.free_memory import free_bytes

if TYPE_CHECKING:
    import torch

__all__ = ["Segment"]


class Segment:
    """A block of shared memory, mapped into this process.

    Attributes:
        fd: its descriptor, to be handed to another process; closed by `close`.
        nbytes: its size.
    """

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        self.nbytes = nbytes
        self._map: mmap.mmap | None = mmap.mmap(fd, nbytes)

    @classmethod
    def create(cls, nbytes: int, purpose: str) -> Segment:
        """Make a block of zeros.

        Args:
            nbytes: its size.
            purpose: what it is for, for the message.

        Raises:
            Shortage: there is less memory free.
        """
        nbytes = max(nbytes, mmap.PAGESIZE)
        free = free_bytes()
        if nbytes > free:
            raise Shortage(_shortage(purpose, nbytes, free))
        fd = os.memfd_create("wasp_local", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, nbytes)
            return cls(fd, nbytes)
        except OSError as error:
            os.close(fd)
            raise Shortage(_shortage(purpose, nbytes, free)) from error
        except BaseException:  # Ctrl-C while a large block is being reserved
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int, nbytes: int) -> Segment:
        """Map the first `nbytes` of a block that another process made, and own its descriptor from now on."""
        return cls(fd, nbytes)

    def memory(self) -> memoryview:
        """All of its bytes."""
        if self._map is None:
            raise ValueError("the segment is closed")
        return memoryview(self._map)

    def words(self, offset: int, count: int) -> memoryview:
        """`count` signed 64-bit words from byte `offset`, which is a multiple of 8."""
        return self._eights(offset, count).cast("q")

    def doubles(self, offset: int, count: int) -> memoryview[float]:
        """`count` float64 from byte `offset`, which is a multiple of 8."""
        return self._eights(offset, count).cast("d")

    def _eights(self, offset: int, count: int) -> memoryview:
        end = offset + 8 * count
        if offset < 0 or offset % 8 or end > self.nbytes:
            raise ValueError(
                f"words must lie in 0 .. {self.nbytes} and begin at a multiple of 8, got {offset} .. {end}"
            )
        return self.memory()[offset:end]

    def tensor(self, offset: int, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """(numel,) elements of `dtype` from byte `offset`; writes through, and keeps the memory mapped."""
        import torch

        if not numel:
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(self.memory(), dtype=dtype, count=numel, offset=offset)

    def address(self, offset: int) -> int:
        """Where byte `offset` lies in this process."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory(), offset))

    def close(self) -> None:
        """Let go of it; again does nothing. Its words and tensors stay valid, and keep it mapped, until they go."""
        if self._map is not None:
            self._map = None
            os.close(self.fd)


def _shortage(purpose: str, needed: int, free: int) -> str:
    return (
        f"the {purpose} needs {needed:,} bytes of shared memory and {free:,} are free: "
        "use fewer workers, a smaller model or less data, or give the container more memory"
    )
