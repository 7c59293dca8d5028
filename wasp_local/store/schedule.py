"""Hyperparameters as a function of the store's version, read by whoever makes an update.

The one thing to know: a learning-rate schedule counts updates of the store, whichever worker makes them. Its
values for the whole run are worked out beforehand by stepping the user's scheduler, so that a push reads one row
of a table and no worker steps a scheduler of its own.

word          | written by                     | read by | order relied on           | after a kill it means
table (row u) | the coordinator, before a run  | pushes  | whole before workers start | settings of update u
table (row 0) | the coordinator, during a cut  | pushes  | no push runs in a cut      | settings since that cut
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from wasp_local.shm.arena import Arena
from wasp_local.shm.segment import Segment

__all__ = ["Schedule", "SchedulePlan", "plan_schedule", "settings_now", "tabulate"]

Row = list[list[float]]  # for each param group the values of the scheduled names


class SchedulePlan(NamedTuple):
    """Where the table lies: `rows` x `groups` x `names` doubles."""

    offset: int
    rows: int
    groups: int
    names: tuple[str, ...]


def tabulate(
    optimizer: Optimizer, scheduler: LRScheduler | None, updates: int
) -> tuple[tuple[str, ...], list[Row]]:
    """What each of `updates` updates finds in the param groups, the scheduler being stepped after each.

    The optimizer's groups and the scheduler are put back as they were.

    Returns:
        The scheduled names ("lr", and "momentum" where the scheduler moves it) and one row an update; a single row
        where there is no scheduler.

    Raises:
        ValueError: the scheduler changes something other than a number.
    """
    if scheduler is None:
        return ("lr",), [settings_now(optimizer, ("lr",))]
    saved_groups = [dict(group) for group in optimizer.param_groups]
    saved_state = copy.deepcopy(scheduler.state_dict())
    snapshots = []
    # torch warns when a scheduler is stepped before its optimizer: here the workers' updates are the steps.
    counted = getattr(optimizer, "_opt_called", None)
    optimizer._opt_called = True  # type: ignore[attr-defined]
    try:
        for _ in range(updates):
            snapshots.append([dict(group) for group in optimizer.param_groups])
            scheduler.step()
    finally:
        for group, saved in zip(optimizer.param_groups, saved_groups, strict=True):
            group.update(saved)
        scheduler.load_state_dict(saved_state)
        if counted is None:
            del optimizer._opt_called  # type: ignore[attr-defined]
    names = _moving_names(snapshots)
    return names, [[[float(group[name]) for name in names] for group in row] for row in snapshots]


def settings_now(optimizer: Optimizer, names: Sequence[str]) -> Row:
    """The optimizer's present values of the scheduled names, one list a param group."""
    return [[float(group[name]) for name in names] for group in optimizer.param_groups]


def _moving_names(snapshots: Sequence[Sequence[dict[str, Any]]]) -> tuple[str, ...]:
    first = snapshots[0]
    moving = {
        name
        for row in snapshots
        for group, start in zip(row, first, strict=True)
        for name, value in group.items()
        if name not in ("params", "lr") and value is not start[name] and value != start[name]
    }
    for name in moving:
        if not isinstance(first[0][name], (int, float)):
            raise ValueError(
                f"scheduler must change single numbers such as lr, got one that changes {name!r}; "
                "for OneCycleLR or CyclicLR over Adam pass cycle_momentum=False"
            )
    return ("lr", *sorted(moving))


def plan_schedule(arena: Arena, names: tuple[str, ...], table: Sequence[Row]) -> SchedulePlan:
    """Reserve the bytes of a table."""
    groups = len(table[0])
    return SchedulePlan(arena.take(8 * len(table) * groups * len(names)), len(table), groups, names)


class Schedule:
    """The table in shared memory."""

    def __init__(self, segment: Segment, plan: SchedulePlan) -> None:
        self._plan = plan
        self._values = segment.doubles(plan.offset, plan.rows * plan.groups * len(plan.names))

    def write(self, row: int, values: Row) -> None:
        """Set one row; only before the workers start or, for row 0 of a table of one, during a cut."""
        width = len(self._plan.names)
        for group, numbers in enumerate(values):
            at = (row * self._plan.groups + group) * width
            for index, number in enumerate(numbers):
                self._values[at + index] = number

    def at(self, version: int, group: int) -> dict[str, float]:
        """The settings of the update that follows `version`."""
        plan = self._plan
        width = len(plan.names)
        at = (min(version, plan.rows - 1) * plan.groups + group) * width
        return {name: self._values[at + index] for index, name in enumerate(plan.names)}
