"""A worker's loop, once: a generator that asks and is answered.

    Gate -> START -> Claim -> [Pull] -> Compute -> Push -> [LocalStep] -> Gate -> ...
    Gate -> SYNC  -> Sync  -> Gate -> ...
    Gate -> END

The one thing to know: it decides nothing that depends on memory, processes or time. A live run, a replay and a
simulation each answer the same requests in their own way.
"""

from __future__ import annotations

import enum
from collections.abc import Generator
from typing import Any, NamedTuple

from wasp_local.protocol.rules import PullRule

__all__ = [
    "Claim",
    "Compute",
    "Gate",
    "LocalStep",
    "Opening",
    "Pull",
    "Push",
    "Request",
    "Sync",
    "worker_loop",
]


class Opening(enum.Enum):
    """How the gate answers."""

    START = "a batch may start"
    SYNC = "a forced sync is on"
    END = "there is no more to do"


class Gate(NamedTuple):
    """May I start a batch? Answered by an `Opening`; the one request that may wait for other workers."""


class Claim(NamedTuple):
    """Give me a batch. Answered by its number, or None if another worker took the last one."""


class Pull(NamedTuple):
    """Refresh my copy."""


class Compute(NamedTuple):
    """Compute the gradient of a batch."""

    batch: int


class Push(NamedTuple):
    """Push the gradient of a batch."""

    batch: int


class LocalStep(NamedTuple):
    """Step my own copy by the gradient just pushed."""


class Sync(NamedTuple):
    """Take part in a forced sync: pull one version with all others."""


Request = Gate | Claim | Pull | Compute | Push | LocalStep | Sync


def worker_loop(pull: PullRule) -> Generator[Request, Any, None]:
    """The loop of one worker; it waits before it claims, so that nobody holds a batch while held up."""
    steps: int | None = None  # computed on the present copy; None: there is no copy yet
    while True:
        opening = yield Gate()
        if opening is Opening.END:
            return
        if opening is Opening.SYNC:
            yield Sync()
            steps = 0
            continue
        batch = yield Claim()
        if batch is None:
            continue
        if steps is None or pull.due(steps):
            yield Pull()
            steps = 0
        yield Compute(batch)
        yield Push(batch)
        steps += 1
        if pull.local_steps:
            yield LocalStep()  # also where a pull follows: the worker's own optimizer must not miss a gradient
