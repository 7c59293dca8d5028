"""What a worker records of its steps, and the steady throughput that follows from it.

The one thing to know: every rival trains with the same `RecordedLoss`, so all are timed at the same place
of a step and by the same code, whatever runs around it. Each process writes a file of its own:

    steps-PID   rows of three float64: time.monotonic(), samples of the batch, its loss; zeros where none came

`time.monotonic()` is one clock for all processes of a machine (Linux, macOS).
"""

from __future__ import annotations

import math
import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

__all__ = ["SAMPLES", "RecordedLoss", "Steady", "last_loss", "read_logs", "steady"]

COLUMNS = 3
TIME, SAMPLES, LOSS = range(COLUMNS)
LAST_STEPS = 50  # of each worker, over which the final loss is taken

Log = NDArray[np.float64]


class RecordedLoss:
    """Cross-entropy that notes when it was called; some 2 us a step.

    It opens its file at the first call, and is pickled without it, so that every process has one of its own.
    """

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder = folder
        self.steps = steps  # most that one process will do
        self._words: memoryview[float] | None = None
        self._next = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordedLoss, (self.folder, self.steps)

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        loss = cross_entropy(output, target)
        words = self._words or self._open()
        words[self._next + SAMPLES] = len(target)
        words[self._next + LOSS] = loss.item()
        words[self._next + TIME] = time.monotonic()
        self._next += COLUMNS
        return loss

    def _open(self) -> memoryview[float]:
        size = self.steps * COLUMNS * 8
        with open(self.folder / f"steps-{os.getpid()}", "x+b") as file:
            file.truncate(size)
            self._words = memoryview(mmap.mmap(file.fileno(), size)).cast("d")
        return self._words


def read_logs(folder: Path) -> list[Log]:
    """What each process recorded, one array of rows a process."""
    logs = [np.fromfile(path).reshape(-1, COLUMNS) for path in sorted(folder.glob("steps-*"))]
    return [log[log[:, TIME] > 0] for log in logs]


class Steady(NamedTuple):
    """Throughput while all workers ran."""

    samples_per_second: float
    seconds: float  # how long that was


def steady(logs: Sequence[Log], warm_up: int) -> Steady | None:
    """Throughput from when every worker has done `warm_up` steps until the first has done its last.

    Samples at the window's two edges are counted in proportion to the part of the step that lies inside.

    Returns:
        None if there was no such moment: the workers did too few steps.
    """
    if not logs or min(map(len, logs)) <= warm_up:
        return None
    begin = max(log[warm_up, TIME] for log in logs)
    end = min(log[-1, TIME] for log in logs)
    if not begin < end:
        return None
    samples = 0.0
    for log in logs:
        done = np.cumsum(log[:, SAMPLES])
        first, last = np.interp((begin, end), log[:, TIME], done)
        samples += last - first
    return Steady(samples / (end - begin), end - begin)


def last_loss(logs: Sequence[Log]) -> float | None:
    """Mean loss over the last steps of all workers, which shows that they trained; None if it is not finite."""
    mean = float(np.mean(np.concatenate([log[-LAST_STEPS:, LOSS] for log in logs])))
    return mean if math.isfinite(mean) else None
