"""One run from start to end: starts the workers, leads the forced syncs, hears what comes back, ends them.

    start -> [ wait until the limit is reached -> cut -> release ]* -> finish -> all have returned

The one thing to know: the coordinator sleeps but for cuts, messages and a glance at the counters four times a
second. It computes no gradient and stands in no push's way.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from wasp_local.protocol import Protocol
from wasp_local.workers import payload
from wasp_local.workers.control_block import NO_LIMIT, Stop, Task
from wasp_local.workers.cut import Cuts
from wasp_local.workers.entry import Job
from wasp_local.workers.setup import SharedState
from wasp_local.workers.topology import Placement
from wasp_local.workers.watch import Crew, Message, Output

__all__ = ["Coordinator", "Hooks", "Ready", "Road"]

_GRACE = 3.0  # seconds an aborted worker has to finish its step


class Road(NamedTuple):
    """Where along the batches of a run the cuts lie."""

    total: int | None  # batches of the run; None: as many as the workers' train_fn takes
    epoch_end: Callable[[int], int] | None  # first batch of the next epoch, where epochs end in a cut
    evaluates: bool  # whether there is a test set to see at those

    def next_limit(self, at: int, sync_pushes: int | None) -> int:
        """The first cut after batch number `at`."""
        candidates = [NO_LIMIT if self.total is None else self.total]
        if sync_pushes is not None:
            candidates.append(at + sync_pushes)
        if self.epoch_end is not None:
            candidates.append(self.epoch_end(at))
        return min(candidates)

    def is_visit(self, at: int, before: int) -> bool:
        """Whether the cut at batch number `at`, the next after `before`, is an epoch's or the run's end."""
        return self.epoch_end is not None and at in (self.total, self.epoch_end(before))


class Ready(NamedTuple):
    """What a worker said when it could start."""

    pid: int
    cores: tuple[int, ...]
    threads: int


class Hooks(NamedTuple):
    """What the coordinator tells while a run goes on."""

    on_tick: Callable[[], None]
    on_visit: Callable[[], bool]  # at an epoch's or the run's end, in a cut; returns whether to go on
    output: Output


class Coordinator:
    """Leads one run.

    Attributes:
        ready: what each worker said when it could start.
        returned: what each worker's train_fn returned.
        started: `time.perf_counter()` when all workers could start.
        ended: the same when the run last stood still, or ended.
        syncs: forced syncs so far.
    """

    def __init__(
        self, state: SharedState, protocol: Protocol, road: Road, start_method: str, hooks: Hooks
    ) -> None:
        self._state = state
        self._protocol = protocol
        self._road = road
        self._hooks = hooks
        self.ready: dict[int, Ready] = {}
        self.returned: dict[int, Any] = {}
        self.started = time.perf_counter()
        self.ended = self.started
        self.syncs = 0
        self._crew = Crew(start_method, hooks.output, lambda worker: state.control.workers[worker].pushes)
        self._cuts = Cuts(state.control, self._crew, state.buffers, hooks.on_tick, self._hear)

    def run(self, job: Job, placement: Placement) -> None:
        """Start the workers, lead the run to its end, and leave no process.

        Raises:
            WorkerFailed: a worker raised, exited or was killed.
        """
        control = self._state.control
        try:
            sent = payload.dump(job)
            try:
                self._crew.start(placement, sys.path, sent, self._state.segment)
            finally:
                sent.close()
            # Until then the limit is 0: else the first worker to come could do a short run alone.
            self._cuts.wait_until(lambda: len(self.ready) == len(control.workers))
            self.started = time.perf_counter()
            self._cuts.release(self._road.next_limit(0, self._protocol.sync.pushes))
            self._lead()
        except BaseException:
            control.set_stop(Stop.ABORT)
            raise
        finally:
            self._crew.close(_GRACE)
            # They refer to each other in a circle, and to the shared memory: without this it would be freed late.
            del self._crew, self._cuts, self._hooks

    def _lead(self) -> None:
        at = 0
        while not self._reach_limit():
            before, at = at, self._state.control.limit
            visit = self._road.is_visit(at, before)
            self._cuts.hold(evaluate=visit and self._road.evaluates)
            self.syncs += 1
            self.ended = time.perf_counter()
            goes_on = self._hooks.on_visit() if visit else True
            if not goes_on or at == self._road.total:
                self._state.control.set_stop(Stop.FINISH)
                self._state.control.set_task(Task.RELEASE)
                self._cuts.wait_until(self._all_returned)
                return
            self._cuts.release(self._road.next_limit(at, self._protocol.sync.pushes))
        self.ended = time.perf_counter()

    def _reach_limit(self) -> bool:
        """Wait for the next cut, which is due by pushes or by time; True if all workers returned instead."""
        seconds = self._protocol.sync.seconds
        deadline = None if seconds is None else time.monotonic() + seconds
        if not self._cuts.wait_until(lambda: self._cuts.drained() or self._all_returned(), deadline):
            self._state.control.set_limit(None)
            self._cuts.wait_until(lambda: self._cuts.drained() or self._all_returned())
        return self._all_returned()

    def _all_returned(self) -> bool:
        return len(self.returned) == len(self._state.control.workers)

    def _hear(self, message: Message) -> None:
        if message.kind == "ready":
            pid, cores, threads = message.values
            self.ready[message.worker] = Ready(pid, tuple(cores), threads)
        elif message.kind == "returned":
            self.returned[message.worker] = message.values[0]
