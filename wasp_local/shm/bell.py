"""Waiting until words in shared memory say what one waits for, and waking those who wait.

word    | written by     | read by  | order relied on                    | after a kill it means
lock    | holder         | all      | orders the other two, see below    | freed by the kernel
rings   | holder of lock | waiters  | raised before the wake             | -
waiting | holder of lock | ringers  | raised before a waiter looks again | may stay too high: a needless wake

The one thing to know: no wake is lost. A ringer changes the words that the condition reads, passes through the lock
(`fence`), and reads `waiting`. A waiter raises `waiting` and notes `rings` under the same lock, looks at its condition
again, and sleeps only while `rings` is what it noted. One of the two held the lock first:

- the ringer: then the waiter, who took the lock after it, sees the changed words and doesn't sleep;
- the waiter: then the ringer sees it waiting and raises `rings`. If the waiter noted the new `rings`, under the lock,
  it sees the changed words too; if the old, the kernel doesn't let it sleep, or the wake ends its sleep.

This rests on what a lock promises on every machine, and on no order of plain loads and stores. Should it fail all the
same, a waiter still looks again ten times a second.

Cost: a ring that nobody waits for is one read, 0.06 us; a fence 0.7 us; a ring that wakes 2 us and more.

This code assumes: Linux on x86-64 or aarch64, little-endian: the kernel looks at the low half of `rings`.
What doesn't work: while a process is stopped (SIGSTOP) in the few instructions that it holds the lock, others wait
for it and cannot give up.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable

from wasp_local.shm.mutex import RobustMutex, Timespec
from wasp_local.shm.segment import Segment

__all__ = ["Bell"]

_FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98}  # of the system call
_WAIT, _WAKE, _EVERYBODY = 0, 1, 2**31 - 1
_RINGS, _WAITING = 0, 1
_LOCK_AT = 64


def _futex_number(machine: str) -> int:
    if machine not in _FUTEX_NUMBERS:
        raise ImportError(
            f"wasp_local waits by Linux's futex on {' or '.join(_FUTEX_NUMBERS)}, this machine is {machine!r}"
        )
    return _FUTEX_NUMBERS[machine]


_FUTEX = _futex_number(platform.machine())
_syscall = ctypes.CDLL(None).syscall  # without the interpreter's lock: it may sleep
_syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(Timespec)]
_syscall.restype = ctypes.c_long


class Bell:
    """Something to wait at, at a place in a segment.

    Args:
        segment: stays mapped as long as this object.
        offset: where the bell's `SIZE` bytes begin.
    """

    SIZE = 128

    def __init__(self, segment: Segment, offset: int) -> None:
        self._words = segment.words(offset, 2)
        self._at = ctypes.c_void_p(segment.address(offset))
        self._lock = RobustMutex(segment, offset + _LOCK_AT)

    def initialise(self) -> None:
        """Make the bell; once, by the process that made the segment, before any other attaches."""
        self._lock.initialise()

    def fence(self) -> None:
        """Order what this process wrote before against every waiter: it sees that, or `ring` sees it waiting."""
        self._lock.acquire(_go_on)
        self._lock.release()

    def ring(self) -> None:
        """Wake all who wait; call `fence` between changing what they wait for and this."""
        if not self._words[_WAITING]:
            return
        self._lock.acquire(_go_on)  # a holder that died left at most `waiting` wrong
        self._words[_RINGS] = (self._words[_RINGS] + 1) % 2**31
        self._lock.release()
        _syscall(_FUTEX, self._at, _WAKE, _EVERYBODY, None)

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
        for_at_most = Timespec.of(slice_seconds)
        rings = self._rings(joining=1)
        try:
            while not condition():
                _syscall(_FUTEX, self._at, _WAIT, rings, ctypes.byref(for_at_most))
                still_wanted()
                rings = self._rings()
        finally:
            self._rings(joining=-1)

    def _rings(self, joining: int = 0) -> int:
        """How often it rang, read under the lock; on the way one waiter more or less."""
        self._lock.acquire(_go_on)
        self._words[_WAITING] += joining
        rings = self._words[_RINGS]
        self._lock.release()
        return rings


def _go_on() -> None:
    """The bell's own lock is held for a few instructions: there is nothing to give up for."""
