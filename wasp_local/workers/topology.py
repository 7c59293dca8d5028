"""Which cores a run may use, and which of them each worker gets.

The one thing to know: what may be used is the smallest of three things: the cores that exist, the cores in this
process's affinity mask, and the share of time that its control group grants (a container's limit).
`os.cpu_count()` knows only the first.

A fractional quota is rounded up: with 1.5 cores two workers use what one would leave unused.

A mask can be narrowed by accident: an OpenMP binding variable, an MPI launcher or a numerical library puts this
process on one core, and every worker inherits that. So the mask is held against what the control group grants, and
where it is narrower, `plan_placement` warns and names the likely cause. It doesn't widen the mask: a user who gave
this process one core (taskset) looks the same.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = ["Placement", "UsableCores", "plan_placement", "usable_cores"]

_BINDING_VARIABLES = ("OMP_PROC_BIND", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "OMP_PLACES")
_NO_BINDING = ("", "0", "false", "none", "disabled")  # values of these that bind nothing
_MPI_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_CPU_BIND")


@dataclass(frozen=True)
class UsableCores:
    """How many cores may be used, and where that number came from.

    Attributes:
        count: how many.
        cores: which: the affinity mask.
        source: what set the number, as a person reads it.
        granted: the cores that the control group, or the machine, would let this process have; empty: not known.
    """

    count: int
    cores: tuple[int, ...]
    source: str
    granted: tuple[int, ...] = ()


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
    exist = os.cpu_count() or 1
    mask = _affinity_mask() or tuple(range(exist))
    granted = _cpuset(root) or tuple(range(exist))
    quota, where = _smallest_quota(root)
    count = max(1, math.ceil(min(quota, exist)))
    if count < len(mask):
        return UsableCores(count, mask, f"{count} of {exist}: quota of {quota:g} cores in {where}", granted)
    if set(mask) == set(granted) and len(mask) < exist:
        source = f"{len(mask)} of {exist}: the control group's cpuset"
    elif len(mask) < exist:
        source = f"{len(mask)} of {exist}: affinity mask"
    else:
        source = f"all {exist} of the machine"
    return UsableCores(len(mask), mask, source, granted)


def _affinity_mask() -> tuple[int, ...]:
    """The cores this thread may run on, which its children inherit; empty where the platform has no such thing."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def _smallest_quota(root: Path) -> tuple[float, Path]:
    """The smallest CPU quota on the way from this process's control groups to their roots, in cores; else inf."""
    quotas = [(math.inf, root)]
    for controllers, group in _control_groups(root):
        if controllers == "":
            quotas.extend(_quotas_upwards(root / "sys/fs/cgroup", group, _quota_v2))
        elif "cpu" in controllers.split(","):
            for mount in ("cpu", "cpu,cpuacct", "cpuacct,cpu"):
                quotas.extend(_quotas_upwards(root / "sys/fs/cgroup" / mount, group, _quota_v1))
    return min(quotas)


def _control_groups(root: Path) -> list[tuple[str, str]]:
    """(controllers, path) of each line of /proc/self/cgroup; version 2 has no controllers there."""
    text = _read(root / "proc/self/cgroup")
    lines = [line.split(":", 2) for line in text.splitlines()]
    found = [(parts[1], parts[2].strip()) for parts in lines if len(parts) == 3]
    return found or [("", "/"), ("cpu", "/")]


def _folders(mount: Path, group: str) -> list[Path]:
    """The folders of a control group and all above it, topmost first; in a container only the mount may exist."""
    folders = [mount]
    for part in Path(group.lstrip("/")).parts:
        folders.append(folders[-1] / part)
    return folders


def _quotas_upwards(
    mount: Path, group: str, quota_of: Callable[[Path], float | None]
) -> list[tuple[float, Path]]:
    return [(quota, folder) for folder in _folders(mount, group) if (quota := quota_of(folder)) is not None]


def _quota_v2(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()
    return _ratio(*words) if len(words) == 2 else None


def _quota_v1(folder: Path) -> float | None:
    return _ratio(_read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip())


def _ratio(quota: str, period: str) -> float | None:
    if not (quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0):
        return None  # "max", -1 or nothing: no limit
    return int(quota) / int(period)


def _cpuset(root: Path) -> tuple[int, ...]:
    """The cores that this process's control group may use; empty where no group says."""
    mounts = {"": root / "sys/fs/cgroup", "cpuset": root / "sys/fs/cgroup/cpuset"}
    for controllers, group in _control_groups(root):
        for controller in mounts.keys() & controllers.split(","):
            for folder in reversed(_folders(mounts[controller], group)):
                for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
                    if cores := _core_list(_read(folder / name)):
                        return cores
    return ()


def _core_list(text: str) -> tuple[int, ...]:
    """The kernel's way to list cores: "0-2,5" is (0, 1, 2, 5)."""
    cores: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            cores.extend(range(int(first), int(last or first) + 1))
    return tuple(cores)


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
    warnings.extend(_narrowed(workers, usable, environ))
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


def _narrowed(workers: int, usable: UsableCores, environ: Mapping[str, str]) -> list[str]:
    """A warning where the mask leaves out granted cores, and somebody binds or there are more workers than cores."""
    if not set(usable.cores) < set(usable.granted):
        return []
    binding = [
        f"{name}={environ[name]}"
        for name in _BINDING_VARIABLES
        if environ.get(name, "").lower() not in _NO_BINDING
    ]
    if workers <= len(usable.cores) and not binding:
        return []
    launcher = [f"an MPI launcher ({name} is set)" for name in _MPI_VARIABLES if name in environ]
    likely = " or ".join(binding + launcher) or "a numerical library, or taskset"
    who = f"all {workers} workers share" if workers > 1 else "the only worker has"
    what = f"{'core' if len(usable.cores) == 1 else 'cores'} {', '.join(map(str, usable.cores))}"
    return [
        f"{who} {what} though {len(usable.granted)} are granted: this process may use no other, and workers "
        f"inherit that; likely narrowed by {likely}"
    ]
