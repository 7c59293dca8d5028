"""Waiting until words in shared memory say what one waits for, and waking those who wait.

word    | written by     | read by  | order relied on                    | after a kill it means
rings   | holder of lock | waiters  | changed before the wake            | -
waiting | holder of lock | ringers  | raised before a waiter looks again | may stay one too high: a needless wake

The one thing to know: no wake is lost. A waiter raises `waiting`, notes `rings`, looks at its condition again and
sleeps only while `rings` is what it noted. A ringer changes the words that the condition reads, passes a full barrier
(`fence`), and reads `waiting`. Either the ringer sees the waiter and rings, which ends the sleep, or the waiter
raised `waiting` after the ringer's barrier and so sees the changed words. Should this reasoning fail on some
machine, a waiter still looks again ten times a second.

A ring that nobody waits for costs one read; a barrier 0.8 us.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable

from wasp_local.shm.mutex import RobustMutex, Timespec
from wasp_local.shm.segment import Segment

__all__ = ["Bell"]

_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0)  # the system call's number
_WAIT, _WAKE, _EVERYBODY = 0, 1, 2**31 - 1
_RINGS, _WAITING = 0, 1
_LOCK_AT, _FENCE_AT = 64, 128
_syscall = ctypes.CDLL(None).syscall
_syscall.restype = ctypes.c_long


class Bell:
    """Something to wait at, at a place in a segment.

    Args:
        segment: stays mapped as long as this object.
        offset: where the bell's `SIZE` bytes begin.
    """

    SIZE = 192

    def __init__(self, segment: Segment, offset: int) -> None:
        self._words = segment.words(offset, 2)
        self._at = ctypes.c_void_p(segment.address(offset))
        self._lock = RobustMutex(segment, offset + _LOCK_AT)
        self._fence = RobustMutex(segment, offset + _FENCE_AT)

    def initialise(self) -> None:
        """Make the bell; once, by the process that made the segment, before any other attaches."""
        self._lock.initialise()
        self._fence.initialise()

    def fence(self) -> None:
        """A full barrier: what this process wrote before is seen before what it reads after."""
        self._fence.acquire(_go_on)
        self._fence.release()

    def ring(self) -> None:
        """Wake all who wait; call `fence` between changing what they wait for and this."""
        if not self._words[_WAITING]:
            return
        self._lock.acquire(_go_on)  # a holder that died left at most `waiting` wrong
        self._words[_RINGS] = (self._words[_RINGS] + 1) % 2**31
        self._lock.release()
        _syscall(_FUTEX, self._at, _WAKE, _EVERYBODY, None, None, 0)

    def wait(
        self, condition: Callable[[], bool], still_wanted: Callable[[], None], slice_seconds: float = 0.1
    ) -> None:
        """Return when `condition` holds.

        Args:
            condition: reads words in shared memory; called before each sleep.
            still_wanted: called after each sleep; raises to give up.
            slice_seconds: the longest sleep.
        """
        if condition():
            return
        self._count(1)
        try:
            while True:
                rings = self._words[_RINGS]
                if condition():
                    return
                for_at_most = Timespec.of(slice_seconds)
                _syscall(_FUTEX, self._at, _WAIT, ctypes.c_int(rings), ctypes.byref(for_at_most), None, 0)
                still_wanted()
        finally:
            self._count(-1)

    def _count(self, step: int) -> None:
        self._lock.acquire(_go_on)
        self._words[_WAITING] += step
        self._lock.release()


def _go_on() -> None:
    """The bell's own locks are held for a few instructions: there is nothing to give up for."""
