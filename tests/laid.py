"""A small model laid into a store of this process alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from wasp_local.shm.arena import Arena
from wasp_local.shm.segment import Segment
from wasp_local.store.layout import plan_shards, view_slot
from wasp_local.store.optimizer import recipe_of
from wasp_local.store.replica import Replica
from wasp_local.store.schedule import plan_schedule, tabulate
from wasp_local.store.store import ParameterStore, plan_store


class Laid(NamedTuple):
    store: ParameterStore
    replica: Replica
    model: nn.Module
    segment: Segment


def odd_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    """Sizes that are no multiple of a cache line, a scalar and an empty parameter."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    model.register_parameter("scalar", nn.Parameter(torch.tensor(0.5)))
    model.register_parameter("empty", nn.Parameter(torch.zeros(0, 4)))
    return model.to(dtype)


def lay_out(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    consistency: str = "locked",
    shard_bytes: int = 2**24,
    pushers: int = 1,
) -> Laid:
    """Lay a model with an optimizer into a store; `shard_bytes` small makes many shards."""
    named = dict(model.named_parameters())
    names = {parameter: name for name, parameter in named.items()}
    groups = [[(names[each], each) for each in group["params"]] for group in optimizer.param_groups]
    arena = Arena()
    table = tabulate(optimizer, None, 0)
    schedule = plan_schedule(arena, *table)
    shards = plan_shards(groups, shard_bytes)
    plan = plan_store(arena, shards, recipe_of(optimizer), schedule, consistency, pushers)
    segment = Segment.create(arena.nbytes, purpose="test")
    store = ParameterStore(segment, plan, lambda: None)
    store.initialise()
    with torch.no_grad():
        for shard, memory in zip(plan.shards, store.memories, strict=True):
            for slot in shard.slots:
                view_slot(memory.params, slot).copy_(named[slot.name])
    store.schedule.write(0, table[1][0])
    return Laid(store, Replica(model, plan.shards), model, segment)


@contextmanager
def laying() -> Iterator[Callable[..., Laid]]:
    """Give `lay_out`, and let go of every segment it made."""
    made: list[Laid] = []

    def lay(*args: Any, **kwargs: Any) -> Laid:
        made.append(lay_out(*args, **kwargs))
        return made[-1]

    yield lay
    for laid in made:
        laid.segment.close()
    made.clear()
