"""Who gets which bytes of a segment: offsets handed out once, before the segment exists.

Each part of the shared state plans its own bytes with an `Arena`, keeps the offsets in a plain value that can
be sent to another process, and later finds its words and tensors in the `Segment` by them.
"""

from __future__ import annotations

__all__ = ["CACHE_LINE", "Arena"]

CACHE_LINE = 64  # bytes; what two processes write at the same time never shares one


class Arena:
    """A running count of bytes, each piece starting on a cache line of its own."""

    def __init__(self) -> None:
        self.nbytes = 0

    def take(self, nbytes: int) -> int:
        """Reserve `nbytes` and return the offset where they begin, a multiple of 64."""
        offset = self.nbytes
        self.nbytes += -(-nbytes // CACHE_LINE) * CACHE_LINE
        return offset
