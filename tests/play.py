"""A run in one process and no time: worker loops in whatever order a test picks, on counters instead of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wasp_local.protocol import Protocol
from wasp_local.protocol.loop import Claim, Compute, Gate, LocalStep, Opening, Pull, Push, Sync, worker_loop

NO_LIMIT = 2**62


class Computed(NamedTuple):
    """One gradient: of which batch, by whom, at which version, and the staleness at which it was pushed."""

    batch: int
    worker: int
    version: int
    tau: int


@dataclass
class Run:
    """What workers share."""

    protocol: Protocol
    workers: int
    batches: int
    epoch: int
    claimed: int = 0
    version: int = 0
    round_end: int = NO_LIMIT
    clocks: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    computed: list[Computed] = field(default_factory=list)
    syncs: list[int] = field(default_factory=list)  # pushes at each
    furthest_ahead: int = 0

    def __post_init__(self) -> None:
        self.clocks = [0] * self.workers
        self.size = self.protocol.aggregate.gradients(self.workers)
        self.in_rounds = self.size > 1 and self.protocol.aggregate.within_epoch
        self.limit = self.next_limit(0)
        if self.in_rounds:
            self.open_round(0)

    def next_limit(self, at: int) -> int:
        pushes = self.protocol.sync.pushes
        return self.batches if pushes is None else min(self.batches, at + pushes)

    def open_round(self, start: int) -> None:
        self.round_end = min(start + self.size, (start // self.epoch + 1) * self.epoch, self.batches)

    def push(self) -> None:
        self.group.append(self.version)
        full = self.round_end - sum(self.clocks) == 0 if self.in_rounds else len(self.group) == self.size
        if full:
            self.apply()

    def apply(self) -> None:
        if self.group:
            self.version += 1
            self.group.clear()
        if self.in_rounds and self.round_end < self.batches:
            self.open_round(self.round_end)


class Worker:
    """One loop, and what its gate sees."""

    def __init__(self, run: Run, number: int) -> None:
        self.run, self.number = run, number
        self.version = -1
        self.synced = 0
        self.ended = False
        self.loop = worker_loop(run.protocol.pull)
        self.request = next(self.loop)

    clock = property(lambda self: self.run.clocks[self.number])
    fewest_clock = property(lambda self: min(self.run.clocks))
    claimed = property(lambda self: self.run.claimed)
    round_end = property(lambda self: self.run.round_end)

    def opening(self) -> Opening | None:
        run = self.run
        if self.synced < len(run.syncs):
            return Opening.SYNC
        if run.claimed >= run.batches:
            return Opening.END
        if run.claimed >= run.limit:
            return None
        return Opening.START if run.protocol.gate.may_start(self) else None

    def can_move(self) -> bool:
        return not self.ended and (not isinstance(self.request, Gate) or self.opening() is not None)

    def move(self) -> None:
        """Answer the request that stands."""
        answers: dict[type, Callable[[Any], Any]] = {
            Gate: lambda _: self.opening(),
            Claim: self.claim,
            Pull: self.pull,
            Compute: lambda _: None,
            Push: self.push,
            LocalStep: lambda _: None,
            Sync: self.sync,
        }
        try:
            self.request = self.loop.send(answers[type(self.request)](self.request))
        except StopIteration:
            self.ended = True

    def claim(self, _: Claim) -> int | None:
        run = self.run
        if run.claimed >= min(run.limit, run.round_end):
            return None
        run.claimed += 1
        run.furthest_ahead = max(run.furthest_ahead, self.clock - self.fewest_clock)
        return run.claimed - 1

    def pull(self, _: object) -> None:
        self.version = self.run.version

    def push(self, request: Push) -> None:
        run = self.run
        run.computed.append(Computed(request.batch, self.number, self.version, run.version - self.version))
        run.clocks[self.number] += 1
        run.push()

    def sync(self, _: Sync) -> None:
        self.synced += 1
        self.pull(_)


def play(run: Run, pick: Callable[[int], int]) -> list[Worker]:
    """Move workers until all have ended; `pick(n)` chooses among those n that can."""
    workers = [Worker(run, number) for number in range(run.workers)]
    while not all(worker.ended for worker in workers):
        movable = [worker for worker in workers if worker.can_move()]
        if movable:
            movable[pick(len(movable))].move()
        else:  # all wait: nothing is in flight, and a forced sync is due
            assert sum(run.clocks) == run.claimed == run.limit, "everybody waits for ever"
            run.apply()
            run.syncs.append(run.claimed)
            run.limit = run.next_limit(run.claimed)
    return workers
