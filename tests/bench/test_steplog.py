"""What a worker records of its steps, and the throughput that follows from it."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import torch
from peers.steplog import RecordedLoss, last_loss, read_logs, steady


def log_of(times, batch=64, loss=1.0):
    return np.array([[time, batch, loss] for time in times])


def test_the_window_opens_when_the_last_worker_is_warm_and_shuts_when_the_first_is_done():
    early = log_of(np.arange(0, 11))  # a step a second, warm at 2
    late = log_of(np.arange(5, 16))  # the same, warm at 7
    window = steady([early, late], warm_up=2)
    assert window.seconds == pytest.approx(10 - 7)
    assert window.samples_per_second == pytest.approx(2 * 64)


def test_first_steps_that_took_long_do_not_count():
    slow_start = np.concatenate([[0, 100], 100 + np.arange(1, 11)])
    assert steady([log_of(slow_start)], warm_up=1).samples_per_second == pytest.approx(64)
    assert steady([log_of(slow_start)], warm_up=0).samples_per_second < 10


def test_a_step_across_the_edge_of_the_window_counts_in_part():
    quick, slow = log_of(np.arange(0, 10.5, 0.5)), log_of([0, 4, 8, 12])  # the window: 0 to 10
    window = steady([quick, slow], warm_up=0)
    assert window.samples_per_second * window.seconds == pytest.approx(64 * (20 + 2.5))


def test_workers_that_were_never_busy_at_the_same_time_have_no_common_throughput():
    assert steady([log_of([0, 1, 2]), log_of([3, 4, 5])], warm_up=0) is None
    assert steady([log_of([0, 1, 2]), log_of([0])], warm_up=1) is None
    assert steady([], warm_up=0) is None


def test_the_recorded_loss_is_cross_entropy_and_leaves_a_row_a_step(tmp_path):
    output, target = torch.randn(8, 10), torch.arange(8)
    loss = RecordedLoss(tmp_path, steps=5)
    values = [loss(output, target), loss(output[:3], target[:3])]
    assert values[0] == torch.nn.functional.cross_entropy(output, target)
    (log,) = read_logs(tmp_path)
    assert log[:, 1].tolist() == [8, 3]
    assert log[:, 2].tolist() == [value.item() for value in values]
    assert log[0, 0] <= log[1, 0]
    assert [path.name for path in tmp_path.iterdir()] == [f"steps-{os.getpid()}"]


def test_the_recorded_loss_travels_without_what_it_recorded(tmp_path):
    loss = RecordedLoss(tmp_path, steps=5)
    loss(torch.randn(2, 10), torch.zeros(2, dtype=torch.int64))
    copy = pickle.loads(pickle.dumps(loss))
    assert (copy.folder, copy.steps, copy._words) == (tmp_path, 5, None)


def test_a_final_loss_that_is_no_number_is_told_as_none():
    assert last_loss([log_of([0, 1], loss=2.0), log_of([0, 1], loss=4.0)]) == 3.0
    assert last_loss([log_of([0, 1], loss=float("nan"))]) is None
