"""Scheduled hyperparameters as a function of the update, worked out beforehand."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.optim import SGD, Adam, Optimizer
from torch.optim import lr_scheduler as schedulers

from wasp_local.shm.arena import Arena
from wasp_local.shm.segment import Segment
from wasp_local.store.schedule import Schedule, plan_schedule, tabulate


def two_groups(kind: type[Optimizer] = SGD, **options: float) -> Optimizer:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    return kind([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.01}], lr=0.1, **options)


MAKERS = {
    "step": lambda o: schedulers.StepLR(o, 10, 0.1),
    "lambda": lambda o: schedulers.LambdaLR(o, lambda step: 0.95**step),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, 30),
    "warm restarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 7),
    "sequence": lambda o: schedulers.SequentialLR(
        o, [schedulers.ConstantLR(o, 0.1, 5), schedulers.ExponentialLR(o, 0.9)], [5]
    ),
    "one cycle": lambda o: schedulers.OneCycleLR(o, [0.2, 0.02], total_steps=40),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_table_is_what_a_plain_loop_would_see(name: str) -> None:
    plain = two_groups(momentum=0.9)
    scheduler = MAKERS[name](plain)
    expected = []
    for _ in range(40):
        expected.append([(group["lr"], group["momentum"]) for group in plain.param_groups])
        plain.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SequentialLR warns of its own way of stepping
            scheduler.step()
    optimizer = two_groups(momentum=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names, rows = tabulate(optimizer, MAKERS[name](optimizer), 40)
    for row, wanted in zip(rows, expected, strict=True):
        for values, (lr, momentum) in zip(row, wanted, strict=True):
            assert dict(zip(names, values, strict=True)) == (
                {"lr": lr, "momentum": momentum} if "momentum" in names else {"lr": lr}
            )


def test_tabulating_leaves_optimizer_and_scheduler_as_they_were() -> None:
    optimizer = two_groups()
    scheduler = schedulers.StepLR(optimizer, 10, 0.1)
    scheduler.last_epoch = 5
    before = scheduler.state_dict() | {}, [dict(group) for group in optimizer.param_groups]
    tabulate(optimizer, scheduler, 100)
    assert (scheduler.state_dict(), [dict(group) for group in optimizer.param_groups]) == before


def test_without_a_scheduler_one_row_serves_every_update() -> None:
    names, rows = tabulate(two_groups(), None, 1000)
    assert (names, rows) == (("lr",), [[[0.1], [0.01]]])


def test_a_scheduler_that_moves_more_than_a_number_is_refused() -> None:
    optimizer = two_groups(Adam)
    scheduler = schedulers.OneCycleLR(optimizer, 0.2, total_steps=40)
    with pytest.raises(
        ValueError, match="'betas'; for OneCycleLR or CyclicLR over Adam pass cycle_momentum=False"
    ):
        tabulate(optimizer, scheduler, 40)


def test_a_row_written_is_the_row_read_and_the_last_serves_what_follows() -> None:
    arena = Arena()
    rows = [[[float(10 * row + group)] for group in range(2)] for row in range(3)]
    plan = plan_schedule(arena, ("lr",), rows)
    segment = Segment.create(arena.nbytes, purpose="test")
    schedule = Schedule(segment, plan)
    for index, row in enumerate(rows):
        schedule.write(index, row)
    assert [schedule.at(version, 1) for version in range(5)] == [
        {"lr": 1.0},
        {"lr": 11.0},
        {"lr": 21.0},
        {"lr": 21.0},
        {"lr": 21.0},
    ]
    del schedule
    segment.close()
