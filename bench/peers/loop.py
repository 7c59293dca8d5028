"""A plain training loop over tensors in memory; with two processes, two such loops that share nothing.

The one thing to know: two at once, one thread each, are what the machine allows two workers at most: two
busy cores are slower than twice one (shared cache, memory, clock), and these two lose nothing to each other
but that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from peers.task import Gate, Task, in_processes, train_in_memory

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Train and print the report."""
    task = Task.from_arguments(argv)
    torch.set_num_threads(task.threads)
    data = task.tensors()
    if task.processes == 1:
        _train(0, task, None, data)
    else:
        in_processes(task, _train, data)
    task.report()


def _train(rank: int, task: Task, gate: Gate | None, data: tuple[Tensor, Tensor]) -> None:
    task.settle(rank)
    train_in_memory(rank, task, gate, task.model(), data)


if __name__ == "__main__":
    main()
