"""The metrics file."""

from __future__ import annotations

import json
import math

from wasp_local.events import Evaluation, Progress, Restart, WorkerId, WorkerReport
from wasp_local.report.metrics import MetricsLog

PROGRESS = Progress(1.5, 640, 40_000, 10, 0.16, math.nan, None, 0.9, 6400.0)
EVALUATION = Evaluation(2.0, 4000, 63, 1.0, 0.21, 0.93)
WORKER = WorkerReport(WorkerId(0), 4242, (0, 1), 1, 10, 640, 0.1, 0.2, 1.0, 0.1, 0.1)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def lines(path):
    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def test_every_line_is_an_object_that_says_what_it_is(tmp_path):
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        log.progress(PROGRESS)
        log.evaluation(EVALUATION)
        log.worker(WORKER)
        log.restart(Restart(WorkerId(1)))
        log.end({"stopped": "all 10 epochs done"})
    written = lines(tmp_path / "metrics.jsonl")
    assert [each["event"] for each in written] == ["progress", "evaluation", "worker", "restart", "end"]
    assert written[1] == {"event": "evaluation", **EVALUATION._asdict()}
    assert written[2]["cores"] == [0, 1]


def test_a_loss_that_is_not_finite_and_an_accuracy_that_is_missing_are_null(tmp_path):
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        log.progress(PROGRESS)
    (written,) = lines(tmp_path / "metrics.jsonl")
    assert written["loss"] is None
    assert written["accuracy"] is None


def test_a_line_is_on_disk_before_the_next_call(tmp_path):
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        for number in range(1, 4):
            log.evaluation(EVALUATION)
            assert len(lines(tmp_path / "metrics.jsonl")) == number


def test_closing_again_does_nothing(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.close()
    log.close()
