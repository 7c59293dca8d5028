"""The first line of a run."""

from __future__ import annotations

from pathlib import Path

from wasp_local.report.opening import opening

GIVEN = {
    "model": "lenet5",
    "parameters": 61_706,
    "train": 4000,
    "test": 1000,
    "cores_of": [(0,), (1,)],
    "threads": 1,
    "cores": "2 of 8: cgroup quota",
    "protocol": "wasp(sync_every=256)",
    "run_folder": Path("runs/one"),
}


def line(**changed: object) -> str:
    return opening(**{**GIVEN, **changed})  # type: ignore[arg-type]


def test_the_line_says_what_runs_where_and_how():
    assert line() == (
        "Training lenet5 (61,706 parameters) on 4,000 samples (and 1,000 to test): "
        "2 workers with 1 thread each, pinned to cores 0-1 (usable cores: 2 of 8: cgroup quota), "
        "protocol wasp(sync_every=256), run folder runs/one"
    )


def test_one_worker_is_told_in_the_singular():
    assert "1 worker with 2 threads, pinned to cores 0-1 (" in line(cores_of=[(0, 1)], threads=2)
    assert "1 worker with 1 thread, pinned to core 3 (" in line(cores_of=[(3,)])


def test_what_a_run_has_not_is_said_or_left_out():
    text = line(test=None, cores_of=[(), (), ()], run_folder=None)
    assert "on 4,000 samples: 3 workers with 1 thread each, not pinned (" in text
    assert text.endswith(", no run folder")
