"""A run as its counters show it: progress, evaluation and each worker's account, as plain events.

The one thing to know: everything here only reads words that workers write, without a lock, so a figure read while
the run goes on may be one push behind.
"""

from __future__ import annotations

from collections.abc import Mapping

from wasp_local.events import Evaluation, Progress, WorkerId, WorkerReport
from wasp_local.workers.control_block import ControlBlock, Spent
from wasp_local.workers.coordinator import Ready
from wasp_local.workers.setup import SharedState

__all__ = ["Counters", "mean", "staleness_histogram", "worker_reports"]

_SHORTEST = 0.1  # seconds over which a speed means something


class Counters:
    """Reads one run's counters.

    Args:
        state: the run's shared state.
        samples_total: samples of the whole run.
        samples_per_epoch: samples of one pass over the training data.
        test_samples: samples of the test set, 0 without one.

    Attributes:
        loss: mean training loss over the latest samples that were reported; None before the first push.
        accuracy: test accuracy at the latest evaluation, 0..1.
    """

    def __init__(
        self, state: SharedState, samples_total: int, samples_per_epoch: int, test_samples: int
    ) -> None:
        self._state = state
        self._samples_total = samples_total
        self._samples_per_epoch = samples_per_epoch
        self._test_samples = test_samples
        self._speed = 0.0
        self._before = (0.0, 0, 0.0)  # seconds, samples, sum of losses at the previous progress
        self.loss: float | None = None
        self.accuracy: float | None = None

    @property
    def samples(self) -> int:
        """Samples trained on so far."""
        return sum(words.samples for words in self._state.control.workers)

    def progress(self, seconds: float) -> Progress:
        """How far the run is after `seconds`."""
        words = self._state.control.workers
        samples = self.samples
        loss_sum = sum(each.loss_sum for each in words)
        seconds_before, samples_before, loss_before = self._before
        new = samples - samples_before
        if new and seconds - seconds_before > (_SHORTEST if self.loss is not None else 0):
            self.loss = (loss_sum - loss_before) / new
            self._speed = new / (seconds - seconds_before)
            self._before = (seconds, samples, loss_sum)
        return Progress(
            seconds=seconds,
            samples=samples,
            samples_total=self._samples_total,
            updates=self._state.store.version(),
            epoch=samples / self._samples_per_epoch,
            loss=self.loss,
            accuracy=self.accuracy,
            staleness=mean(staleness_histogram(self._state.control)),
            samples_per_second=self._speed,
        )

    def evaluation(self, seconds: float) -> Evaluation:
        """The test set as the workers saw it in this cut; sums in the order of the batches."""
        control = self._state.control
        correct = list(control.test_correct)
        classified = bool(correct) and min(correct) >= 0
        self.accuracy = sum(correct) / self._test_samples if classified else None
        samples = self.samples
        return Evaluation(
            seconds=seconds,
            samples=samples,
            updates=self._state.store.version(),
            epoch=samples / self._samples_per_epoch,
            loss=sum(control.test_losses) / self._test_samples,
            accuracy=self.accuracy,
        )


def staleness_histogram(control: ControlBlock) -> dict[int, int]:
    """How many pushes had each staleness, over all workers."""
    totals: dict[int, int] = {}
    for words in control.workers:
        for tau, count in enumerate(words.bins):
            if count:
                totals[tau] = totals.get(tau, 0) + count
    return dict(sorted(totals.items()))


def mean(histogram: Mapping[int, int]) -> float:
    """Mean staleness of a histogram; 0 of an empty one."""
    pushes = sum(histogram.values())
    return sum(tau * count for tau, count in histogram.items()) / pushes if pushes else 0.0


def worker_reports(control: ControlBlock, ready: Mapping[int, Ready]) -> tuple[WorkerReport, ...]:
    """Each worker's account of itself."""
    return tuple(
        WorkerReport(
            worker=WorkerId(worker),
            pid=said.pid,
            cores=said.cores,
            threads=said.threads,
            pushes=control.workers[worker].pushes,
            samples=control.workers[worker].samples,
            data=control.workers[worker].spent(Spent.DATA),
            pull=control.workers[worker].spent(Spent.PULL),
            compute=control.workers[worker].spent(Spent.COMPUTE),
            push=control.workers[worker].spent(Spent.PUSH),
            wait=control.workers[worker].spent(Spent.WAIT),
            evaluate=control.workers[worker].spent(Spent.EVALUATE),
        )
        for worker, said in sorted(ready.items())
    )
