"""How much memory may still be taken, on made-up machines."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from wasp_local.shm.free_memory import free_bytes

V2 = {"proc/self/cgroup": "0::/jobs/mine\n"}
V1 = {"proc/self/cgroup": "4:cpu,cpuacct:/jobs\n3:memory:/jobs/mine\n0::/\n"}
TOP, MINE = "sys/fs/cgroup", "sys/fs/cgroup/jobs/mine"
V1_TOP, V1_MINE = "sys/fs/cgroup/memory", "sys/fs/cgroup/memory/jobs/mine"


def group(folder: str, limit: str, used: str, stat: str = "") -> dict[str, str]:
    return {
        f"{folder}/memory.max": limit,
        f"{folder}/memory.current": used,
        f"{folder}/memory.stat": stat,
    }


def group_v1(folder: str, limit: str, used: str, stat: str = "") -> dict[str, str]:
    return {
        f"{folder}/memory.limit_in_bytes": limit,
        f"{folder}/memory.usage_in_bytes": used,
        f"{folder}/memory.stat": stat,
    }


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 1000),
        (V2, 1000),
        (V2 | group(TOP, "100\n", "30\n"), 70),
        (V2 | group(MINE, "100\n", "30\n"), 70),
        (V2 | group("sys/fs/cgroup/jobs", "100\n", "30\n"), 70),
        (V2 | group(TOP, "500\n", "450\n") | group(MINE, "100\n", "30\n"), 50),
        (V2 | group(MINE, "max\n", "30\n"), 1000),
        (V2 | group(MINE, "100\n", "130\n"), 0),
        (V2 | group(MINE, "9000\n", "30\n"), 1000),
        (V2 | {f"{MINE}/memory.max": "100\n"}, 1000),
        (V1 | group_v1(V1_MINE, "100\n", "30\n"), 70),
        (V1 | group_v1(V1_TOP, "100\n", "30\n"), 70),
        (V1 | group_v1(V1_MINE, "9223372036854771712\n", "30\n"), 1000),
        (V1 | group(MINE, "100\n", "30\n"), 1000),  # counts another group's memory
    ],
)
def test_the_group_that_leaves_least_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], free: int
) -> None:
    assert free_on(tmp_path, monkeypatch, files) == free


@pytest.mark.parametrize(
    "files",
    [
        V2 | group(MINE, "100", "90", "anon 10\nfile 80\ninactive_file 40\nactive_file 20\n"),
        V1
        | group_v1(
            V1_MINE, "100", "90", "active_file 1\ntotal_inactive_file 40\ntotal_active_file 20\ntotal_rss 5\n"
        ),
    ],
)
def test_pages_of_files_that_were_read_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]
) -> None:
    assert free_on(tmp_path, monkeypatch, files) == 70


def test_this_machine_has_some() -> None:
    assert 0 < free_bytes() <= psutil.virtual_memory().total


def free_on(root: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> int:
    """What is free on a machine that has 1000 bytes and these files."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return free_bytes(root)
