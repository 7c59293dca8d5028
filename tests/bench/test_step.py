"""The benchmark of a step: where a worker's time goes."""

from __future__ import annotations

import json

import pytest
import step

WORKERS = [
    {"pushes": 1, "data": 1e-6, "pull": 2e-6, "compute": 93e-6, "push": 3e-6, "wait": 1e-6},
    {"pushes": 3, "data": 3e-6, "pull": 6e-6, "compute": 279e-6, "push": 9e-6, "wait": 3e-6},
]


def test_costs_are_means_over_all_steps_of_all_workers():
    costs = step.costs(WORKERS)
    assert costs["data"] == pytest.approx(1)
    assert costs["pull"] == pytest.approx(2)
    assert costs["forward and backward"] == pytest.approx(93)
    assert costs["all but forward and backward"] == pytest.approx(7)
    assert costs["whole step"] == pytest.approx(100)


@pytest.mark.slow
def test_each_part_of_a_step_has_a_row_for_one_worker_and_for_two(capsys, tmp_path):
    file = tmp_path / "out.json"
    assert step.main(["--tiny", f"--json={file}"]) == 0
    told = json.loads(file.read_text())["microseconds"]
    assert list(told) == ["ours-1", "ours-2"]
    for (costs,) in told.values():
        assert costs["forward and backward"] > 0
        assert costs["whole step"] == pytest.approx(sum(costs[part] for part in step.PARTS))
    printed = capsys.readouterr().out
    assert all(f"\n{part} " in printed for part in told["ours-1"][0])
