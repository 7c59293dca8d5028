"""The rivals of the benchmarks, as a table: how each is started and how it was tuned.

The one thing to know: a rival is a module of this package that runs in a process of its own, trains the
task of `task.py` and prints one JSON line. Nothing is shared between two measurements, and this table loads
no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["KEEP_FREED_MEMORY", "LIMIT", "OURS", "RIVALS", "Rival"]

LIMIT = "limit"  # what all are held against
OURS = "ours-2"  # what is held against all

# What glibc is told to do with freed memory: keep it, where by default it returns large blocks to the
# kernel and takes them anew, page by page, in every step. Workers of wasp_local tell it so themselves.
KEEP_FREED_MEMORY: Mapping[str, str] = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
}


class Rival(NamedTuple):
    """One row of a benchmark's table."""

    title: str
    module: str  # of this package
    processes: int
    threads: int  # of each process; 0: whatever PyTorch takes by default
    note: str
    environment: Mapping[str, str] = {}


_PINNED = "each process on its own share of the cores"
_TUNED = "normalised float32 tensors in memory, fused SGD"

RIVALS: dict[str, Rival] = {
    "ours-1": Rival(
        "wasp_local, 1 worker", "ours", 1, 1, "Trainer, protocol wasp, 1 thread; pins and allocates by itself"
    ),
    "ours-2": Rival(
        "wasp_local, 2 workers",
        "ours",
        2,
        1,
        "Trainer, protocol wasp, 1 thread each; pins and allocates by itself",
    ),
    "loop-1": Rival("one loop, 1 thread", "loop", 1, 1, f"{_TUNED}; pinned to one core"),
    "loop-2": Rival("one loop, 2 threads", "loop", 1, 2, f"{_TUNED}; not pinned"),
    "two-loops": Rival(
        "two loops at once, 1 thread each",
        "loop",
        2,
        1,
        f"{_TUNED}; they share nothing, {_PINNED}",
    ),
    "limit": Rival(
        "two such loops, freed memory kept",
        "loop",
        2,
        1,
        "the same two loops with glibc told to keep freed memory: the most that this machine allows",
        KEEP_FREED_MEMORY,
    ),
    "ddp": Rival(
        "DDP over gloo, 2 processes",
        "ddp",
        2,
        1,
        f"{_TUNED}; gradients as bucket views, static graph, loopback; 1 thread, {_PINNED}",
    ),
    "hogwild-memory": Rival(
        "Hogwild in memory, 2 processes",
        "hogwild",
        2,
        1,
        f"{_TUNED}; started by fork, 1 thread, {_PINNED}",
    ),
    "hogwild-script": Rival(
        "the usual Hogwild script",
        "hogwild_script",
        2,
        0,
        "after PyTorch's example: DataLoader and transforms in each of 2 processes, spawn, default threads",
    ),
    "hogwild-script-1": Rival(
        "the usual script, 1 thread each",
        "hogwild_script",
        2,
        1,
        "the same with torch.set_num_threads(1)",
    ),
}
