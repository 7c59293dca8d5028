"""The words by which workers and coordinator run together: claims, clocks, cuts, and what each worker reports.

The one thing to know: nearly every word has one writer. The few that have several (claims) are written under one
lock. A worker's clock is the word that commits its push: stored when the update is whole, it says at once that
the push took effect and that the batch it claimed has been trained.

word           | written by         | read by     | order relied on               | after a kill it means
STOP           | coordinator        | workers     | -                             | -
loop lock      | holder             | workers     | taken before any other lock   | a loop may be half begun
CLAIMED        | holder of the lock | all         | after the claimer's own words | batches given out
LIMIT          | holder of the lock | claimers    | -                             | may be given out before a cut
ROUND_END      | holder of the lock | claimers    | -                             | may be given out before an update
EXAMINED       | holder of the lock | claimers    | -                             | test batches given out
FORFEITED      | holder of the lock | coordinator | -                             | given out to nobody, and done with
TASK           | coordinator        | workers     | one word: number and task     | what the cut asks for
clock[i]       | worker i           | gates, all  | after its push is whole       | pushes of i that took effect
batch[i]       | worker i           | coordinator | before claims[i]              | the batch of i's latest claim
claims[i]      | worker i           | coordinator | before CLAIMED                | > clock[i]: batch[i] is untrained
state[i]       | worker i           | gates, cuts | -                             | -
done[i]        | worker i           | coordinator | after the task is done        | tasks that i has done
samples[i] ... | worker i           | reports     | none: they only report        | may be one push behind
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from wasp_local.errors import BrokenInvariant
from wasp_local.shm.arena import Arena
from wasp_local.shm.bell import Bell
from wasp_local.shm.mutex import RobustMutex
from wasp_local.shm.segment import Segment

__all__ = [
    "NO_LIMIT",
    "TAU_BINS",
    "ControlBlock",
    "ControlPlan",
    "Spent",
    "Stop",
    "Task",
    "WorkerState",
    "WorkerWords",
    "plan_control",
]

NO_LIMIT = 2**62
TAU_BINS = 1024  # staleness is counted exactly up to here, anything larger in the last bin


class Stop(enum.IntEnum):
    """What the coordinator wants of the workers at large."""

    RUN = 0
    FINISH = 1  # end at the gate
    ABORT = 2  # leave any wait at once


class Task(enum.IntEnum):
    """What a worker does in a forced sync, one after the other as the coordinator asks."""

    RELEASE = 0  # the sync is over
    GATHER = 1  # lay down the buffers
    PULL = 2  # pull parameters and buffers
    EVALUATE = 3  # the same, then share out the test batches


class WorkerState(enum.IntEnum):
    """Whether gates and syncs count on a worker."""

    STARTING = 0
    TRAINING = 1
    ABSENT = 2  # in the user's code, between two loops over batches
    LEFT = 3


class _Global(enum.IntEnum):
    STOP = 0
    CLAIMED = 1
    LIMIT = 2
    ROUND_END = 3
    EXAMINED = 4
    TASK = 5
    FORFEITED = 6


class _Row(enum.IntEnum):
    CLOCK = 0
    CLAIMS = 1
    BATCH = 2
    STATE = 3
    DONE = 4
    SAMPLES = 5
    DROPPED = 6
    APPLIED = 7  # pushes whose staleness stands in this worker's histogram
    SKIPPED = 8  # batches that train_fn took and did not step


class Spent(enum.IntEnum):
    """What a worker's time goes to."""

    DATA = 1
    PULL = 2
    COMPUTE = 3
    PUSH = 4
    WAIT = 5
    EVALUATE = 6


_LOSS_SUM = 0  # beside the times: the training loss summed over samples
_ROW_WORDS, _ROW_REALS = 16, 8  # two cache lines and one


class ControlPlan(NamedTuple):
    """Where the words lie."""

    lock: int
    loop_lock: int
    bell: int
    words: int
    rows: int
    reals: int
    histograms: int
    test_losses: int
    test_correct: int
    workers: int
    test_batches: int


def plan_control(arena: Arena, workers: int, test_batches: int) -> ControlPlan:
    """Reserve the block's bytes."""
    return ControlPlan(
        lock=arena.take(RobustMutex.SIZE),
        loop_lock=arena.take(RobustMutex.SIZE),
        bell=arena.take(Bell.SIZE),
        words=arena.take(8 * len(_Global)),
        rows=arena.take(8 * _ROW_WORDS * workers),
        reals=arena.take(8 * _ROW_REALS * workers),
        histograms=arena.take(8 * TAU_BINS * workers),
        test_losses=arena.take(8 * test_batches),
        test_correct=arena.take(8 * test_batches),
        workers=workers,
        test_batches=test_batches,
    )


class ControlBlock:
    """The block as one process sees it.

    Args:
        segment: the shared memory.
        plan: what lies where.
        still_wanted: called while waiting; raises to give up.
    """

    def __init__(self, segment: Segment, plan: ControlPlan, still_wanted: Callable[[], None]) -> None:
        self.plan = plan
        self._still_wanted = still_wanted
        self._lock = RobustMutex(segment, plan.lock)
        self._loop_lock = RobustMutex(segment, plan.loop_lock)
        self.bell = Bell(segment, plan.bell)
        self._words = segment.words(plan.words, len(_Global))
        rows = segment.words(plan.rows, _ROW_WORDS * plan.workers)
        reals = segment.doubles(plan.reals, _ROW_REALS * plan.workers)
        bins = segment.words(plan.histograms, TAU_BINS * plan.workers)
        self.workers = [
            WorkerWords(
                rows[i * _ROW_WORDS : (i + 1) * _ROW_WORDS],
                reals[i * _ROW_REALS : (i + 1) * _ROW_REALS],
                bins[i * TAU_BINS : (i + 1) * TAU_BINS],
            )
            for i in range(plan.workers)
        ]
        self.test_losses = segment.doubles(plan.test_losses, plan.test_batches)
        self.test_correct = segment.words(plan.test_correct, plan.test_batches)

    def initialise(self, limit: int, round_end: int) -> None:
        """Make lock and bell and set the first limits; once, by the coordinator, before any worker attaches."""
        self._lock.initialise()
        self._loop_lock.initialise()
        self.bell.initialise()
        self._words[_Global.LIMIT] = limit
        self._words[_Global.ROUND_END] = round_end

    @property
    def stop(self) -> int:
        """A `Stop`, as a plain number."""
        return self._words[_Global.STOP]

    def set_stop(self, stop: Stop) -> None:
        """Coordinator only; wakes every waiter."""
        self._words[_Global.STOP] = stop
        self.bell.fence()
        self.bell.ring()

    @property
    def claimed(self) -> int:
        """Batches given out so far."""
        return self._words[_Global.CLAIMED]

    @property
    def limit(self) -> int:
        """No batch from this one on is given out before the next forced sync."""
        return self._words[_Global.LIMIT]

    @property
    def round_end(self) -> int:
        """First batch that does not belong to the present group of gradients."""
        return self._words[_Global.ROUND_END]

    @property
    def task(self) -> tuple[int, int]:
        """(number, task) of what the coordinator asked for last."""
        return divmod(self._words[_Global.TASK], len(Task))

    def set_task(self, task: Task) -> int:
        """Coordinator only: ask for the next task, wake every waiter, return the task's number."""
        number = self.task[0] + 1
        self._words[_Global.TASK] = number * len(Task) + task
        self.bell.fence()
        self.bell.ring()
        return number

    def claim(self, worker: int, end: int) -> int | None:
        """Take the next batch for `worker`, or None if none may be taken before `end` now."""
        words = self._words
        self._acquire()
        try:
            batch = words[_Global.CLAIMED]
            if batch >= min(end, words[_Global.LIMIT], words[_Global.ROUND_END]):
                return None
            self.workers[worker].note_claim(batch)
            words[_Global.CLAIMED] = batch + 1
            return batch
        finally:
            self._lock.release()

    def claim_test_batch(self) -> int | None:
        """Take the next test batch of the present evaluation, or None if all are taken."""
        self._acquire()
        try:
            batch = self._words[_Global.EXAMINED]
            if batch >= self.plan.test_batches:
                return None
            self._words[_Global.EXAMINED] = batch + 1
            return batch
        finally:
            self._lock.release()

    def open_evaluation(self) -> None:
        """Coordinator only, in a cut: all test batches may be taken again."""
        self._acquire()
        self._words[_Global.EXAMINED] = 0
        self._lock.release()

    def set_limit(self, limit: int | None) -> int:
        """Coordinator only: move the limit, None to where the claims are now; returns it."""
        self._acquire()
        try:
            limit = self.claimed if limit is None else limit
            self._words[_Global.LIMIT] = limit
            return limit
        finally:
            self._lock.release()

    def set_round_end(self, batch: int) -> None:
        """Whoever applied a group: the next one ends before `batch`."""
        self._acquire()
        self._words[_Global.ROUND_END] = batch
        self._lock.release()

    def open_round(self, first: int, end: int, size_group: Callable[[int], None]) -> None:
        """Let the first group of a loop over batches be `first` .. `end`, unless another worker did so already."""
        self._acquire()
        try:
            if self.round_end <= first:
                size_group(end - first)
                self._words[_Global.ROUND_END] = end
        finally:
            self._lock.release()

    @contextmanager
    def beginning_a_loop(self) -> Iterator[None]:
        """Hold what lets one worker at a time begin a loop over batches."""
        self._acquire(self._loop_lock)
        try:
            yield
        finally:
            self._loop_lock.release()

    def forfeit_before(self, first: int) -> None:
        """Give up the batches before `first` that nobody took: every worker left the loop that they were in."""
        self._acquire()
        try:
            untaken = first - self.claimed
            if untaken > 0:
                self._words[_Global.FORFEITED] += untaken
                self._words[_Global.CLAIMED] = first
        finally:
            self._lock.release()

    def others_train(self, worker: int) -> bool:
        """Whether any other worker is in a loop over batches."""
        return any(
            words.state == WorkerState.TRAINING for other, words in enumerate(self.workers) if other != worker
        )

    def fewest_clock(self) -> int:
        """The smallest clock among the workers that train or still start."""
        return min(
            (words.clock for words in self.workers if words.state <= WorkerState.TRAINING), default=NO_LIMIT
        )

    def finished(self) -> int:
        """Batches done with: pushed, taken and not stepped, or given up."""
        return sum(words.clock for words in self.workers) + self._words[_Global.FORFEITED]

    def _acquire(self, lock: RobustMutex | None = None) -> None:
        lock = self._lock if lock is None else lock
        if lock.acquire(self._still_wanted):
            lock.release()
            raise BrokenInvariant("a worker died while it claimed a batch, which may be lost")


class WorkerWords:
    """One worker's row: written by that worker alone, read by anyone."""

    def __init__(self, row: memoryview, reals: memoryview[float], bins: memoryview) -> None:
        self.row = row
        self.reals = reals
        self.bins = bins

    @property
    def clock(self) -> int:
        """Pushes this worker has finished."""
        return self.row[_Row.CLOCK]

    @property
    def state(self) -> int:
        """A `WorkerState`, as a plain number."""
        return self.row[_Row.STATE]

    @state.setter
    def state(self, state: WorkerState) -> None:
        self.row[_Row.STATE] = state

    @property
    def done(self) -> int:
        """Number of the last task this worker has done."""
        return self.row[_Row.DONE]

    @done.setter
    def done(self, number: int) -> None:
        self.row[_Row.DONE] = number

    def note_claim(self, batch: int) -> None:
        """Under the claim lock: the batch first, then the count that makes it valid."""
        self.row[_Row.BATCH] = batch
        self.row[_Row.CLAIMS] += 1

    def commit(self) -> None:
        """The push took effect: one word, written once."""
        self.row[_Row.CLOCK] += 1

    def skip(self) -> None:
        """The batch was taken and not stepped: it is done with, though nothing was pushed."""
        self.row[_Row.SKIPPED] += 1
        self.commit()

    def note_trained(self, samples: int, loss: float) -> None:
        """Report a batch of `samples` with mean loss `loss`."""
        self.row[_Row.SAMPLES] += samples
        self.reals[_LOSS_SUM] += loss * samples

    def note_applied(self, tau: int, weight: float) -> None:
        """Report the staleness of a gradient that this worker applied, or dropped for a weight of 0."""
        self.row[_Row.APPLIED] += 1
        self.bins[min(tau, TAU_BINS - 1)] += 1
        if weight <= 0:
            self.row[_Row.DROPPED] += 1

    def spend(self, on: Spent, seconds: float) -> None:
        """Report where time went."""
        self.reals[on] += seconds

    def spent(self, on: Spent) -> float:
        """Seconds this worker has reported for one kind of work."""
        return self.reals[on]

    @property
    def pushes(self) -> int:
        """Gradients pushed, those dropped for their staleness included."""
        return self.row[_Row.CLOCK] - self.row[_Row.SKIPPED]

    @property
    def samples(self) -> int:
        """Samples of the batches that this worker stepped."""
        return self.row[_Row.SAMPLES]

    @property
    def dropped(self) -> int:
        """Gradients of weight 0 that this worker met when applying."""
        return self.row[_Row.DROPPED]

    @property
    def loss_sum(self) -> float:
        """Training loss summed over samples."""
        return self.reals[_LOSS_SUM]
