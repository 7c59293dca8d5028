"""A lock that the kernel frees when its holder dies."""

from __future__ import annotations

import ctypes
import errno
import time
from collections.abc import Callable

from wasp_local.errors import BrokenInvariant
from wasp_local.shm.segment import Segment

_LIBC = ctypes.CDLL(None)
_QUICK = ctypes.PyDLL(None)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_trylock = _QUICK.pthread_mutex_trylock
_trylock.argtypes = [ctypes.c_void_p]
_unlock = _QUICK.pthread_mutex_unlock
_unlock.argtypes = [ctypes.c_void_p]
_consistent = _QUICK.pthread_mutex_consistent
_consistent.argtypes = [ctypes.c_void_p]
_clocklock = _LIBC.pthread_mutex_clocklock
_clocklock.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Timespec)]


class RobustMutex:
    SIZE = 64

    def __init__(self, segment: Segment, offset: int) -> None:
        self._segment = segment
        self._at = ctypes.c_void_p(segment.address(offset))

    def initialise(self) -> None:
        attr = ctypes.create_string_buffer(64)
        _LIBC.pthread_mutexattr_init(attr)
        _LIBC.pthread_mutexattr_setpshared(attr, 1)
        _LIBC.pthread_mutexattr_setrobust(attr, 1)
        if _LIBC.pthread_mutex_init(self._at, attr):
            raise OSError("pthread_mutex_init")

    def acquire(self, still_wanted: Callable[[], None]) -> bool:
        code = _trylock(self._at)
        while code in (errno.EBUSY, errno.ETIMEDOUT):
            until = time.monotonic() + 0.2
            spec = _Timespec(int(until), int(until % 1 * 1e9))
            code = _clocklock(self._at, time.CLOCK_MONOTONIC, ctypes.byref(spec))
            if code == errno.ETIMEDOUT:
                still_wanted()
        if code == errno.EOWNERDEAD:
            _consistent(self._at)
            return True
        if code:
            raise BrokenInvariant(f"lock: {errno.errorcode[code]}")
        return False

    def release(self) -> None:
        _unlock(self._at)
