"""Waiting for a condition on shared words."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from wasp_local.shm.mutex import RobustMutex, _Timespec
from wasp_local.shm.segment import Segment

_LIBC = ctypes.CDLL(None, use_errno=True)
_FUTEX, _WAIT, _WAKE = 202, 0, 1


class Bell:
    SIZE = 192

    def __init__(self, segment: Segment, offset: int) -> None:
        self._words = segment.words(offset, 2)
        self._at = ctypes.c_void_p(segment.address(offset))
        self._lock = RobustMutex(segment, offset + 64)
        self._fence = RobustMutex(segment, offset + 128)

    def initialise(self) -> None:
        self._lock.initialise()
        self._fence.initialise()

    def fence(self) -> None:
        self._fence.acquire(lambda: None)
        self._fence.release()

    def ring(self) -> None:
        if self._words[1]:
            self._lock.acquire(lambda: None)
            self._words[0] = (self._words[0] + 1) & 0xFFFFFFFF
            self._lock.release()
            _LIBC.syscall(_FUTEX, self._at, _WAKE, ctypes.c_int(2**31 - 1), None, None, 0)

    def wait(self, condition: Callable[[], bool], still_wanted: Callable[[], None], slice_seconds: float = 0.1) -> None:
        if condition():
            return
        self._count(1)
        try:
            while True:
                seen = self._words[0]
                if condition():
                    return
                spec = _Timespec(int(slice_seconds), int(slice_seconds % 1 * 1e9))
                _LIBC.syscall(_FUTEX, self._at, _WAIT, ctypes.c_uint(seen), ctypes.byref(spec), None, 0)
                still_wanted()
        finally:
            self._count(-1)

    def _count(self, step: int) -> None:
        self._lock.acquire(lambda: None)
        self._words[1] += step
        self._lock.release()
