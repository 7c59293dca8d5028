"""How much memory may still be taken, by this process in this container.

The one thing to know: it is the smallest of what the machine has and what each control group on the way from this
process's own to the root leaves of its limit. A group's use counts the pages of files it has read, which the kernel
drops when memory is wanted; they count as free here, else nobody could train after reading a large dataset.

What doesn't work: it is a look, not a claim. Two runs that look at the same moment both see the same memory free.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

__all__ = ["free_bytes"]


class _Account(NamedTuple):
    """The names of a memory group's files, and of the lines in `memory.stat` that say what can be dropped."""

    limit: str
    used: str
    droppable: tuple[str, ...]


_V1 = _Account("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))
_V2 = _Account("memory.max", "memory.current", ("inactive_file", "active_file"))


def free_bytes(root: Path = Path("/")) -> int:
    """Memory that may still be taken.

    Args:
        root: where /proc and /sys are; for tests.
    """
    free = int(psutil.virtual_memory().available)
    for folder, account in _memory_groups(root):
        left = _left(folder, account)
        free = free if left is None else min(free, left)
    return free


def _memory_groups(root: Path) -> Iterator[tuple[Path, _Account]]:
    """The control groups that count this process's memory; in a container only the mount itself may exist."""
    mounts = {"": (root / "sys/fs/cgroup", _V2), "memory": (root / "sys/fs/cgroup/memory", _V1)}
    yield from mounts.values()
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)  # version 2 has no controllers here
        for controller in mounts.keys() & controllers.split(","):
            folder, account = mounts[controller]
            for part in Path(group.lstrip("/")).parts:
                folder /= part
                yield folder, account


def _left(folder: Path, account: _Account) -> int | None:
    """What a group leaves of its limit; None where it has no limit or doesn't exist."""
    limit, used = _read(folder / account.limit).strip(), _read(folder / account.used).strip()
    if not (limit.isdigit() and used.isdigit()):
        return None
    lines = [line.split() for line in _read(folder / "memory.stat").splitlines()]
    dropped = sum(int(line[1]) for line in lines if len(line) == 2 and line[0] in account.droppable)
    return max(0, int(limit) - int(used) + dropped)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
