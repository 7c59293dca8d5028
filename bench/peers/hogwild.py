"""Hogwild over tensors in memory: processes that step one shared model without any lock.

The one thing to know: this is the usual script with all that slows it taken out (no DataLoader, no
transforms, one thread a process, processes forked): the quickest Hogwild that a few lines of PyTorch give.
Each process has its own momentum, as in the usual script.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from peers.task import Gate, Task, in_processes, train_in_memory

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Train and print the report."""
    task = Task.from_arguments(argv)
    torch.set_num_threads(1)
    model = task.model().share_memory()
    in_processes(task, _train, model, task.tensors())
    task.report()


def _train(rank: int, task: Task, gate: Gate, model: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    task.settle(rank)
    train_in_memory(rank, task, gate, model, data)


if __name__ == "__main__":
    main()
