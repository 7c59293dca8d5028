"""PyTorch's DistributedDataParallel over gloo: processes that average each gradient before they step.

The one thing to know: it is synchronous, so every step waits for the slower process and for the exchange, a
quarter of a megabyte over the loopback. Each process has batches of the size that all rivals have.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from peers.task import Gate, Task, in_processes, train_in_memory

__all__ = ["main"]

LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


def main(argv: Sequence[str] | None = None) -> None:
    """Train and print the report."""
    task = Task.from_arguments(argv)
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    in_processes(task, _train, task.tensors())
    task.report()


def _train(rank: int, task: Task, gate: Gate, data: tuple[Tensor, Tensor]) -> None:
    task.settle(rank)
    meeting_point = f"file://{task.log / 'meeting-point'}"
    distributed.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=task.processes)
    model = DistributedDataParallel(task.model(), gradient_as_bucket_view=True, static_graph=True)
    train_in_memory(rank, task, gate, model, data)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
