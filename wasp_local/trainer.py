"""The two doors: `Trainer` for the usual loop, `launch` for a loop of your own.

The one thing to know: the objects that the user gave are the user's again when `fit` returns: the model holds the
trained weights, the optimizer its state, the scheduler its place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from wasp_local.config import RunConfig
from wasp_local.data.tensors import decode
from wasp_local.fit import Fit, Loss, Moment, Told
from wasp_local.inputs import as_protocol, built_optimizer, built_scheduler, check_sendable, checked_model
from wasp_local.protocol import Protocol
from wasp_local.report.summary import Result
from wasp_local.store.schedule import tabulate
from wasp_local.workers.coordinator import Coordinator, Hooks, Road
from wasp_local.workers.entry import Job
from wasp_local.workers.setup import share
from wasp_local.workers.topology import plan_placement, usable_cores
from wasp_local.workers.worker import Worker

__all__ = ["Trainer", "launch"]


class Trainer:
    """Trains a model with worker processes that share one copy of its parameters.

    Args:
        model: a `torch.nn.Module` on the CPU; `fit` leaves the trained weights in it.
        optimizer: a `torch.optim` SGD, Adam or AdamW over `model.parameters()`, or a function that builds one.
        loss: `loss(output, target)`, a scalar, the mean over a batch; cross-entropy if not given.
        workers: processes; the usable cores if not given.
        protocol: such as `wasp(sync_every=256)`, or a preset's name; `wasp()` if not given.
        consistency: "locked", "snapshot" or "hogwild", see docs/architecture.md; the protocol's own if not given.
        batch_size: samples of one gradient.
        epochs: passes over the training data; 10 if neither this nor `steps` nor `samples` is given.
        steps: updates of the parameters, whichever worker makes them.
        samples: samples to train on; the last batch is cut to come out even.
        seed: sets the order of the samples and what is random in each batch.
        target_accuracy: end at the first evaluation whose test accuracy, 0 to 1, reaches this.
        scheduler: a `torch.optim.lr_scheduler` over `optimizer`, or a function that builds one from it; stepped once
            an update of the store, `ReduceLROnPlateau` once an evaluation, with the test loss.
        callbacks: each is called with a `Moment` at every evaluation (every epoch's end without a test set).
        threads: compute threads of each worker; usable cores / workers if not given.
        pin: keep each worker on cores of its own.
        start_method: "forkserver", "spawn" or "fork".
        shuffle: take the samples of each epoch in another order.
        drop_last: leave out an epoch's last batch if it is smaller.
        out: a folder below which the run gets one of its own; None keeps no files.
        quiet: print nothing but what workers print.

    Raises:
        TypeError, ValueError: an argument is wrong; the message says which and what would be right.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        optimizer: Optimizer | Callable[..., Optimizer],
        loss: Loss | None = None,
        workers: int | None = None,
        protocol: Protocol | str | None = None,
        scheduler: LRScheduler | Callable[[Optimizer], LRScheduler] | None = None,
        callbacks: Iterable[Callable[[Moment], object]] = (),
        **settings: Any,
    ) -> None:
        self.usable = usable_cores()
        self.config = RunConfig(
            workers=self.usable.count if workers is None else workers,
            protocol=as_protocol(protocol),
            **settings,
        )
        self.model = checked_model(model)
        self.optimizer = built_optimizer(optimizer, model)
        self.scheduler = built_scheduler(scheduler, self.optimizer)
        self.loss: Loss = torch.nn.functional.cross_entropy if loss is None else loss
        self.callbacks = list(callbacks)
        for name, value in (("loss", self.loss), *(("callbacks", each) for each in self.callbacks)):
            if not callable(value):
                raise TypeError(f"{name} must be callable, got {type(value).__name__}")

    def fit(self, train: Any, test: Any = None) -> Result:
        """Train on `train`, seeing `test` at every epoch's end.

        Args:
            train: a pair (inputs, targets) of tensors or arrays, or a map-style dataset of such items.
            test: the same; None without.

        Raises:
            TypeError, ValueError, Shortage: before any worker starts: data, model and settings don't go together.
            WorkerFailed: a worker raised, exited or was killed.
        """
        told = Told(
            self.model,
            self.optimizer,
            self.scheduler,
            self.loss,
            self.callbacks,
            self.config,
            self.usable,
        )
        fit = Fit(told, decode(train, "train"), None if test is None else decode(test, "test"))
        try:
            return fit.run()
        finally:
            fit.close()


def launch(
    train_fn: Callable[[Worker], Any],
    *,
    model: torch.nn.Module,
    optimizer: Optimizer | Callable[..., Optimizer],
    workers: int | None = None,
    protocol: Protocol | str | None = None,
    **settings: Any,
) -> list[Any]:
    """Run `train_fn(worker)` in every worker, for those with a loop of their own.

    In it, `for inputs, targets in worker.batches(data, batch_size=64, epochs=3)` hands out batches, each to one worker,
    and `worker.step(loss)` pushes the gradient of a loss that `worker.model` gave. Forced syncs happen between two
    batches. `model` has the trained weights, and `optimizer` its state, when this returns.

    Args:
        train_fn: called with a `Worker`; a lambda or local function will do.
        model: as for `Trainer`.
        optimizer: as for `Trainer`.
        workers: processes; the usable cores if not given.
        protocol: such as `wasp(sync_every=256)`, or a preset's name; `wasp()` if not given.
        settings: consistency, seed, threads, pin and start_method, as for `Trainer`.

    Returns:
        What train_fn returned, one entry a worker.

    Raises:
        TypeError, ValueError: an argument is wrong, before any worker starts.
        WorkerFailed: a worker raised, exited or was killed.
    """
    unknown = set(settings) - {"consistency", "seed", "threads", "pin", "start_method"}
    if unknown:
        raise TypeError(f"launch() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    usable = usable_cores()
    config = RunConfig(
        workers=usable.count if workers is None else workers, protocol=as_protocol(protocol), **settings
    )
    if not callable(train_fn):
        raise TypeError(f"train_fn must be callable, got {type(train_fn).__name__}")
    built = built_optimizer(optimizer, checked_model(model))
    placement = plan_placement(config.workers, usable, config.threads, config.pin, os.environ)
    table = tabulate(built, None, 0)
    state = share(model, built, config.protocol, str(config.consistency), config.workers, table, 0)
    try:
        road = Road(total=None, epoch_end=None, evaluates=False)
        hooks = Hooks(on_tick=lambda: None, on_visit=lambda: True, output=_print_line)
        coordinator = Coordinator(state, config.protocol, road, config.start_method, hooks)
        job = Job(train_fn, model, config.protocol, state.plans, config.seed, None)
        try:
            coordinator.run(job, placement)
        except (TypeError, AttributeError, ValueError) as error:
            if coordinator.ready:
                raise
            raise check_sendable({"train_fn": train_fn, "model": model}, error) from error
        state.buffers.join(range(config.workers))
        state.bring_back()
        return [coordinator.returned[worker] for worker in range(config.workers)]
    finally:
        state.segment.close()


def _print_line(worker: int, stream: str, line: str) -> None:
    print(f"[worker {worker}] {line}", file=sys.stdout if stream == "stdout" else sys.stderr, flush=True)
