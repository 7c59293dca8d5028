"""The live driver of a worker's loop: answers what the loop asks, with real processes, memory and time.

The one thing to know: only three things here may block, the gate, a forced sync and a lock. Each takes
`still_wanted`, which raises when the run is aborted; a worker whose coordinator has died is ended from outside
this loop (see `entry`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from wasp_local.data.plan import BatchPlan
from wasp_local.protocol.loop import (
    Claim,
    Compute,
    Gate,
    LocalStep,
    Opening,
    Pull,
    Push,
    Sync,
    worker_loop,
)
from wasp_local.protocol.rules import Protocol
from wasp_local.store.buffers import SharedBuffers
from wasp_local.store.group import Deposit, Gradient, GradientGroup, reduce_group
from wasp_local.store.replica import LocalOptimizer, Replica
from wasp_local.store.store import ParameterStore
from wasp_local.workers.control_block import NO_LIMIT, ControlBlock, Spent, Stop, Task, WorkerState

__all__ = ["Aborted", "Driver", "Shared", "Span"]


class Aborted(Exception):
    """The coordinator ends the run; never reaches the user."""


class Shared(NamedTuple):
    """The shared state as this process sees it."""

    store: ParameterStore
    control: ControlBlock
    buffers: SharedBuffers
    group: Callable[[Callable[..., None], Callable[[], int]], GradientGroup] | None


class Span(NamedTuple):
    """The batches of one loop over data: numbers `first` .. `first + plan.batches` of the run."""

    first: int
    plan: BatchPlan
    held: bool  # the coordinator says when it ends (Trainer), not the last batch (train_fn)

    @property
    def end(self) -> int:
        """First batch after the span."""
        return self.first + self.plan.batches

    def round_end(self, start: int, size: int, within_epoch: bool) -> int:
        """Where a group of `size` gradients that begins at batch `start` ends."""
        if not within_epoch:
            return NO_LIMIT
        epoch_end = self.first + self.plan.epoch_end(start - self.first)
        return min(start + size, epoch_end, self.end)


class Driver:
    """Runs the loop of worker `worker`; also what the protocol's gate and weight see of the run."""

    def __init__(
        self,
        worker: int,
        protocol: Protocol,
        shared: Shared,
        replica: Replica,
        notify: Callable[[], None],
        evaluate: Callable[[int], tuple[float, int]] | None,
    ) -> None:
        self.worker = worker
        self.workers = shared.control.plan.workers
        self._protocol = protocol
        self._store = shared.store
        self._control = shared.control
        self._buffers = shared.buffers
        self._words = shared.control.workers[worker]
        self._replica = replica
        self._notify = notify
        self._evaluate = evaluate
        self._pulled: tuple[int, ...] = ()
        # A pull that would follow the push at once is made by the push. One that may have to wait for other
        # workers first is not: it would compute on parameters from before the wait.
        self._pulls_on_push = protocol.pull.due(1) and not (protocol.pull.on_store or protocol.gate.waits)
        self._pulled_on_push: tuple[int, ...] = ()
        self._request: Any = None
        self._samples = 0
        self._stepped = False
        self._notified_limit = -1
        self._local = LocalOptimizer(shared.store.plan.recipe, replica) if protocol.pull.local_steps else None
        self._size = protocol.aggregate.gradients(self.workers)
        self._group = shared.group(self._apply_group, self._next_size) if shared.group else None
        self._rounds = self._group is not None and protocol.aggregate.within_epoch
        self._clock_at = time.perf_counter()
        self._answers: dict[type, Callable[[Any], Any]] = {
            Gate: self._gate,
            Claim: self._claim,
            Pull: self._pull,
            Push: self._push,
            LocalStep: self._local_step,
            Sync: self._sync,
        }

    # what gate and weight see

    @property
    def clock(self) -> int:
        """Pushes this worker has finished."""
        return self._words.clock

    @property
    def fewest_clock(self) -> int:
        """Pushes finished by the worker that has finished fewest."""
        return self._control.fewest_clock()

    @property
    def version(self) -> int:
        """Updates of the store so far."""
        return self._store.version()

    @property
    def claimed(self) -> int:
        """Batches claimed so far by all workers."""
        return self._control.claimed

    @property
    def round_end(self) -> int:
        """First batch that does not belong to the present group."""
        return self._control.round_end

    def share_fresher(self, tau: int) -> float:
        """Share of all pushes so far that were fresher than `tau`, those equal to it counting half."""
        fresher = equal = total = 0
        for words in self._control.workers:
            fresher += sum(words.bins[:tau])
            equal += words.bins[tau] if tau < len(words.bins) else 0
            total += sum(words.bins)
        return (fresher + equal / 2) / total if total else 0.5

    # a loop over batches

    def batches(self, span: Span) -> Iterator[int]:
        """Yield the batches this worker claims; `finish_batch` is to be called for each, else it is skipped."""
        self._enter(span)
        self._loop = worker_loop(self._protocol.pull)
        self._request = next(self._loop)
        try:
            while True:
                while not isinstance(self._request, Compute):
                    self._request = self._loop.send(self._answer(self._request))
                self._stepped = False
                self._samples = span.plan.size_of(self._request.batch - span.first)
                yield self._request.batch
                if not self._stepped:
                    self._finish()
        except StopIteration:
            pass
        finally:
            if isinstance(self._request, Compute) and not self._stepped:
                self._skip(self._request.batch)
            self._words.state = WorkerState.ABSENT
            self._ring()

    def require_batch(self) -> None:
        """Raise unless a batch has been handed out and not been stepped."""
        if not isinstance(self._request, Compute) or self._stepped:
            raise RuntimeError("worker.step(loss) must be called once for each batch of worker.batches(...)")

    def finish_batch(self, loss: float) -> None:
        """The gradient of the present batch is in the replica: push it."""
        self._stepped = True
        self._loss = loss
        self.lap(Spent.COMPUTE)
        self._finish()

    def leave(self) -> None:
        """This worker will train no more."""
        if self._group and not self._rounds:
            self._group.flush()
        if self._buffers:
            self._buffers.lay_down(self.worker)
        self._words.state = WorkerState.LEFT
        self._ring()

    def _enter(self, span: Span) -> None:
        self._pulled_on_push = ()  # from before whatever happened between two loops
        self._control.bell.wait(lambda: self._may_begin(span.first), self._still_wanted)
        with self._control.beginning_a_loop():
            self._begin(span)
        self._span = span
        task = self._control.task[0]
        if task != self._words.done:
            self._buffers.take_up(keep_growth=True)
            self._words.done = task
        self._words.state = WorkerState.TRAINING
        self.lap(Spent.WAIT)

    def _may_begin(self, first: int) -> bool:
        """Whether the loop whose batches begin at `first` may: no group may hold batches of two loops."""
        control = self._control
        if control.claimed < first:  # batches before it are left, for those who are still in that loop
            return not control.others_train(self.worker)
        return not self._rounds or control.round_end > first or control.finished() >= first

    def _begin(self, span: Span) -> None:
        """Begin a loop unless another worker did so already; under the lock for that."""
        if self._rounds and self._group and self._control.round_end <= span.first:
            self._group.flush()  # what all workers left of the loop before
        self._control.forfeit_before(span.first)
        if self._rounds and self._group:
            end = span.round_end(span.first, self._size, within_epoch=True)
            self._control.open_round(span.first, end, self._group.open)

    def _finish(self) -> None:
        request = self._loop.send(None)
        while not isinstance(request, Gate):
            request = self._loop.send(self._answer(request))
        self._request = request

    def _answer(self, request: Any) -> Any:
        return self._answers[type(request)](request)

    def lap(self, spent: Spent) -> None:
        """Book the time since the last call under `spent`."""
        now = time.perf_counter()
        self._words.spend(spent, now - self._clock_at)
        self._clock_at = now

    # answers

    def _gate(self, _: Gate) -> Opening:
        # The answer that ended the wait, not another look: by then it may have to wait again.
        opening: Opening | None = None

        def opens() -> bool:
            nonlocal opening
            opening = self._opening()
            return opening is not None

        self._control.bell.wait(opens, self._still_wanted)
        assert opening is not None
        self.lap(Spent.WAIT)
        return opening

    def _opening(self) -> Opening | None:
        """What the gate answers now; None: wait."""
        control = self._control
        self._still_wanted()
        number, task = control.task
        if number != self._words.done and task != Task.RELEASE:
            return Opening.SYNC
        claimed = control.claimed
        if control.stop == Stop.FINISH or (claimed >= self._span.end and not self._span.held):
            return Opening.END
        if claimed >= control.limit:
            self._notify_once(control.limit)
            return None
        return Opening.START if self._protocol.gate.may_start(self) else None

    def _notify_once(self, limit: int) -> None:
        """Nothing of this worker is in flight and nothing may start: let the coordinator look."""
        if limit != self._notified_limit:
            self._notified_limit = limit
            self._notify()

    def _claim(self, _: Claim) -> int | None:
        end = NO_LIMIT if self._span.held else self._span.end
        return self._control.claim(self.worker, end)

    def _pull(self, _: Pull) -> None:
        if self._pulled_on_push:
            self._pulled, self._pulled_on_push = self._pulled_on_push, ()
        elif self._protocol.pull.on_store:
            self._pulled = self._store.versions()
        else:
            self._pulled = self._store.pull(self._replica.flats)
        self.lap(Spent.PULL)

    def _push(self, request: Push) -> None:
        if not self._stepped:
            self._skip(request.batch)
            return
        gradient = self._replica.gradients()
        if self._group:
            note = Deposit(request.batch, self._samples, self._pulled[0])
            self._group.deposit(gradient, note, self._words.commit)
        else:
            refresh = self._replica.flats if self._pulls_on_push else None
            self._pulled_on_push = self._store.push(
                gradient, self._pulled[0], self._weigh, self._commit, self.worker, refresh
            )
        self._words.note_trained(self._samples, self._loss)
        self._ring()
        self.lap(Spent.PUSH)

    def _skip(self, batch: int) -> None:
        """Be done with a batch that was not stepped; a group that counts on it gets a gradient of no samples."""
        if self._group:
            nothing = [[None] * len(plan.slots) for plan in self._replica.plans]
            self._group.deposit(nothing, Deposit(batch, 0, self._pulled[0]), self._words.skip)
        else:
            self._words.skip()
        self._ring()

    def _local_step(self, _: LocalStep) -> None:
        assert self._local is not None
        schedule = self._store.schedule
        groups = range(len(self._store.plan.recipe.groups))
        settings = [schedule.at(self.clock - 1, group) for group in groups]
        self._local.step(self._replica.gradients(), settings)
        self.lap(Spent.PUSH)

    def _sync(self, _: Sync) -> None:
        """Do what the coordinator asks, task by task, until it releases all workers."""
        while True:
            number, task = self._control.task
            if number != self._words.done:
                self._do(Task(task))
                self._words.done = number
                if task == Task.RELEASE:
                    return
                self._notify()
            self._control.bell.wait(self._another_task, self._still_wanted)
            self.lap(Spent.WAIT)

    def _another_task(self) -> bool:
        return self._control.task[0] != self._words.done

    def _do(self, task: Task) -> None:
        if task == Task.GATHER:
            self._buffers.lay_down(self.worker)
        elif task in (Task.PULL, Task.EVALUATE):
            if self._group:
                self._group.flush()
            self._pulled_on_push = ()
            self._pull(Pull())
            self._buffers.take_up()
            if task == Task.EVALUATE:
                self._share_evaluation()

    def _share_evaluation(self) -> None:
        assert self._evaluate is not None
        while (batch := self._control.claim_test_batch()) is not None:
            loss, correct = self._evaluate(batch)
            self._control.test_losses[batch] = loss
            self._control.test_correct[batch] = correct
        self.lap(Spent.EVALUATE)

    # pushing

    def _weigh(self, tau: int) -> float:
        return self._protocol.weight(tau, self)

    def _commit(self, tau: int, weight: float) -> None:
        self._words.commit()
        self._words.note_applied(tau, weight)

    def _apply_group(self, notes: Sequence[Deposit], gradients: Sequence[Gradient]) -> None:
        version = self._store.version()
        taus = [version - note.pulled for note in notes]
        weights = [self._weigh(tau) for tau in taus]
        gradient, weight = reduce_group(notes, gradients, weights)
        self._store.push(gradient, version, lambda _: weight, _nothing_to_commit, self.worker)
        for note, tau, each in zip(notes, taus, weights, strict=True):
            if note.samples:
                self._words.note_applied(tau, each)

    def _next_size(self) -> int:
        if not self._protocol.aggregate.within_epoch:
            return self._size
        start = self._control.round_end
        if start >= self._span.end:
            return 0
        end = self._span.round_end(start, self._size, within_epoch=True)
        self._control.set_round_end(end)
        return end - start

    def _ring(self) -> None:
        self._control.bell.fence()
        self._control.bell.ring()

    def _still_wanted(self) -> None:
        if self._control.stop == Stop.ABORT:
            raise Aborted


def _nothing_to_commit(tau: int, weight: float) -> None:
    """The deposits of a group have committed the batches; applying it commits no more."""
