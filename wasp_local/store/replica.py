"""A worker's own copy of the parameters, laid out like the store's shards.

The one thing to know: the model's parameters become views of one flat tensor a shard, so that a pull is one copy a
shard. Gradients stay where autograd puts them until a push reads them there, so that "no gradient" and "a gradient of
zeros" remain two things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from wasp_local.store.layout import ShardPlan, view_slot
from wasp_local.store.optimizer import Gradients, OptimizerRecipe, ShardOptimizer, private_memory

__all__ = ["LocalOptimizer", "Replica"]


class Replica:
    """The model of one worker, its parameters re-pointed to flat tensors.

    Args:
        model: its named parameters are the shards' slots.
        plans: the shards.
        flats: the store's own tensors to compute on the store itself (Hogwild); None makes private ones.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        plans: Sequence[ShardPlan],
        flats: Sequence[torch.Tensor] | None = None,
    ) -> None:
        self.model = model
        self.plans = tuple(plans)
        self.flats = tuple(flats or (torch.zeros(plan.elements, dtype=plan.dtype) for plan in plans))
        named = dict(model.named_parameters())
        self._parameters = [[named[slot.name] for slot in plan.slots] for plan in plans]
        for plan, flat, parameters in zip(self.plans, self.flats, self._parameters, strict=True):
            for slot, parameter in zip(plan.slots, parameters, strict=True):
                parameter.data = view_slot(flat, slot)

    def gradients(self) -> list[Gradients]:
        """For each shard its parameters' gradients of the latest backward pass."""
        return [[parameter.grad for parameter in parameters] for parameters in self._parameters]

    def clear_gradients(self) -> None:
        """Forget the previous batch's gradients, as `optimizer.zero_grad()` does."""
        for parameters in self._parameters:
            for parameter in parameters:
                parameter.grad = None


class LocalOptimizer:
    """Steps a replica between two pulls with optimizer state of the worker's own (Downpour)."""

    def __init__(self, recipe: OptimizerRecipe, replica: Replica) -> None:
        self._replica = replica
        self._optimizers = [
            ShardOptimizer(recipe, plan, private_memory(plan, recipe.schema(plan.group, plan.dtype), flat))
            for plan, flat in zip(replica.plans, replica.flats, strict=True)
        ]

    @torch.no_grad()
    def step(self, gradients: Sequence[Gradients], settings: Sequence[Mapping[str, float]]) -> None:
        """Apply a gradient to the replica; `settings` has one entry a param group."""
        for plan, optimizer, each in zip(self._replica.plans, self._optimizers, gradients, strict=True):
            optimizer.step(each, 1.0, settings[plan.group])
