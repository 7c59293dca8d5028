"""A loop of one's own: batches each to one worker, cuts between batches, what comes back."""

from __future__ import annotations

import logging
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Counter, classes, numbers, perceptron
from torch import nn
from torch.optim import SGD

import wasp_local as wl
from wasp_local.data.plan import BatchPlan


def launch(train_fn: Any, model: nn.Module | None = None, lr: float = 0.05, **told: Any) -> list[Any]:
    model = perceptron() if model is None else model
    optimizer = SGD(model.parameters(), lr)
    return wl.launch(train_fn, model=model, optimizer=optimizer, threads=1, **told)


def test_every_item_goes_to_exactly_one_worker_each_epoch() -> None:
    def train(worker: Any) -> list[int]:
        seen = []
        for _, targets in worker.batches(numbers(100), batch_size=7, epochs=2):
            seen += targets.tolist()
            worker.step(worker.model(targets.float()))
        return seen

    returned = launch(train, Counter(), workers=4)
    assert len(returned) == 4
    assert sorted(chain(*returned)) == sorted(2 * list(range(100)))


@pytest.mark.parametrize("workers", [1, 3])
def test_the_seed_alone_sets_which_samples_are_in_a_batch(workers: int) -> None:
    def train(worker: Any) -> list[tuple[int, ...]]:
        seen = []
        for _, targets in worker.batches(numbers(40), batch_size=8, epochs=2):
            seen.append(tuple(targets.tolist()))
            worker.step(worker.model(targets.float()))
        return seen

    plan = BatchPlan.for_epochs(2, samples=40, batch_size=8, seed=5)
    expected = {tuple(plan.indices(batch).tolist()) for batch in range(10)}
    assert set(chain(*launch(train, Counter(), workers=workers, seed=5))) == expected


def test_after_a_forced_sync_every_worker_holds_all_pushes_before_it() -> None:
    # the pulled parameter is minus the version, so a batch shows the version it was computed at
    every = 6

    def train(worker: Any) -> list[tuple[int, int]]:
        seen = []
        for _, targets in worker.batches(numbers(60), batch_size=1, epochs=1, shuffle=False):
            seen.append((targets.item(), -int(worker.model.total.item())))
            worker.step(worker.model(targets.float()))
        return seen

    model = Counter()
    returned = launch(train, model, lr=1.0, workers=3, protocol=wl.asp(sync_every=every))
    batches = dict(chain(*returned))
    assert sorted(batches) == list(range(60))
    for batch, version in batches.items():
        assert batch // every * every <= version <= batch
    assert model.total.item() == -60


@pytest.mark.parametrize("slack", [0, 1, 3])
def test_no_worker_runs_more_than_the_slack_ahead(slack: int) -> None:
    def train(worker: Any) -> int:
        furthest = 0
        for _, targets in worker.batches(numbers(90), batch_size=1):
            driver = worker._driver
            furthest = max(furthest, driver.clock - driver.fewest_clock)
            time.sleep(0.002 * worker.id)
            worker.step(worker.model(targets.float()))
        return furthest

    furthest = launch(train, Counter(), workers=3, protocol=wl.ssp(slack=slack))
    assert max(furthest) <= slack
    assert slack == 0 or max(furthest) > 0


@pytest.mark.parametrize("protocol", ["bsp", "softsync"])
def test_a_worker_that_leaves_early_holds_up_nobody(protocol: str) -> None:
    def train(worker: Any) -> int:
        trained = 0
        for _, targets in worker.batches(numbers(30), batch_size=1):
            if worker.id == 1 and trained == 2:
                break
            worker.step(worker.model(targets.float()))
            trained += 1
        return trained

    returned = launch(train, Counter(), workers=3, protocol=protocol)
    assert returned[1] <= 2
    assert 28 <= sum(returned) <= 30


def test_a_batch_that_is_not_stepped_is_skipped() -> None:
    def train(worker: Any) -> int:
        stepped = 0
        for _, targets in worker.batches(numbers(20), batch_size=1):
            if targets.item() % 2:
                worker.step(worker.model(targets.float()))
                stepped += 1
        return stepped

    model = Counter()
    assert sum(launch(train, model, lr=1.0, workers=2, protocol=wl.asp(sync_every=4))) == 10
    assert model.total.item() == -10


def test_several_loops_follow_each_other() -> None:
    def train(worker: Any) -> tuple[int, int]:
        counts = []
        for _ in range(2):
            seen = 0
            for _, targets in worker.batches(numbers(24), batch_size=2):
                worker.step(worker.model(targets.float()))
                seen += len(targets)
            counts.append(seen)
        return counts[0], counts[1]

    returned = launch(train, Counter(), workers=3, protocol=wl.wasp(sync_every=5))
    assert [sum(column) for column in zip(*returned, strict=True)] == [24, 24]


def test_the_replica_is_private_and_stands_still_during_a_batch() -> None:
    def train(worker: Any) -> bool:
        still = True
        for inputs, targets in worker.batches(classes(), batch_size=8, epochs=4):
            before = [parameter.detach().clone() for parameter in worker.model.parameters()]
            loss = nn.functional.cross_entropy(worker.model(inputs), targets)
            loss.backward(retain_graph=True)
            after = list(worker.model.parameters())
            still &= all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
            worker.model.zero_grad()
            worker.step(nn.functional.cross_entropy(worker.model(inputs), targets))
        shared = [
            line.split("-") for line in Path("/proc/self/maps").read_text().splitlines() if " rw-s " in line
        ]
        spans = [(int(start, 16), int(end.split()[0], 16)) for start, end, *_ in shared]
        addresses = [parameter.data_ptr() for parameter in worker.model.parameters()]
        return still and not any(low <= at < high for at in addresses for low, high in spans)

    assert launch(train, workers=3) == [True, True, True]


def test_what_workers_print_and_log_carries_their_number(capfd: pytest.CaptureFixture[str]) -> None:
    def train(worker: Any) -> None:
        print("printed by", worker.id)
        logging.basicConfig(level=logging.INFO, stream=sys.stderr)
        logging.info("logged by %d", worker.id)
        import os

        os.write(1, b"written without an end")

    launch(train, workers=2)
    out, err = capfd.readouterr()
    for worker in (0, 1):
        assert f"[worker {worker}] printed by {worker}\n" in out
        assert f"[worker {worker}] written without an end\n" in out
        assert f"[worker {worker}] INFO:root:logged by {worker}\n" in err


def test_step_without_a_batch_is_refused() -> None:
    def train(worker: Any) -> None:
        worker.step(torch.zeros((), requires_grad=True))

    with pytest.raises(wl.WorkerFailed, match=r"must be called once for each batch of worker\.batches"):
        launch(train, workers=1)


def test_what_train_fn_returns_may_be_a_tensor_or_a_local_class() -> None:
    class Local:
        value = 3

    def train(worker: Any) -> Any:
        return torch.arange(worker.id + 1), Local()

    returned = launch(train, workers=2)
    assert [len(tensor) for tensor, _ in returned] == [1, 2]
    assert [local.value for _, local in returned] == [3, 3]


def meet(worker: Any, folder: Path) -> None:
    """Wait until every worker is here, so that each of them has a batch in its hands."""
    (folder / str(worker.id)).touch()
    while len(list(folder.iterdir())) < worker.workers:
        time.sleep(0.001)


@pytest.mark.parametrize("protocol", ["bsp", "softsync", "ssp", "wasp"])
@pytest.mark.parametrize("samples", [3, 4, 5])
def test_loops_follow_each_other_though_a_worker_is_slow(tmp_path: Path, protocol: str, samples: int) -> None:
    def train(worker: Any) -> list[tuple[int, int]]:
        seen = []
        for loop in range(4):
            for batch, (_, targets) in enumerate(worker.batches(numbers(samples), batch_size=1)):
                if loop == batch == 0:
                    meet(worker, tmp_path)
                time.sleep(0.02 * worker.id)
                worker.step(worker.model(targets.float()))
                seen.append((loop, targets.item()))
        return seen

    model = Counter()
    returned = launch(train, model, lr=1.0, workers=2, protocol=protocol)
    assert sorted(chain(*returned)) == [(loop, item) for loop in range(4) for item in range(samples)]
    if protocol == "bsp":
        assert model.total.item() == -4 * -(-samples // 2)


@pytest.mark.parametrize("protocol", ["bsp", "softsync", wl.asp(sync_every=4)], ids=str)
def test_a_loop_that_all_workers_leave_early_is_over(tmp_path: Path, protocol: Any) -> None:
    def train(worker: Any) -> list[int]:
        seen = []
        for loop in range(3):
            for batch, (_, targets) in enumerate(worker.batches(numbers(50), batch_size=1, shuffle=False)):
                if loop == batch == 0:
                    meet(worker, tmp_path)
                worker.step(worker.model(targets.float()))
                seen.append(targets.item())
                if batch == 2:
                    break
        return seen

    returned = launch(train, Counter(), workers=2, protocol=protocol)
    taken = list(chain(*returned))
    assert max(taken) < 10
    assert 3 * 3 <= len(taken) <= 2 * 3 * 3


def test_a_worker_that_was_away_begins_its_next_loop_on_new_parameters(tmp_path: Path) -> None:
    # the pulled parameter is minus the version
    def train(worker: Any) -> int:
        for _, targets in worker.batches(numbers(2), batch_size=1):
            meet(worker, tmp_path)
            worker.step(worker.model(targets.float()))
        if worker.id == 1:
            while not (tmp_path / "done").exists():
                time.sleep(0.001)
        behind = 0
        for _, targets in worker.batches(numbers(40), batch_size=1):
            behind = max(behind, worker._driver.version + int(worker.model.total.item()))
            worker.step(worker.model(targets.float()))
            if worker.id == 0 and worker._driver.version == 30:
                (tmp_path / "done").touch()
                while worker._driver.claimed < 42 and worker._driver._control.workers[1].clock < 2:
                    time.sleep(0.001)
        return behind

    behind = launch(train, Counter(), lr=1.0, workers=2, protocol="asp")
    assert behind[1] <= 2
