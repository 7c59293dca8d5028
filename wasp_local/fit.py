"""One call of `Trainer.fit`, along the seams of its life: start, lead, end.

    start: lay out shared memory, make the run's folder, say what runs
    lead:  at each tick report, at each visit (an epoch's end, in a cut) evaluate and ask the callbacks
    end:   bring the weights back, add up what the workers did

The one thing to know: whatever happens, `close` leaves no process, no memory and no open file of the run.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from wasp_local.config import RunConfig
from wasp_local.data.plan import BatchPlan
from wasp_local.data.tensors import LiveData, TensorData
from wasp_local.errors import RunError
from wasp_local.events import Evaluation
from wasp_local.inputs import check_sendable
from wasp_local.report.folder import create_run_folder, write_json
from wasp_local.report.metrics import MetricsLog
from wasp_local.report.opening import opening
from wasp_local.report.progress import ProgressLine
from wasp_local.report.summary import Result
from wasp_local.store.schedule import settings_now, tabulate
from wasp_local.workers.control_block import WorkerState
from wasp_local.workers.coordinator import Coordinator, Hooks, Road
from wasp_local.workers.counters import Counters, mean, staleness_histogram, worker_reports
from wasp_local.workers.driver import Span
from wasp_local.workers.entry import EvaluationJob, Job
from wasp_local.workers.setup import SharedState, share
from wasp_local.workers.topology import UsableCores, plan_placement
from wasp_local.workers.worker import Worker

__all__ = ["Fit", "Loss", "Moment", "Told"]

TEST_BATCH_SIZE = 256
Data = TensorData | LiveData
Loss = Callable[[Any, Any], torch.Tensor]


class Told(NamedTuple):
    """What a `Trainer` was told, checked."""

    model: torch.nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    loss: Loss
    callbacks: Sequence[Callable[[Moment], object]]
    config: RunConfig
    usable: UsableCores


class Moment:
    """What a callback sees: the run while it stands still.

    Attributes:
        evaluation: the test set as the workers saw it now; None without a test set.
        samples: samples trained on so far.
        updates: updates of the parameters so far.
    """

    def __init__(self, fit: Fit, evaluation: Evaluation | None) -> None:
        self._fit = fit
        self.evaluation = evaluation
        self.samples = fit.counters.samples
        self.updates = fit.state.store.version()

    @property
    def model(self) -> torch.nn.Module:
        """The user's model with the parameters of this moment copied into it."""
        self._fit.state.bring_back()
        return self._fit.told.model

    def stop(self, reason: str = "a callback stopped it") -> None:
        """End the run here; its weights will be those of this moment."""
        self._fit.stopped = reason


class _Length(NamedTuple):
    plan: BatchPlan
    updates: int
    text: str


class Fit:
    """One call of `fit`."""

    def __init__(self, told: Told, train: Data, test: Data | None) -> None:
        config = told.config
        self.told, self.config = told, config
        self.train, self.test = train, test
        if config.target_accuracy is not None and test is None:
            raise ValueError(
                f"target_accuracy={config.target_accuracy} needs a test set: fit(train, test), got none"
            )
        if isinstance(told.scheduler, ReduceLROnPlateau) and test is None:
            raise ValueError("scheduler ReduceLROnPlateau needs a test set: fit(train, test), got none")
        self.length = _length(config, len(train))
        self.stopped = self.length.text
        self.folder: Path | None = None
        self.metrics: MetricsLog | None = None
        self.evaluations: list[Evaluation] = []
        self.placement = plan_placement(config.workers, told.usable, config.threads, config.pin, os.environ)
        self.state = self._share()
        self.counters = Counters(
            self.state,
            self.length.plan.total_samples,
            self.length.plan.samples_per_epoch,
            0 if test is None else len(test),
        )
        self.progress = ProgressLine(self.length.plan.total_samples, quiet=config.quiet)

    # start

    def _share(self) -> SharedState:
        told, config = self.told, self.config
        stepped = None if isinstance(told.scheduler, ReduceLROnPlateau) else told.scheduler
        test_batches = 0 if self.test is None else -(-len(self.test) // TEST_BATCH_SIZE)
        return share(
            told.model,
            told.optimizer,
            config.protocol,
            str(config.consistency),
            config.workers,
            tabulate(told.optimizer, stepped, self.length.updates),
            test_batches,
        )

    def _job(self) -> Job:
        told = self.told
        evaluation = None
        if self.test is not None:
            evaluation = EvaluationJob(self.test, TEST_BATCH_SIZE, told.loss)
        span = Span(0, self.length.plan, held=True)
        train_fn = _TrainFunction(span, self.train, told.loss)
        return Job(train_fn, told.model, self.config.protocol, self.state.plans, self.config.seed, evaluation)

    def _open_folder(self) -> None:
        if self.config.out is None:
            return
        label = f"{type(self.told.model).__name__.lower()}-{self.config.protocol.name}"
        self.folder = create_run_folder(self.config.out, label)
        told = {
            **self.config.as_dict(),
            "optimizer": repr(self.told.optimizer),
            "train": repr(self.train),
            "test": repr(self.test),
        }
        write_json(self.folder / "config.json", told)
        self.metrics = MetricsLog(self.folder / "metrics.jsonl")

    def _opening(self) -> str:
        shards = self.state.store.plan.shards
        return opening(
            model=type(self.told.model).__name__,
            parameters=sum(slot.numel for shard in shards for slot in shard.slots),
            train=len(self.train),
            test=None if self.test is None else len(self.test),
            cores_of=self.placement.cores_of,
            threads=self.placement.threads_per_worker,
            cores=self.told.usable.source,
            protocol=str(self.config.protocol),
            run_folder=self.folder,
        )

    # lead

    def run(self) -> Result:
        """Train, and say what came of it."""
        self._open_folder()
        self.progress.say(self._opening())
        for warning in self.placement.warnings:
            self.progress.write(f"warning: {warning}")
        visits = self.test is not None or self.told.callbacks
        road = Road(
            total=self.length.plan.batches,
            epoch_end=self.length.plan.epoch_end if visits else None,
            evaluates=self.test is not None,
        )
        hooks = Hooks(on_tick=self._on_tick, on_visit=self._on_visit, output=self._on_output)
        self.coordinator = Coordinator(
            self.state, self.config.protocol, road, self.config.start_method, hooks
        )
        job = self._job()
        try:
            self.coordinator.run(job, self.placement)
        except KeyboardInterrupt:
            self._keep_what_there_is()
            raise
        except (TypeError, AttributeError, ValueError) as error:
            if self.coordinator.ready:
                raise
            raise check_sendable({"model": job.model, "loss": self.told.loss}, error) from error
        self._bring_back()
        return self._result()

    def _seconds(self) -> float:
        return time.perf_counter() - self.coordinator.started

    def _on_tick(self) -> None:
        progress = self.counters.progress(self._seconds())
        if not progress.samples:
            return
        self.progress.update(progress)
        if self.metrics:
            self.metrics.progress(progress)

    def _on_visit(self) -> bool:
        evaluation = None
        going_on = self.stopped
        if self.test is not None:
            evaluation = self.counters.evaluation(self._seconds())
            self.evaluations.append(evaluation)
            if self.metrics:
                self.metrics.evaluation(evaluation)
            self._heed(evaluation)
        self._on_tick()
        moment = Moment(self, evaluation)
        for callback in self.told.callbacks:
            callback(moment)
        return self.stopped == going_on

    def _heed(self, evaluation: Evaluation) -> None:
        """What an evaluation means for the learning rate and for the end of the run."""
        scheduler, target = self.told.scheduler, self.config.target_accuracy
        if isinstance(scheduler, ReduceLROnPlateau):
            scheduler.step(evaluation.loss)
            self.state.store.schedule.write(0, settings_now(self.told.optimizer, ("lr",)))
        if target is not None and evaluation.accuracy is None:
            raise RunError("target_accuracy needs outputs (batch, classes) and integer targets (batch,)")
        if target is not None and evaluation.accuracy is not None and evaluation.accuracy >= target:
            self.stopped = f"test accuracy {evaluation.accuracy:.2%} reached the target of {target:.2%}"

    def _on_output(self, worker: int, stream: str, line: str) -> None:
        self.progress.write(f"[worker {worker}] {line}", sys.stdout if stream == "stdout" else sys.stderr)

    # end

    def _bring_back(self) -> None:
        self.state.bring_back()
        scheduler = self.told.scheduler
        if scheduler is not None and not isinstance(scheduler, ReduceLROnPlateau):
            self.told.optimizer._opt_called = True  # type: ignore[attr-defined]  # the workers stepped it
            for _ in range(self.state.store.version()):
                scheduler.step()
        if self.folder is not None:
            _save(self.told.model.state_dict(), self.folder / "weights.pt")

    def _keep_what_there_is(self) -> None:
        """After Ctrl-C: the weights so far, if every worker finished its push before it left."""
        if all(words.state == WorkerState.ABSENT for words in self.state.control.workers):
            self._bring_back()

    def _result(self) -> Result:
        progress = self.counters.progress(self._seconds())
        self.progress.update(progress)
        words = self.state.control.workers
        seconds = self.coordinator.ended - self.coordinator.started
        last = self.evaluations[-1] if self.evaluations else None
        histogram = staleness_histogram(self.state.control)
        dropped = sum(each.dropped for each in words)
        result = Result(
            accuracy=last.accuracy if last else None,
            loss=self.counters.loss,
            test_loss=last.loss if last else None,
            samples=self.counters.samples,
            updates=self.state.store.version(),
            pushes=sum(each.pushes for each in words) - dropped,
            dropped=dropped,
            syncs=self.coordinator.syncs,
            seconds=seconds,
            samples_per_second=self.counters.samples / seconds if seconds > 0 else 0.0,
            staleness_histogram=histogram,
            staleness_mean=mean(histogram),
            workers=worker_reports(self.state.control, self.coordinator.ready),
            evaluations=tuple(self.evaluations),
            stopped=self.stopped,
            protocol=str(self.config.protocol),
            cores=self.told.usable.source,
            run_folder=self.folder,
            shared_bytes=self.state.segment.nbytes,
        )
        if self.metrics:
            for report in result.workers:
                self.metrics.worker(report)
            self.metrics.end(result.as_dict())
        return result

    def close(self) -> None:
        """Let go of everything; also after an error."""
        self.progress.close()
        if self.metrics:
            self.metrics.close()
        self.state.segment.close()


class _TrainFunction(NamedTuple):
    """The loop that a `Trainer`'s workers run; the same calls as in a train_fn of the user's."""

    span: Span
    data: Data
    loss: Loss

    def __call__(self, worker: Worker) -> None:
        model, loss = worker.model, self.loss
        for inputs, targets in worker.follow(self.span, self.data):
            worker.step(loss(model(inputs), targets))


def _length(config: RunConfig, samples: int) -> _Length:
    """How many batches and updates the run has, and how its end will be told."""
    size = config.protocol.aggregate.gradients(config.workers)
    within_epoch = config.protocol.aggregate.within_epoch
    shared: dict[str, Any] = {
        "samples": samples,
        "batch_size": config.batch_size,
        "seed": config.seed,
        "shuffle": config.shuffle,
        "drop_last": config.drop_last,
    }
    if config.samples is not None:
        plan = BatchPlan.for_samples(config.samples, **shared)
        text = f"all {config.samples:,} samples done"
    elif config.steps is not None:
        plan = BatchPlan.for_updates(config.steps, size, within_epoch, **shared)
        text = f"all {config.steps:,} steps done"
    else:
        plan = BatchPlan.for_epochs(config.epochs or 1, **shared)
        text = f"all {config.epochs} epochs done"
    return _Length(plan, plan.updates(size, within_epoch), text)


def _save(state: dict[str, torch.Tensor], path: Path) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    torch.save(state, draft)
    os.replace(draft, path)
