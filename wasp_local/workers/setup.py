"""From a model and an optimizer to the run's one shared segment, and back again.

The one thing to know: the segment is planned whole before it exists, so a machine with too little memory is found
out before any worker starts, and what the user gave is changed only when a run has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch.optim import Optimizer

from wasp_local.protocol import Protocol
from wasp_local.shm.arena import Arena
from wasp_local.shm.segment import Segment
from wasp_local.store.buffers import SharedBuffers, plan_buffers
from wasp_local.store.group import GradientGroup, plan_group
from wasp_local.store.layout import plan_shards, view_slot
from wasp_local.store.optimizer import export_state, import_state, recipe_of
from wasp_local.store.schedule import Row, plan_schedule
from wasp_local.store.store import ParameterStore, plan_store
from wasp_local.workers.control_block import NO_LIMIT, ControlBlock, plan_control
from wasp_local.workers.entry import Plans

__all__ = ["SharedState", "share"]


class SharedState(NamedTuple):
    """The run's shared state as the coordinator holds it."""

    segment: Segment
    plans: Plans
    store: ParameterStore
    control: ControlBlock
    buffers: SharedBuffers
    model: torch.nn.Module
    optimizer: Optimizer

    @torch.no_grad()
    def bring_back(self) -> None:
        """Copy parameters, buffers and optimizer state into the user's own objects."""
        named = dict(self.model.named_parameters())
        for plan, memory in zip(self.store.plan.shards, self.store.memories, strict=True):
            for slot in plan.slots:
                named[slot.name].copy_(view_slot(memory.params, slot))
            for name, state in export_state(plan, memory).items():
                self.optimizer.state[named[name]].update(state)
        self.buffers.take_up()


def share(
    model: torch.nn.Module,
    optimizer: Optimizer,
    protocol: Protocol,
    consistency: str,
    workers: int,
    table: tuple[tuple[str, ...], Sequence[Row]],
    test_batches: int,
) -> SharedState:
    """Lay model and optimizer into a new segment.

    Args:
        model: gives parameters and buffers; not changed.
        optimizer: gives the param groups, their hyperparameters and any state it has already.
        protocol: decides whether gradients are grouped.
        consistency: "locked", "snapshot" or "hogwild".
        workers: how many will attach.
        table: names and values of the scheduled hyperparameters, see `schedule.tabulate`.
        test_batches: how many batches the test set has; 0 without one.

    Raises:
        ValueError: model or optimizer cannot be trained here.
        Shortage: there is too little memory.
    """
    shards = plan_shards(_named_groups(model, optimizer))
    if not shards:
        raise ValueError("optimizer must hold parameters of the model that require a gradient, got none")
    recipe = recipe_of(optimizer)
    arena = Arena()
    control_plan = plan_control(arena, workers, test_batches)
    schedule_plan = plan_schedule(arena, *table)
    store_plan = plan_store(arena, shards, recipe, schedule_plan, consistency, workers)
    buffer_plan = plan_buffers(arena, model, workers)
    size = protocol.aggregate.gradients(workers)
    group_plan = plan_group(arena, shards, size) if size > 1 else None
    segment = Segment.create(arena.nbytes, purpose="parameter store")
    plans = Plans(store_plan, control_plan, buffer_plan, group_plan)
    state = SharedState(
        segment,
        plans,
        ParameterStore(segment, store_plan, _always_wanted),
        ControlBlock(segment, control_plan, _always_wanted),
        SharedBuffers(segment, buffer_plan, model),
        model,
        optimizer,
    )
    _fill(state, table[1], grouped_by_epoch=group_plan is not None and protocol.aggregate.within_epoch)
    if group_plan is not None:
        _open_group(state, size)
    return state


def _named_groups(model: torch.nn.Module, optimizer: Optimizer) -> list[list[tuple[str, torch.Tensor]]]:
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups = []
    for index, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            if parameter not in names:
                raise ValueError(
                    f"optimizer must be built over model.parameters(), got a tensor of shape "
                    f"{tuple(parameter.shape)} in param group {index} that is no parameter of the model"
                )
        groups.append([(names[each], each) for each in group["params"] if each.requires_grad])
    return groups


@torch.no_grad()
def _fill(state: SharedState, rows: Sequence[Row], grouped_by_epoch: bool) -> None:
    state.store.initialise()
    state.control.initialise(limit=0, round_end=0 if grouped_by_epoch else NO_LIMIT)
    state.buffers.initialise()
    for index, row in enumerate(rows):
        state.store.schedule.write(index, row)
    named = dict(state.model.named_parameters())
    held = {
        name: state.optimizer.state[parameter]
        for name, parameter in named.items()
        if parameter in state.optimizer.state
    }
    for plan, memory in zip(state.store.plan.shards, state.store.memories, strict=True):
        for slot in plan.slots:
            view_slot(memory.params, slot).copy_(named[slot.name])
        if held:
            import_state(plan, memory, held)


def _open_group(state: SharedState, size: int) -> None:
    assert state.plans.group is not None
    group = GradientGroup(
        state.segment, state.plans.group, state.control.bell, _always_wanted, _not_here, lambda: size
    )
    group.initialise()
    group.open(size)


def _always_wanted() -> None:
    """The coordinator holds no lock for long, and waits for none that a dead worker would keep."""


_not_here: Callable[..., None] = _always_wanted
