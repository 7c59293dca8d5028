"""What tests of whole runs share: a small model and data that show what happened to them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

import wasp_local as wl
from wasp_local.data.plan import BatchPlan

SAMPLES = 96


def classes(samples: int = SAMPLES, seed: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of 6 numbers in 3 classes that a line tells apart, more or less."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 3, (samples,), generator=generator)
    inputs = torch.randn(samples, 6, generator=generator)
    inputs[torch.arange(samples), targets] += 2
    return inputs, targets


def perceptron(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))


class Counter(nn.Module):
    """One parameter whose gradient is always 1: with SGD at lr 1 its value is minus the number of updates."""

    def __init__(self) -> None:
        super().__init__()
        self.total = nn.Parameter(torch.zeros(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.total + 0 * inputs.sum()


def first(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """A loss that is the output itself."""
    return output


def numbers(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Items that are their own index."""
    return torch.arange(samples).float(), torch.arange(samples)


def plain_loop(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: tuple[torch.Tensor, torch.Tensor],
    steps: int,
    batch_size: int,
    seed: int = 0,
) -> None:
    """What everybody writes, on the batches that a run of this seed has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    plan = BatchPlan.for_batches(steps, samples=len(data[0]), batch_size=batch_size, seed=seed)
    for batch in range(steps):
        indices = torch.from_numpy(plan.indices(batch))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data[0][indices]), data[1][indices]).backward()
        optimizer.step()
    torch.set_num_threads(threads)


def fit(model: nn.Module, data: Any, test: Any = None, **told: Any) -> wl.Result:
    """A quiet run on one thread a worker."""
    told = {"threads": 1, "quiet": True, **told}
    return wl.Trainer(model, **told).fit(data, test)


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def copy_of(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model)
