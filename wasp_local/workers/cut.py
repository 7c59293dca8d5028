"""The forced sync: the one moment at which a run stands still, led by the coordinator.

    limit reached -> no batch starts -> pushes in flight are applied -> [buffers are joined] ->
    all workers pull one version [and share out the test set] -> whatever needs a still run -> release

The one thing to know: the limit is a batch number, and no batch from it on is given out until the cut is over. So
exactly as many pushes as asked for lie between two cuts, and none is in flight in one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from wasp_local.store.buffers import SharedBuffers
from wasp_local.workers.control_block import ControlBlock, Task, WorkerState
from wasp_local.workers.watch import Crew, Message

__all__ = ["Cuts"]

_TICK = 0.25  # seconds between two looks at the counters for the progress line


class Cuts:
    """Leads the cuts of one run.

    Args:
        control: the run's words.
        crew: the workers; a death among them ends any wait here by `WorkerFailed`.
        buffers: joined in each cut where the model has any.
        on_tick: called some times a second while waiting.
        on_message: called with each message of a worker.
    """

    def __init__(
        self,
        control: ControlBlock,
        crew: Crew,
        buffers: SharedBuffers,
        on_tick: Callable[[], None],
        on_message: Callable[[Message], None],
    ) -> None:
        self._control = control
        self._crew = crew
        self._buffers = buffers
        self._on_tick = on_tick
        self._on_message = on_message
        self._next_tick = 0.0

    def wait_until(self, condition: Callable[[], bool], deadline: float | None = None) -> bool:
        """Hear the workers until `condition` holds; False if the deadline (monotonic seconds) came first."""
        while not condition():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            if now >= self._next_tick:
                self._next_tick = now + _TICK
                self._on_tick()
            until = self._next_tick if deadline is None else min(deadline, self._next_tick)
            for message in self._crew.wait(until - now):
                self._on_message(message)
        return True

    def drained(self) -> bool:
        """No batch may start and none is in flight."""
        control = self._control
        return control.claimed >= control.limit and control.finished() >= control.limit

    def hold(self, evaluate: bool) -> None:
        """From drained to still: every worker has the same buffers and one version, and waits."""
        if self._buffers:
            self._ask(Task.GATHER)
            trained = [
                worker
                for worker, words in enumerate(self._control.workers)
                if words.state == WorkerState.TRAINING and words.clock
            ]
            if trained:
                self._buffers.join(trained)
        if evaluate:
            self._control.open_evaluation()
        self._ask(Task.EVALUATE if evaluate else Task.PULL)

    def release(self, limit: int) -> None:
        """Let the workers go on to `limit`."""
        self._control.set_limit(limit)
        self._control.set_task(Task.RELEASE)

    def _ask(self, task: Task) -> None:
        number = self._control.set_task(task)
        self.wait_until(
            lambda: all(
                words.done >= number for words in self._control.workers if words.state == WorkerState.TRAINING
            )
        )
