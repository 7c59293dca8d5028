"""A lock between processes that the kernel frees when its holder dies, and says so to the next.

word  | written by    | read by | order relied on                    | after a kill it means
mutex | the C library | all     | freed after all that was written   | held by nobody, and its next
      |               |         | under it, taken before any of that | holder is told
      |               |         | is read                            |

The one thing to know: it is a robust, process-shared pthread mutex laid into the segment, and it tells its next
holder whenever what it guards may be half-changed: when the last holder was killed, and also when this thread holds
it already, left so by an exception (Ctrl-C) that came between taking and freeing it. No Python code can shut that
gap, since a signal's handler may run right after the call that takes the lock.

Cost, uncontended: acquire and release 0.7 us, four fifths of it Python calling C.

This code assumes: 64-bit Linux with robust mutexes (glibc 2.12 or later), and 64 bytes for a pthread_mutex_t (it
has 40 on x86-64 and 48 on aarch64). Before glibc 2.30 a slice of waiting is measured by the wall clock, so setting
that back makes one wait longer.

What doesn't work: more than 2,048 locks held by one thread as it dies; the kernel frees no more.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Callable
from typing import Any

from wasp_local.errors import BrokenInvariant
from wasp_local.shm.segment import Segment

__all__ = ["RobustMutex", "Timespec"]

_SLICE_SECONDS = 0.2  # between two looks at whether the lock is still wanted
_PROCESS_SHARED, _ROBUST, _ERRORCHECK = 1, 1, 2  # glibc's pthread.h


class Timespec(ctypes.Structure):
    """C's struct timespec on 64-bit Linux."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    @classmethod
    def of(cls, seconds: float) -> Timespec:
        """The same length of time."""
        return cls(int(seconds), int(seconds % 1 * 1e9))


def _bind(library: Any, name: str, *arguments: Any) -> Any:
    try:
        function = getattr(library, name)
    except AttributeError:
        raise ImportError(
            f"wasp_local's locks need Linux with glibc 2.12 or later: the C library here has no {name}"
        ) from None
    function.argtypes = list(arguments)
    function.restype = ctypes.c_int
    return function


# The quick calls keep the interpreter's lock: giving it up and taking it back would cost more than they do.
_quick, _blocking = ctypes.PyDLL(None), ctypes.CDLL(None)
_trylock = _bind(_quick, "pthread_mutex_trylock", ctypes.c_void_p)
_unlock = _bind(_quick, "pthread_mutex_unlock", ctypes.c_void_p)
_consistent = _bind(_quick, "pthread_mutex_consistent", ctypes.c_void_p)
_init = _bind(_quick, "pthread_mutex_init", ctypes.c_void_p, ctypes.c_void_p)
_attributes_init = _bind(_quick, "pthread_mutexattr_init", ctypes.c_void_p)
_set_shared = _bind(_quick, "pthread_mutexattr_setpshared", ctypes.c_void_p, ctypes.c_int)
_set_robust = _bind(_quick, "pthread_mutexattr_setrobust", ctypes.c_void_p, ctypes.c_int)
_set_type = _bind(_quick, "pthread_mutexattr_settype", ctypes.c_void_p, ctypes.c_int)
_timedlock = _bind(_blocking, "pthread_mutex_timedlock", ctypes.c_void_p, ctypes.POINTER(Timespec))
_clocklock = (
    _bind(_blocking, "pthread_mutex_clocklock", ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(Timespec))
    if hasattr(_blocking, "pthread_mutex_clocklock")
    else None
)


def _lock_for_a_slice(at: ctypes.c_void_p) -> int:
    """Wait for the lock, without the interpreter's, for `_SLICE_SECONDS` at most."""
    if _clocklock is None:
        return int(_timedlock(at, ctypes.byref(Timespec.of(time.time() + _SLICE_SECONDS))))
    until = Timespec.of(time.monotonic() + _SLICE_SECONDS)
    return int(_clocklock(at, time.CLOCK_MONOTONIC, ctypes.byref(until)))


class RobustMutex:
    """The lock at a place in a segment.

    Args:
        segment: stays mapped as long as this object.
        offset: where the lock's `SIZE` bytes begin.
    """

    SIZE = 64

    def __init__(self, segment: Segment, offset: int) -> None:
        self._memory = segment.memory()
        self._at = ctypes.c_void_p(segment.address(offset))

    def initialise(self) -> None:
        """Make the lock; once, by the process that made the segment, before any other attaches."""
        attributes = ctypes.create_string_buffer(64)
        _must_be_zero("pthread_mutexattr_init", _attributes_init(attributes))
        _must_be_zero("pthread_mutexattr_setpshared", _set_shared(attributes, _PROCESS_SHARED))
        _must_be_zero("pthread_mutexattr_setrobust", _set_robust(attributes, _ROBUST))
        _must_be_zero("pthread_mutexattr_settype", _set_type(attributes, _ERRORCHECK))
        _must_be_zero("pthread_mutex_init", _init(self._at, attributes))

    def acquire(self, still_wanted: Callable[[], None]) -> bool:
        """Take the lock.

        Args:
            still_wanted: called five times a second while another holds it; raises to give up.

        Returns:
            Whether what it guards may be half-changed: its former holder died holding it, or this thread holds it
            already.

        Raises:
            BrokenInvariant: the memory is no lock (any more).
        """
        code = _trylock(self._at)
        if code == 0:
            return False
        while code in (errno.EBUSY, errno.ETIMEDOUT):
            code = _lock_for_a_slice(self._at)
            if code == errno.ETIMEDOUT:
                still_wanted()
        if code == errno.EOWNERDEAD:
            _consistent(self._at)
        elif code not in (0, errno.EDEADLK):
            raise BrokenInvariant(f"a lock in shared memory could not be taken: {os.strerror(code)}")
        return bool(code)

    def release(self) -> None:
        """Free the lock; only its holder may."""
        code = _unlock(self._at)
        if code:
            raise BrokenInvariant(f"a lock in shared memory could not be freed: {os.strerror(code)}")


def _must_be_zero(what: str, code: int) -> None:
    if code:
        raise OSError(code, f"{what}: {os.strerror(code)}")
