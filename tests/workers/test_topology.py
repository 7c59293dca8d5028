"""Which cores a run may use, on made-up machines, and how they are shared out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
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
    assert usable_cores(tmp_path) == UsableCores(2, (3, 5), "2 of 8: affinity mask", tuple(range(8)))


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


V1_CPUSET = {"proc/self/cgroup": "5:cpuset:/jobs/mine\n0::/\n"}


@pytest.mark.parametrize(
    ("files", "granted"),
    [
        ({}, range(8)),
        (V2 | {"sys/fs/cgroup/jobs/mine/cpuset.cpus.effective": "3,5\n"}, (3, 5)),
        (V2 | {"sys/fs/cgroup/cpuset.cpus.effective": "2-5,7\n"}, (2, 3, 4, 5, 7)),
        (V2 | {"sys/fs/cgroup/jobs/mine/cpuset.cpus.effective": "\n"}, range(8)),
        (V1_CPUSET | {"sys/fs/cgroup/cpuset/jobs/mine/cpuset.effective_cpus": "3,5\n"}, (3, 5)),
        (V1_CPUSET | {"sys/fs/cgroup/cpuset/cpuset.effective_cpus": "3-5\n"}, (3, 4, 5)),
    ],
)
def test_what_the_control_group_grants_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], granted: Sequence[int]
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    usable = usable_cores(write(tmp_path, files))
    assert usable.granted == tuple(granted)
    whose = "the control group's cpuset" if usable.granted == (3, 5) else "affinity mask"
    assert (usable.count, usable.source) == (2, f"2 of 8: {whose}")


def told_by(program: str, **environ: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(os.environ) | environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(len(MASK) < 2, reason="needs two cores")
def test_a_process_narrowed_to_one_core_has_one_and_two_workers_are_warned() -> None:
    program = (
        "import os\n"
        "from wasp_local.workers.topology import plan_placement, usable_cores\n"
        f"os.sched_setaffinity(0, [{MASK[-1]}])\n"
        "usable = usable_cores()\n"
        "print(usable.count, usable.cores, usable.source)\n"
        "print(plan_placement(1, usable, None, True, {}).warnings)\n"
        "print(*plan_placement(2, usable, None, True, {}).warnings)\n"
    )
    usable, one, two = told_by(program)
    assert usable == f"1 ({MASK[-1]},) 1 of {os.cpu_count()}: affinity mask"
    assert one == "()"
    assert f"all 2 workers share core {MASK[-1]} though" in two


@pytest.mark.skipif(len(MASK) < 2, reason="needs two cores")
def test_an_openmp_binding_that_takes_the_cores_away_is_named_even_to_one_worker() -> None:
    program = (
        "import os, torch\n"
        "from wasp_local.workers.topology import plan_placement, usable_cores\n"
        "torch.ones(300, 300) @ torch.ones(300, 300)\n"
        "usable = usable_cores()\n"
        "print(usable.count)\n"
        "print(*plan_placement(usable.count, usable, None, True, os.environ).warnings)\n"
    )
    count, warning = told_by(program, OMP_PROC_BIND="close")
    assert count == "1"
    assert warning.startswith("the only worker has core ")
    assert warning.endswith("likely narrowed by OMP_PROC_BIND=close")


ONE_OF_FOUR = UsableCores(1, (2,), "", granted=(0, 1, 2, 3))


@pytest.mark.parametrize(
    ("environ", "cause"),
    [
        ({"OMP_PROC_BIND": "close"}, "OMP_PROC_BIND=close"),
        ({"OMP_PROC_BIND": "FALSE", "GOMP_CPU_AFFINITY": "2"}, "narrowed by GOMP_CPU_AFFINITY=2"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "an MPI launcher (OMPI_COMM_WORLD_RANK is set)"),
        ({}, "a numerical library, or taskset"),
    ],
)
def test_one_core_for_all_is_warned_about_with_its_likely_cause(environ: dict[str, str], cause: str) -> None:
    (warning,) = plan_placement(2, ONE_OF_FOUR, None, True, environ).warnings
    assert "all 2 workers share core 2 though 4 are granted" in warning
    assert warning.endswith(cause)


def test_a_mask_that_the_user_may_have_meant_is_not_warned_about() -> None:
    assert plan_placement(1, ONE_OF_FOUR, None, True, {"OMP_PROC_BIND": "false"}).warnings == ()
    assert plan_placement(1, ONE_OF_FOUR, None, True, {"OMPI_COMM_WORLD_RANK": "0"}).warnings == ()


def test_cores_that_nobody_granted_are_not_missed() -> None:
    bound = {"OMP_PROC_BIND": "close"}
    assert plan_placement(2, UsableCores(1, (2,), "", granted=(2,)), None, True, bound).warnings == ()
    assert plan_placement(2, UsableCores(1, (2,), ""), None, True, bound).warnings == ()
