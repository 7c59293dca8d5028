"""The summary that ends a run."""

from __future__ import annotations

import json
import math
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasp_local.events import Evaluation, WorkerId, WorkerReport
from wasp_local.report.json_text import json_text
from wasp_local.report.summary import Result


def worker(number: int, **changed: object) -> WorkerReport:
    whole = WorkerReport(
        WorkerId(number), 100 + number, (number,), 1, 312, 20_000, 0.1, 0.2, 9.2, 0.3, 0.15, 0.05
    )
    return whole._replace(**changed)  # type: ignore[arg-type]


def result(**changed: object) -> Result:
    given: dict[str, object] = {
        "accuracy": 0.9861,
        "loss": 0.0123,
        "test_loss": 0.0512,
        "samples": 40_000,
        "updates": 625,
        "pushes": 625,
        "syncs": 2,
        "seconds": 4.71,
        "samples_per_second": 8490.0,
        "staleness_histogram": {0: 14, 1: 600, 2: 11},
        "staleness_mean": 0.995,
        "workers": (worker(0), worker(1, cores=(2, 3))),
        "stopped": "all 10 epochs done",
        "protocol": "wasp",
        "cores": "2 of 8",
        "run_folder": Path("runs/one"),
    }
    return Result(**{**given, **changed})  # type: ignore[arg-type]


def test_the_summary_of_a_run_is_this_page():
    assert (
        str(result())
        == """\
Test accuracy  98.61 %
Loss           0.0123 in training, 0.0512 on the test set
Time           4.71 s, 8,490 samples/s
Work           40,000 samples in 625 pushes, 625 updates, 2 forced syncs
Ended          all 10 epochs done

Staleness      mean 0.99 updates between a worker's pull and its push
  tau  pushes
    0      14    2.2 %  #
    1     600   96.0 %  ############################################
    2      11    1.8 %  #

Where the workers' time went, in %
            data  pull  compute  push  test  wait  pushes  samples  cores
  mean       1.0   2.0     92.0   3.0   0.5   1.5     312   20,000
  worker 0   1.0   2.0     92.0   3.0   0.5   1.5     312   20,000      0
  worker 1   1.0   2.0     92.0   3.0   0.5   1.5     312   20,000    2-3

Protocol       wasp
Usable cores   2 of 8
Run folder     runs/one"""
    )


def test_a_regression_without_a_test_set_says_nothing_of_either():
    text = str(result(accuracy=None, test_loss=None))
    assert "accuracy" not in text
    assert "test set" not in text
    assert text.startswith("Loss           0.0123 in training\n")


def test_a_better_accuracy_on_the_way_is_told():
    scores = [(1.0, 0.95), (7.0, 0.9902), (10.0, 0.9861)]
    seen = tuple(Evaluation(epoch, 4000, 63, epoch, 0.1, accuracy) for epoch, accuracy in scores)
    assert "98.61 % (best 99.02 %, after epoch 7)" in str(result(evaluations=seen))
    assert "best" not in str(result(evaluations=seen[-1:]))


def test_dropped_gradients_and_shared_memory_are_told_where_there_are_any():
    text = str(result(dropped=1234, shared_bytes=34_567_890))
    assert "625 pushes (1,234 more dropped)" in text
    assert "Shared memory  34.6 MB" in text
    assert "dropped" not in str(result())
    assert "Shared memory" not in str(result())


def test_a_long_tail_is_grouped_and_no_push_is_left_out():
    histogram = dict.fromkeys(range(40), 100) | {40: 1, 500: 2, 9000: 1}
    text = str(result(staleness_histogram=histogram))
    rows = re.findall(r"^ +(>=\d+|\d+-\d+|\d+) +([\d,]+) +[<\d]", text, re.MULTILINE)
    assert len(rows) <= 12
    assert rows[0][0] == "0-3"
    assert rows[-1] == (">=40", "4")
    assert sum(int(number.replace(",", "")) for _, number in rows) == sum(histogram.values())


def test_staleness_far_from_zero_starts_where_it_is():
    text = str(result(staleness_histogram={15: 90, 17: 10}))
    assert re.findall(r"^ +(\d+) +(\d+) .*%", text, re.MULTILINE) == [("15", "90"), ("16", "0"), ("17", "10")]


def test_a_rare_staleness_has_a_dot_and_one_that_never_came_has_nothing():
    text = str(result(staleness_histogram={0: 9999, 2: 1}))
    assert "    1       0    0.0 %\n    2       1   <0.1 %  .\n" in text


def test_no_push_is_said_in_words():
    assert "Staleness      no push took effect" in str(result(staleness_histogram={}, pushes=0))


def test_many_workers_are_cut_and_the_rest_counted():
    text = str(result(workers=tuple(worker(number) for number in range(64))))
    assert "worker 15" in text
    assert "worker 16" not in text
    assert "... and 48 more workers" in text


def test_a_worker_without_time_has_dashes():
    idle = worker(0, data=0.0, pull=0.0, compute=0.0, push=0.0, wait=0.0, evaluate=0.0, pushes=0, samples=0)
    assert re.search(r"worker 0 +- +- +- +- +- +- +0 +0 +0$", str(result(workers=(idle,))), re.MULTILINE)


def test_one_worker_has_no_row_of_the_mean():
    assert not re.search("^  mean ", str(result(workers=(worker(0),))), re.MULTILINE)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_run_that_diverged_says_so(value):
    assert "Loss           not finite in training" in str(result(loss=value))


not_finite = st.sampled_from([math.nan, math.inf, -math.inf])
shares = st.none() | st.floats(0, 1) | not_finite
losses = st.none() | st.floats()
speeds = st.floats(0, 1e7) | not_finite
histograms = st.dictionaries(st.integers(0, 10_000), st.integers(0, 10**7), max_size=60)
reports = st.builds(
    WorkerReport,
    st.integers(0, 99).map(WorkerId),
    st.integers(1, 99_999),
    st.lists(st.integers(0, 255), max_size=40).map(tuple),
    st.integers(1, 64),
    st.integers(0, 10**6 - 1),
    st.integers(0, 10**7 - 1),
    *[st.floats(0, 1e6)] * 6,
)


@given(shares, losses, losses, histograms, st.lists(reports, max_size=20).map(tuple), speeds)
def test_any_result_prints_within_80_columns_without_nan_or_none(
    accuracy, loss, test_loss, taus, workers, speed
):
    page = result(
        accuracy=accuracy,
        loss=loss,
        test_loss=test_loss,
        staleness_histogram=taus,
        staleness_mean=speed,
        workers=workers,
        samples_per_second=speed,
    )
    text = str(page)
    assert not re.search(r"nan|none|\binf\b", text, re.IGNORECASE)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_it_goes_to_json_and_pickle_whole():
    seen = json.loads(json_text(result(loss=math.nan).as_dict()))
    assert seen["loss"] is None
    assert seen["staleness_histogram"] == {"0": 14, "1": 600, "2": 11}
    assert seen["run_folder"] == "runs/one"
    assert seen["workers"][1]["cores"] == [2, 3]
    assert pickle.loads(pickle.dumps(result())) == result()


def test_its_repr_is_short():
    assert repr(result()) == "Result(accuracy=0.9861, samples=40000, updates=625, seconds=4.71)"
    assert repr(result(accuracy=None)) == "Result(samples=40000, updates=625, seconds=4.71)"
