"""The one task that every rival trains: LeNet-5 on digits; batch, optimizer, loss and samples are the same.

    arguments -> Task -> model, data, optimizer, loss -> training by the rival -> report: one JSON line

The one thing to know: what is fair is settled here, once. A rival's own module holds only what makes it a
rival.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing import get_context

from peers.steplog import SAMPLES, RecordedLoss, last_loss, read_logs, steady
from wasp_local.data.datasets import PIXELS, load
from wasp_local.data.tensors import TensorData
from wasp_local.models import lenet5

__all__ = ["Task", "in_processes", "train_in_memory"]

LEARNING_RATE = 0.05
MOMENTUM = 0.9
SEED = 0
SECONDS_TO_START = 120.0

Gate = Any  # a multiprocessing.Barrier: all processes of a rival begin together


@dataclass(frozen=True)
class Task:
    """What a rival is told on its command line.

    Attributes:
        samples: to train on in all, by all processes together.
        batch_size: of each step of each process.
        processes: that train.
        threads: compute threads of each; 0 leaves PyTorch's default.
        warm_up: first steps of each process that do not count.
        data_root: folder with MNIST/raw; None: the digits of the package.
        images: that those are repeated to, so that they fill as much memory as MNIST does.
        log: empty folder for the records of this measurement.
    """

    samples: int
    batch_size: int
    processes: int
    threads: int
    warm_up: int
    data_root: Path | None
    images: int
    log: Path

    @classmethod
    def from_arguments(cls, argv: Sequence[str] | None = None) -> Task:
        """The task that the command line describes."""
        parser = argparse.ArgumentParser()
        for each in fields(cls):
            kind = int if each.type == "int" else Path
            flag = "--" + each.name.replace("_", "-")
            parser.add_argument(flag, type=kind, required=each.name != "data_root")
        return cls(**vars(parser.parse_args(argv)))

    @property
    def share(self) -> int:
        """Samples of each process, where they are dealt out beforehand."""
        return self.samples // self.processes

    def model(self) -> nn.Module:
        """LeNet-5 with the same first parameters for every rival."""
        torch.manual_seed(SEED)
        return lenet5()

    def optimizer(self, parameters: Iterable[nn.Parameter], fused: bool | None = None) -> torch.optim.SGD:
        """The same SGD for every rival; `fused` only where that is how a rival was tuned."""
        return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM, fused=fused)

    @cached_property
    def loss(self) -> RecordedLoss:
        """Cross-entropy that records the steps."""
        return RecordedLoss(self.log, steps=-(-self.samples // self.batch_size))

    def digits(self) -> TensorData:
        """The training images as bytes."""
        if self.data_root is not None:
            return load("mnist", self.data_root).train
        embedded = load("digits").train
        times = -(-self.images // len(embedded))
        return TensorData(embedded.inputs.repeat(times, 1, 1, 1), embedded.targets.repeat(times), PIXELS)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """The training images as normalised float32, and their labels."""
        digits = self.digits()
        inputs = digits.inputs.to(torch.float32).div_(255)
        return inputs.sub_(PIXELS.mean).div_(PIXELS.std), digits.targets

    def settle(self, rank: int) -> None:
        """Give this process its threads and, where each process has one, its share of the cores."""
        if self.threads:
            torch.set_num_threads(self.threads)
        if self.threads == 1 and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.cores_of(rank))

    def cores_of(self, rank: int) -> list[int]:
        """The cores of one process; one core if there is but one process."""
        cores = sorted(os.sched_getaffinity(0))
        each = len(cores) // self.processes if self.processes > 1 else 1
        return cores[rank * each : (rank + 1) * each] or cores

    def report(self, **more: Any) -> None:
        """Print what came out, as one JSON line."""
        logs = read_logs(self.log)
        samples = [int(log[:, SAMPLES].sum()) for log in logs]
        window = steady(logs, self.warm_up)
        line = {
            "samples": sum(samples),
            "samples_of_each": samples,
            "samples_per_second": window and window.samples_per_second,
            "steady_seconds": window and window.seconds,
            "loss": last_loss(logs),
        }
        print(json.dumps({**line, **more}), flush=True)


def in_processes(task: Task, target: Callable[..., None], *shared: Any, start_method: str = "fork") -> None:
    """Run `target(rank, task, gate, *shared)` in the task's processes and wait for all of them.

    By fork a process starts in milliseconds, with all that this one has loaded. That is safe as long as
    this one has computed with one thread only.

    Raises:
        SystemExit: one of them failed.
    """
    context: Any = get_context(start_method)
    gate = context.Barrier(task.processes, timeout=SECONDS_TO_START)
    children = [
        context.Process(target=target, args=(rank, task, gate, *shared)) for rank in range(task.processes)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    codes = [child.exitcode for child in children]
    if any(codes):
        raise SystemExit(f"processes of this rival ended with exit codes {codes}")


def train_in_memory(
    rank: int, task: Task, gate: Gate | None, model: nn.Module, data: tuple[Tensor, Tensor]
) -> None:
    """The plain loop, as quick as one can write it: rows of tensors that lie in memory, a fused optimizer."""
    inputs, targets = data
    optimizer, loss = task.optimizer(model.parameters(), fused=True), task.loss
    batches = list(_batches(len(targets), task, rank))
    if gate is not None:
        gate.wait()
    for rows in batches:
        optimizer.zero_grad()
        output = model(inputs.index_select(0, rows))
        loss(output, targets.index_select(0, rows)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _batches(samples: int, task: Task, rank: int) -> Iterator[Tensor]:
    """The rows of each batch of one process, in an order of its own, epoch after epoch."""
    generator = torch.Generator().manual_seed(SEED + rank)
    epochs = -(-task.share // samples)
    order = torch.cat([torch.randperm(samples, generator=generator) for _ in range(epochs)])
    yield from order[: task.share].split(task.batch_size)  # type: ignore[no-untyped-call]
