"""The command, whole: real runs of `wasp-local train` as someone types it, on few samples."""

from __future__ import annotations

import json
import math
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import torch

from wasp_local.models import lenet5

SAMPLES = 4000 + 640  # an epoch, so that there is an evaluation, and a bit


class Finished(NamedTuple):
    """A run that has ended."""

    code: int
    out: str
    err: str
    seconds: float
    folder: Path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "wasp_local", "train", *words]


def run(out: Path, *words: str) -> Finished:
    """Run the command with its output in files and its folder below `out`."""
    began = time.monotonic()
    with open(out / "stdout", "w+") as stdout, open(out / "stderr", "w+") as stderr:
        done = subprocess.run(command("--out", str(out / "runs"), *words), stdout=stdout, stderr=stderr)
    seconds = time.monotonic() - began
    (folder,) = (out / "runs").iterdir()
    return Finished(
        done.returncode, (out / "stdout").read_text(), (out / "stderr").read_text(), seconds, folder
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One run of two workers, at which the tests below look from all sides."""
    return run(tmp_path_factory.mktemp("finished"), "--workers", "2", "--samples", str(SAMPLES))


def test_a_run_that_went_well_has_code_0(finished):
    assert finished.code == 0, finished.err


def test_the_first_line_says_what_runs(finished):
    first = finished.err.splitlines()[0]
    assert re.match(
        r"Training \w+ \(61,706 parameters\) on 4,000 samples \(and 1,000 to test\): 2 workers ", first
    )
    assert "usable cores: " in first
    assert "wasp" in first
    assert str(finished.folder) in first


def test_a_file_gets_no_carriage_return_and_no_escape_code(finished):
    assert not re.search(r"[^\n -~]", finished.out + finished.err)


def test_there_is_at_most_one_progress_line_a_second(finished):
    lines = re.findall(r"^[\d,]+ of 4,640 samples \(", finished.err, re.MULTILINE)
    assert 1 <= len(lines) <= math.ceil(finished.seconds) + 1


def test_nothing_but_the_opening_and_the_progress_goes_to_standard_error(finished):
    _, *rest = finished.err.splitlines()
    assert all(re.match(r"[\d,]+ of 4,640 samples \(|warning: ", line) for line in rest)


def test_standard_output_is_the_summary(finished):
    for label in (
        "Test accuracy",
        "Loss",
        "Time",
        "Ended",
        "Staleness",
        "Protocol",
        "Usable cores",
        "Run folder",
    ):
        assert re.search(f"^{label} ", finished.out, re.MULTILINE), label
    assert "4,640 samples in 73 pushes" in finished.out
    figures = finished.out[: finished.out.index("Protocol ")]
    assert not re.search(r"nan|None", figures)
    assert str(finished.folder) in finished.out


def test_the_folder_holds_config_metrics_and_weights_for_its_owner_alone(finished):
    assert {each.name for each in finished.folder.iterdir()} == {"config.json", "metrics.jsonl", "weights.pt"}
    assert stat.S_IMODE(finished.folder.stat().st_mode) == 0o700


def test_the_config_is_as_run(finished):
    config = json.loads((finished.folder / "config.json").read_text())
    assert (config["workers"], config["samples"], config["epochs"]) == (2, SAMPLES, None)
    assert config["consistency"] == "locked"


def test_the_metrics_add_up(finished):
    lines = [json.loads(line) for line in (finished.folder / "metrics.jsonl").read_text().splitlines()]
    of = {
        event: [line for line in lines if line["event"] == event] for event in ("evaluation", "worker", "end")
    }
    assert sum(line["samples"] for line in of["worker"]) == SAMPLES
    assert [line["samples"] for line in of["evaluation"]] == [4000, SAMPLES]
    (end,) = of["end"]
    assert lines[-1] == end
    assert end["samples"] == SAMPLES
    assert (
        sum(end["staleness_histogram"].values())
        == end["pushes"]
        == sum(line["pushes"] for line in of["worker"])
    )


def test_the_weights_open_safely_and_a_fresh_model_loads_them(finished):
    state = torch.load(finished.folder / "weights.pt", weights_only=True)
    model = lenet5()
    model.load_state_dict(state)
    assert all(tensor.isfinite().all() for tensor in state.values())
    torch.manual_seed(0)
    assert not torch.equal(state["0.weight"], lenet5().state_dict()["0.weight"])  # they were trained


def test_quiet_prints_nothing(tmp_path):
    done = run(tmp_path, "--workers", "1", "--samples", "128", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (done.folder / "weights.pt").exists()


def test_a_wrong_value_is_answered_on_one_line_with_code_2(tmp_path):
    done = subprocess.run(command("--workers", "0", "--out", str(tmp_path)), capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"wasp-local: workers must be .*\n", done.stderr)
    assert list(tmp_path.iterdir()) == []


def under_way(out: Path, *words: str) -> subprocess.Popen[str]:
    """Start a long run and return it as soon as it has trained on something."""
    process = subprocess.Popen(
        command("--epochs", "1000", "--out", str(out), *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if " samples (" in line and not line.startswith(("Training", "0 of")):
            break
    return process


def test_ctrl_c_ends_a_run_with_code_130_and_one_line(tmp_path):
    process = under_way(tmp_path)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "wasp-local: interrupted"


def test_a_worker_that_is_killed_ends_a_run_with_code_1_and_a_sentence(tmp_path):
    process = under_way(tmp_path, "--workers", "1")
    (worker,) = (each for child in psutil.Process(process.pid).children() for each in child.children())
    worker.kill()
    out, err = process.communicate()
    assert process.returncode == 1
    assert out == ""
    assert "Traceback" not in err
    assert re.fullmatch(rf"wasp-local: worker 0 \(pid {worker.pid}\) .*killed.*", err.splitlines()[-1])
