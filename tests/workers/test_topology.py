"""Which cores a run may use, on made-up machines, and how they are shared out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wasp_local.workers.topology import UsableCores, plan_placement, usable_cores

MASK = tuple(sorted(os.sched_getaffinity(0)))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def on(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """A machine of so many cores, all in the mask."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))


V2 = {"proc/self/cgroup": "0::/jobs/mine\n"}
V1 = {"proc/self/cgroup": "4:cpu,cpuacct:/jobs/mine\n3:memory:/\n"}


@pytest.mark.parametrize(
    ("files", "count", "said"),
    [
        ({}, 8, "all 8 of the machine"),
        (V2 | {"sys/fs/cgroup/jobs/mine/cpu.max": "max 100000\n"}, 8, "all 8"),
        (V2 | {"sys/fs/cgroup/jobs/mine/cpu.max": "150000 100000\n"}, 2, "2 of 8: quota of 1.5 cores in"),
        (V2 | {"sys/fs/cgroup/jobs/cpu.max": "300000 100000\n"}, 3, "sys/fs/cgroup/jobs"),
        (V2 | {"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1, "quota of 0.5 cores"),
        (
            V2
            | {
                "sys/fs/cgroup/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/jobs/mine/cpu.max": "200000 100000\n",
            },
            2,
            "jobs/mine",
        ),
        (V2 | {"sys/fs/cgroup/jobs/mine/cpu.max": "1600000 100000\n"}, 8, "all 8"),
        (V2 | {"sys/fs/cgroup/jobs/mine/cpu.max": "nonsense\n"}, 8, "all 8"),
        (
            V1
            | {
                "sys/fs/cgroup/cpu,cpuacct/jobs/mine/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu,cpuacct/jobs/mine/cpu.cfs_period_us": "100000\n",
            },
            3,
            "quota of 2.5 cores",
        ),
        (
            V1
            | {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
            "all 8",
        ),
    ],
)
def test_the_smallest_limit_counts_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], count: int, said: str
) -> None:
    on(monkeypatch, 8)
    usable = usable_cores(write(tmp_path, files))
    assert usable.count == count
    assert said in usable.source


def test_an_affinity_mask_is_kept_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert usable_cores(tmp_path) == UsableCores(2, (3, 5), "2 of 8: affinity mask")


def test_this_machine_has_a_core() -> None:
    usable = usable_cores()
    assert usable.cores == MASK
    assert 1 <= usable.count <= len(MASK)


def of(cores: int) -> UsableCores:
    return UsableCores(cores, tuple(range(cores)), "")


@pytest.mark.parametrize(
    ("cores", "workers", "threads"), [(8, 2, 4), (8, 3, 2), (8, 8, 1), (2, 8, 1), (1, 1, 1)]
)
def test_threads_are_the_cores_shared_out(cores: int, workers: int, threads: int) -> None:
    assert plan_placement(workers, of(cores), None, True, {}).threads_per_worker == threads


def test_an_argument_wins_over_the_environment_and_that_over_our_choice() -> None:
    environ = {"OMP_NUM_THREADS": "3,1"}
    assert plan_placement(2, of(8), 2, True, environ).threads_per_worker == 2
    assert plan_placement(2, of(8), None, True, environ).threads_per_worker == 3
    assert plan_placement(2, of(8), None, True, {"OMP_NUM_THREADS": "many"}).threads_per_worker == 4


def test_workers_get_cores_of_their_own_where_there_are_enough() -> None:
    assert plan_placement(3, of(8), None, True, {}).cores_of == ((0, 1), (2, 3), (4, 5))
    assert plan_placement(3, of(2), None, True, {}).cores_of == ((), (), ())
    assert plan_placement(2, of(8), None, False, {}).cores_of == ((), ())


def test_nobody_is_pinned_where_a_quota_makes_the_mask_larger_than_what_may_be_used() -> None:
    assert plan_placement(2, UsableCores(2, tuple(range(8)), ""), None, True, {}).cores_of == ((), ())


def test_too_many_threads_are_warned_about_and_told_who_asked_for_them() -> None:
    (warning,) = plan_placement(2, of(2), 4, True, {}).warnings
    assert "2 workers of 4 threads (threads=4) share 2 usable cores" in warning
    assert plan_placement(4, of(2), 1, True, {}).warnings == ()


@pytest.mark.parametrize(
    ("environ", "cause"),
    [
        ({"OMP_PROC_BIND": "close"}, "OMP_PROC_BIND=close"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "MPI launcher's binding (OMPI_COMM_WORLD_RANK is set)"),
        ({}, "a numerical library, or taskset"),
    ],
)
def test_one_core_for_all_is_warned_about_with_its_likely_cause(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], cause: str
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    (warning,) = plan_placement(2, UsableCores(1, (2,), ""), None, True, environ).warnings
    assert "all 2 workers share core 2 though the machine has 4" in warning
    assert cause in warning
