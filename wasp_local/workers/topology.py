"""Which cores a run may use, and which of them each worker gets.

The one thing to know: what may be used is the smallest of three things: the cores that exist, the cores in this
process's affinity mask, and the share of time that its control group grants (a container's limit).
`os.cpu_count()` knows only the first.

A fractional quota is rounded up: with 1.5 cores two workers use what one would leave unused.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = ["Placement", "UsableCores", "plan_placement", "usable_cores"]

BINDING_VARIABLES = ("OMP_PROC_BIND", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "OMP_PLACES")
MPI_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_CPU_BIND")


@dataclass(frozen=True)
class UsableCores:
    """How many cores may be used, which, and where that number came from."""

    count: int
    cores: tuple[int, ...]
    source: str


class Placement(NamedTuple):
    """What each worker gets."""

    threads_per_worker: int
    cores_of: tuple[tuple[int, ...], ...]  # one entry a worker; empty: not pinned
    warnings: tuple[str, ...]


def usable_cores(root: Path = Path("/")) -> UsableCores:
    """Find out which cores this process may use.

    Args:
        root: where /proc and /sys are; for tests.
    """
    mask = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else _all_cores()
    exist = len(_all_cores())
    source = f"{len(mask)} of {exist}: affinity mask" if len(mask) < exist else f"all {exist} of the machine"
    quota = _smallest_quota(root)
    if quota is not None and math.ceil(quota[0]) < len(mask):
        cores, where = quota
        return UsableCores(
            max(1, math.ceil(cores)),
            mask,
            f"{max(1, math.ceil(cores))} of {exist}: quota of {cores:g} cores in {where}",
        )
    return UsableCores(len(mask), mask, source)


def _all_cores() -> tuple[int, ...]:
    return tuple(range(os.cpu_count() or 1))


def _smallest_quota(root: Path) -> tuple[float, Path] | None:
    """The smallest CPU quota on the way from this process's control groups to their roots, in cores."""
    quotas = []
    for controllers, group in _control_groups(root):
        if controllers == "":
            quotas.extend(_quotas_upwards(root / "sys/fs/cgroup", group, _quota_v2))
        elif "cpu" in controllers.split(","):
            for mount in ("cpu", "cpu,cpuacct", "cpuacct,cpu"):
                quotas.extend(_quotas_upwards(root / "sys/fs/cgroup" / mount, group, _quota_v1))
    return min(quotas, default=None)


def _control_groups(root: Path) -> list[tuple[str, str]]:
    """(controllers, path) of each line of /proc/self/cgroup; version 2 has no controllers there."""
    text = _read(root / "proc/self/cgroup")
    lines = [line.split(":", 2) for line in text.splitlines()]
    found = [(parts[1], parts[2].strip()) for parts in lines if len(parts) == 3]
    return found or [("", "/"), ("cpu", "/")]


def _quotas_upwards(
    mount: Path, group: str, quota_of: Callable[[Path], float | None]
) -> list[tuple[float, Path]]:
    """Quotas at a group and all above it; in a container only the mount itself may exist."""
    folders = [mount]
    for part in Path(group.lstrip("/")).parts:
        folders.append(folders[-1] / part)
    return [(quota, folder) for folder in folders if (quota := quota_of(folder)) is not None]


def _quota_v2(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()
    return _ratio(*words) if len(words) == 2 else None


def _quota_v1(folder: Path) -> float | None:
    return _ratio(_read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip())


def _ratio(quota: str, period: str) -> float | None:
    if not (quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0):
        return None  # "max", -1 or nothing: no limit
    return int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def plan_placement(
    workers: int, usable: UsableCores, threads: int | None, pin: bool, environ: Mapping[str, str]
) -> Placement:
    """Share the cores out.

    Args:
        workers: how many.
        usable: what there is to share.
        threads: compute threads a worker, if the user said; else OMP_NUM_THREADS if set, else cores / workers.
        pin: give each worker cores of its own, where there are enough.
        environ: the environment's variables.
    """
    each, chosen = _threads(workers, usable, threads, environ)
    warnings = []
    if each > 1 and each * workers > usable.count:
        warnings.append(
            f"{workers} workers of {each} threads ({chosen}) share {usable.count} usable cores: expect them to be "
            "slower than with fewer threads"
        )
    cores_of: tuple[tuple[int, ...], ...] = ((),) * workers
    if pin and workers <= len(usable.cores) and usable.count == len(usable.cores):
        share = len(usable.cores) // workers
        cores_of = tuple(usable.cores[i * share : (i + 1) * share] for i in range(workers))
    if workers > 1 and len(usable.cores) == 1 and len(_all_cores()) > 1:
        warnings.append(_one_core_warning(workers, usable, environ))
    return Placement(each, cores_of, tuple(warnings))


def _threads(
    workers: int, usable: UsableCores, threads: int | None, environ: Mapping[str, str]
) -> tuple[int, str]:
    """Threads a worker, and who chose them ("" if nobody did)."""
    if threads is not None:
        return threads, f"threads={threads}"
    told = environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if told.isdigit() and int(told) > 0:
        return int(told), f"OMP_NUM_THREADS={told}"
    return max(1, usable.count // workers), ""


def _one_core_warning(workers: int, usable: UsableCores, environ: Mapping[str, str]) -> str:
    causes = [f"{name}={environ[name]}" for name in BINDING_VARIABLES if name in environ]
    causes += [f"the MPI launcher's binding ({name} is set)" for name in MPI_VARIABLES if name in environ]
    likely = " or ".join(causes) if causes else "a numerical library, or taskset"
    return (
        f"all {workers} workers share core {usable.cores[0]} though the machine has {len(_all_cores())}: this "
        f"process may use no other; likely narrowed by {likely}"
    )
