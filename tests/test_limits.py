"""Small machines: few descriptors, little memory, one core, quotas; and what workers are told about threads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import psutil
import pytest
import torch
from runs import Counter, classes, numbers, perceptron
from torch import nn
from torch.optim import SGD

import wasp_local as wl
from wasp_local.shm import segment

MANY_TENSORS = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import torch, wasp_local as wl
model = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(300)])
result = wl.Trainer(model, optimizer=torch.optim.SGD(model.parameters(), 1e-3), workers=2, threads=1, steps=20,
                    batch_size=4, quiet=True).fit((torch.randn(64, 2), torch.randint(0, 2, (64,))))
print(result.updates)
"""
ONE_CORE = """
import os, torch
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import wasp_local as wl
model = torch.nn.Linear(2, 2)
told = dict(optimizer=torch.optim.SGD(model.parameters(), 1e-3), steps=4, batch_size=4)
print(wl.Trainer(model, **told).config.workers)
result = wl.Trainer(model, workers=2, **told).fit((torch.randn(64, 2), torch.randint(0, 2, (64,))))
print([report.cores for report in result.workers], result.cores)
"""


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done


def descriptors_of(worker: Any) -> list[int]:
    counts = []
    for batch, (_, targets) in enumerate(worker.batches(numbers(200), batch_size=1)):
        if batch in (5, 90):
            counts.append(len(os.listdir("/proc/self/fd")))
        worker.step(worker.model(targets.float()))
    return counts


def test_six_hundred_tensors_need_no_descriptor_each() -> None:
    assert run(MANY_TENSORS).stdout == "20\n"


def test_a_worker_opens_nothing_more_as_it_goes_on() -> None:
    model = Counter()
    (counts,) = wl.launch(
        descriptors_of, model=model, optimizer=SGD(model.parameters(), 0.1), workers=1, threads=1
    )
    assert len(counts) == 2
    assert counts[0] == counts[1]


def test_too_little_memory_is_told_before_any_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "free_bytes", lambda: 1000)
    model = perceptron()
    trainer = wl.Trainer(model, optimizer=SGD(model.parameters(), 0.1), workers=2, quiet=True)
    with pytest.raises(wl.Shortage, match=r"needs .* 1,?000"):
        trainer.fit(classes())
    assert psutil.Process().children() == []


@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "fork"])
def test_threads_of_all_workers_together_are_no_more_than_the_cores(start_method: str) -> None:
    def train(worker: Any) -> int:
        return torch.get_num_threads()

    model = Counter()
    told: dict[str, Any] = {"model": model, "optimizer": SGD(model.parameters(), 0.1)}
    cores = len(os.sched_getaffinity(0))
    threads = wl.launch(train, workers=2, start_method=start_method, **told)
    assert all(1 <= each <= max(1, cores // 2) for each in threads)


def test_the_users_own_number_of_threads_wins() -> None:
    def train(worker: Any) -> int:
        return torch.get_num_threads()

    model = Counter()
    assert wl.launch(train, model=model, optimizer=SGD(model.parameters(), 0.1), workers=2, threads=3) == [
        3,
        3,
    ]


def test_on_one_core_there_is_one_worker_and_more_are_warned_about() -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs a machine of two cores to hide one")
    done = run(ONE_CORE, OMP_PROC_BIND="close")
    core = min(os.sched_getaffinity(0))
    assert done.stdout.splitlines()[0] == "1"
    assert f"[({core},), ({core},)]" in done.stdout
    assert f"warning: all 2 workers share core {core}" in done.stderr
    assert "OMP_PROC_BIND=close" in done.stderr


def test_openmps_binding_is_undone_or_warned_about() -> None:
    # with this variable, torch's import may leave the process, and so all its children, one core
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    done = run(
        ONE_CORE.replace("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})", "pass"),
        OMP_PROC_BIND="close",
    )
    reported = done.stdout.splitlines()[-1]
    shares_one = len(set(re.findall(r"\(\d+(?:, \d+)*,?\)", reported))) == 1
    assert shares_one == ("warning: all 2 workers share core" in done.stderr)
    assert not shares_one or "OMP_PROC_BIND=close" in done.stderr


def test_zero_size_and_scalar_parameters_train_along() -> None:
    model = nn.Module()
    model.scalar = nn.Parameter(torch.tensor(1.0))
    model.empty = nn.Parameter(torch.zeros(0, 3))

    def train(worker: Any) -> None:
        for _, targets in worker.batches(numbers(8), batch_size=1):
            worker.step(worker.model.scalar * targets.sum() + worker.model.empty.sum())

    wl.launch(train, model=model, optimizer=SGD(model.parameters(), 0.01), workers=2, threads=1)
    assert model.scalar.item() == pytest.approx(1 - 0.01 * sum(range(8)) * 0.5, abs=0.3)
