"""The benchmark of throughput: what it compares, in which order, and that every rival runs."""

from __future__ import annotations

import json

import pytest
import throughput
from measure import Measurement
from peers import LIMIT, OURS, RIVALS, Rival


@pytest.fixture
def measured(monkeypatch):
    """Rivals that take no time; the names of those measured, in order."""
    order = []
    titles = {rival.title: name for name, rival in RIVALS.items()}

    def pretend(rival, settings, environment):
        name = titles[rival.title]
        order.append(name)
        rate = 1000.0 * len(order) * (2 if name == OURS else 1)
        told = {"samples": settings.samples, "samples_of_each": [settings.samples], "steady_seconds": 1.0}
        return Measurement(seconds=5.0, told={**told, "samples_per_second": rate, "loss": 0.5})

    monkeypatch.setattr(throughput, "measure", pretend)
    return order


def test_each_round_begins_with_another_rival(measured, tmp_path):
    throughput.main(["--rounds=3", f"--data-root={folder_of_mnist(tmp_path)}", "--only", OURS, LIMIT, "ddp"])
    assert measured == [OURS, LIMIT, "ddp", LIMIT, "ddp", OURS, "ddp", OURS, LIMIT]


def test_ratios_compare_what_was_measured_in_the_same_round(measured, tmp_path):
    file = tmp_path / "out.json"
    data = folder_of_mnist(tmp_path)
    throughput.main(["--rounds=3", f"--data-root={data}", f"--json={file}", "--only", OURS, LIMIT])
    rivals = json.loads(file.read_text())["rivals"]
    assert rivals[OURS]["samples_per_second"] == [2000.0, 8000.0, 10000.0]
    assert rivals[LIMIT]["samples_per_second"] == [2000.0, 3000.0, 6000.0]
    assert rivals[OURS]["of_limit"] == pytest.approx([5 / 3, 1.0, 8 / 3])
    assert rivals[LIMIT]["ours_over_it"] == rivals[OURS]["of_limit"]


def test_a_rival_that_fails_is_told_and_the_others_go_on(monkeypatch, capsys, tmp_path):
    broken = Rival("broken", "no_such_module", 1, 1, "ends at once")
    monkeypatch.setitem(RIVALS, "loop-1", broken)
    monkeypatch.setitem(RIVALS, "loop-2", broken)
    file = tmp_path / "out.json"
    assert throughput.main(["--tiny", f"--json={file}", "--only", "loop-1", "loop-2"]) == 1
    assert "FAILED loop-2: it ended with exit code 1" in capsys.readouterr().out
    told = json.loads(file.read_text())
    assert "no_such_module" in told["failed"]["loop-1"]
    assert told["rivals"]["loop-1"]["samples_per_second"] == []


def test_an_unknown_rival_is_refused(capsys):
    with pytest.raises(SystemExit):
        throughput.main(["--only", "nobody"])
    assert "invalid choice: 'nobody'" in capsys.readouterr().err


@pytest.mark.slow
def test_every_rival_runs_and_trains_the_same_number_of_samples(capsys, tmp_path):
    file = tmp_path / "out.json"
    assert throughput.main(["--tiny", f"--json={file}"]) == 0
    told = json.loads(file.read_text())
    assert list(told["rivals"]) == list(RIVALS)
    for name, row in told["rivals"].items():
        assert row["samples"] == [told["samples"]], name
        assert len(row["samples_of_each"][0]) == RIVALS[name].processes, name
        assert row["seconds"][0] > 0, name
        assert row["loss"][0] < 3, name  # ten classes: 2.3 is where it starts
    printed = capsys.readouterr().out
    for name, rival in RIVALS.items():
        rows = [line for line in printed.splitlines() if line.startswith(f"{name}: {rival.title}")]
        assert len(rows) == 2, name  # throughput, and seconds of the whole run


def folder_of_mnist(folder):
    (folder / "MNIST" / "raw").mkdir(parents=True)
    return folder
