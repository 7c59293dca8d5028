"""The optimizer's step on one shard, its state in memory that all workers share.

The one thing to know: an optimizer makes a parameter's state at that parameter's first update, which may differ from
later ones (SGD's momentum buffer starts as the gradient itself). So the memory is laid out beforehand, and a word a
parameter says whether it holds a state yet, whoever made it. A parameter that a push has no gradient for is left
out: its value, its state and its step count keep their bits, as they do in a plain loop.

word       | written by                 | read by  | order relied on           | after a kill it means
started[i] | the holder of shard's lock | the same | after the state is filled | parameter i has a state
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from wasp_local.store.kernels import KERNELS, State
from wasp_local.store.layout import ShardPlan, view_slot

__all__ = [
    "Gradients",
    "OptimizerRecipe",
    "ShardMemory",
    "ShardOptimizer",
    "StateSchema",
    "export_state",
    "import_state",
    "private_memory",
    "recipe_of",
]

Gradients = Sequence[torch.Tensor | None]


class StateSchema(NamedTuple):
    """Which state an optimizer keeps: names of tensors shaped like the parameter, and of single numbers."""

    elementwise: tuple[str, ...]
    scalars: tuple[str, ...]


class OptimizerRecipe(NamedTuple):
    """How to make the user's optimizer's step on other tensors; plain enough for another process."""

    kind: type[Optimizer]
    groups: tuple[dict[str, Any], ...]  # hyperparameters of each param group, without its parameters

    def build(self, group: int, parameters: Sequence[torch.Tensor]) -> Optimizer:
        """The optimizer over `parameters`, with the hyperparameters of one param group."""
        return self.kind(list(parameters), **self.groups[group])

    def schema(self, group: int, dtype: torch.dtype) -> StateSchema:
        """Find out by one step on a dummy which state the optimizer keeps for a parameter of `dtype`."""
        dummy = torch.nn.Parameter(torch.ones(4, dtype=dtype))
        dummy.grad = torch.ones_like(dummy)
        optimizer = self.build(group, [dummy])
        optimizer.step()
        state = {name: value for name, value in optimizer.state[dummy].items() if value is not None}
        elementwise = tuple(name for name, value in state.items() if value.numel() == dummy.numel())
        return StateSchema(elementwise, tuple(name for name in state if name not in elementwise))


def recipe_of(optimizer: Optimizer) -> OptimizerRecipe:
    """Read class and hyperparameters off an optimizer as the user built it.

    Where the user left the choice of implementation open (`fused=None`), the fused one is taken.

    Raises:
        ValueError: the class or one of its options cannot run on shards.
    """
    kind = type(optimizer)
    if kind not in KERNELS:
        names = ", ".join(each.__name__ for each in KERNELS)
        raise ValueError(f"optimizer must be one of torch.optim's {names}, got {kind.__name__}")
    accepted = set(inspect.signature(kind).parameters) - {"params"}
    groups = []
    for index, group in enumerate(optimizer.param_groups):
        for option in ("capturable", "differentiable"):
            if group.get(option):
                raise ValueError(f"optimizer must have {option}=False, got True in param group {index}")
        settings = {name: value for name, value in group.items() if name in accepted}
        settings["lr"] = float(group["lr"])
        if settings.get("fused") is None and not settings.get("foreach"):
            settings["fused"] = True
        groups.append(settings)
    return OptimizerRecipe(kind, tuple(groups))


class ShardMemory(NamedTuple):
    """The tensors and flags of one shard, shared or private."""

    params: torch.Tensor  # (elements,) of the shard's dtype
    state: dict[str, torch.Tensor]  # elementwise state, each (elements,) of the shard's dtype
    scalars: dict[str, torch.Tensor]  # each (slots,) float32
    started: memoryview  # a word a slot, see the table above


def private_memory(plan: ShardPlan, schema: StateSchema, params: torch.Tensor) -> ShardMemory:
    """Memory of this process alone, for an optimizer that steps a worker's own replica."""
    return ShardMemory(
        params,
        {name: torch.zeros(plan.elements, dtype=plan.dtype) for name in schema.elementwise},
        {name: torch.zeros(len(plan.slots)) for name in schema.scalars},
        memoryview(bytearray(8 * len(plan.slots))).cast("q"),
    )


class ShardOptimizer:
    """Applies gradients to one shard; call it only with the shard's lock held (or alone, or in Hogwild)."""

    def __init__(self, recipe: OptimizerRecipe, plan: ShardPlan, memory: ShardMemory) -> None:
        self._started = memory.started
        self._settings = dict(recipe.groups[plan.group])
        self._scales_step = KERNELS[recipe.kind].scales_step
        self._params = [view_slot(memory.params, slot) for slot in plan.slots]
        self._state: State = {
            name: [view_slot(flat, slot) for slot in plan.slots] for name, flat in memory.state.items()
        }
        self._state |= {name: list(values.unbind()) for name, values in memory.scalars.items()}
        self._fused = KERNELS[recipe.kind].kernel if self._settings.get("fused") else None
        self._loops = [] if self._fused else _loops(recipe, plan.group, self._params)
        self._all_started = False

    def step(self, gradients: Gradients, weight: float, settings: Mapping[str, float]) -> None:
        """Apply one gradient.

        Args:
            gradients: one a parameter, of its shape; None where it has none. Scaled in place where the
                weight scales the gradient.
            weight: the staleness weight, > 0.
            settings: scheduled hyperparameters of this update, such as the learning rate.
        """
        self._settings.update(settings)
        scale = None
        if weight != 1.0 and self._scales_step:
            self._settings["lr"] *= weight
        elif weight != 1.0:
            scale = _divisor(weight)
        if not self._all_started:
            self._all_started = all(self._started)
        if self._all_started and all(gradient is not None for gradient in gradients):
            self._step_some(range(len(gradients)), gradients, scale, first=False)
            return
        present = [index for index, gradient in enumerate(gradients) if gradient is not None]
        fresh = [index for index in present if not self._started[index]]
        known = [index for index in present if self._started[index]]
        if fresh:
            self._step_some(fresh, gradients, scale, first=True)
        if known:
            self._step_some(known, gradients, scale, first=False)
        for index in fresh:
            self._started[index] = 1

    def _step_some(
        self, some: Sequence[int], gradients: Gradients, scale: torch.Tensor | None, first: bool
    ) -> None:
        if self._fused is None:
            for index in some:
                self._step_by_loop(index, gradients, scale, first)
            return
        chosen = [gradient for index in some if (gradient := gradients[index]) is not None]
        if len(some) == len(self._params):
            self._fused(self._params, chosen, self._state, self._settings, scale, first)
            return
        state = {name: [tensors[index] for index in some] for name, tensors in self._state.items()}
        self._fused([self._params[index] for index in some], chosen, state, self._settings, scale, first)

    def _step_by_loop(
        self, index: int, gradients: Gradients, scale: torch.Tensor | None, first: bool
    ) -> None:
        """torch's own optimizer over one parameter, as the user asked for with fused=False."""
        optimizer, parameter = self._loops[index]
        gradient = gradients[index]
        parameter.grad = gradient if gradient is None or scale is None else gradient.div_(scale)
        optimizer.param_groups[0].update(self._settings)
        views = {name: tensors[index] for name, tensors in self._state.items()}
        if views and not first:
            optimizer.state[parameter] = views
        optimizer.step()
        if first:
            for name, view in views.items():
                view.copy_(optimizer.state[parameter][name])


@functools.lru_cache(maxsize=1024)  # weights recur, and making a tensor costs more than half an update
def _divisor(weight: float) -> torch.Tensor:
    return torch.tensor(1 / weight)


def _loops(
    recipe: OptimizerRecipe, group: int, params: Sequence[torch.Tensor]
) -> list[tuple[Optimizer, torch.nn.Parameter]]:
    parameters = [torch.nn.Parameter(each, requires_grad=False) for each in params]
    return [(recipe.build(group, [parameter]), parameter) for parameter in parameters]


def export_state(plan: ShardPlan, memory: ShardMemory) -> dict[str, dict[str, torch.Tensor]]:
    """The state of each of a shard's parameters by name, as torch's own optimizer would hold it; copies."""
    states = {}
    for index, slot in enumerate(plan.slots):
        if memory.started[index]:
            state = {name: view_slot(tensor, slot).clone() for name, tensor in memory.state.items()}
            states[slot.name] = state | {name: each[index].clone() for name, each in memory.scalars.items()}
    return states


def import_state(plan: ShardPlan, memory: ShardMemory, states: Mapping[str, Mapping[str, Any]]) -> None:
    """Lay the state that an optimizer already has into a shard's memory; the inverse of `export_state`."""
    for index, slot in enumerate(plan.slots):
        state = states.get(slot.name)
        if not state:
            continue
        for name, tensor in memory.state.items():
            view_slot(tensor, slot).copy_(state[name])
        for name, tensor in memory.scalars.items():
            tensor[index] = float(state[name])
        memory.started[index] = 1
