"""The usual Hogwild script, as PyTorch's example shows it: a DataLoader with transforms in every process.

The one thing to know: an item costs here what it costs a user, since it is torchvision's MNIST that makes
it: image by image to PIL, to a tensor, normalised, collated. Without `torch.set_num_threads` each process
takes as many threads as there are cores. Differences from the example: each process does its part of the
samples instead of all, nothing is printed, and all begin together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision import transforms
from torchvision.datasets import MNIST, VisionDataset

from peers.task import Gate, Task, in_processes
from wasp_local.data.datasets import PIXELS

__all__ = ["main"]


class Digits(MNIST):  # type: ignore[misc]
    """torchvision's MNIST over images that were read elsewhere."""

    def __init__(self, images: Tensor, labels: Tensor, transform: transforms.Compose) -> None:
        VisionDataset.__init__(self, root="", transform=transform)
        self.data, self.targets = images, labels


def main(argv: Sequence[str] | None = None) -> None:
    """Train and print the report."""
    task = Task.from_arguments(argv)
    digits = task.digits()
    transform = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize((PIXELS.mean,), (PIXELS.std,))]
    )
    dataset = Digits(digits.inputs.squeeze(1), digits.targets, transform)
    model = task.model().share_memory()
    in_processes(task, _train, model, dataset, start_method="spawn")
    task.report()


def _train(rank: int, task: Task, gate: Gate, model: nn.Module, dataset: Dataset[tuple[Tensor, int]]) -> None:
    if task.threads:
        torch.set_num_threads(task.threads)
    torch.manual_seed(rank)
    sampler = RandomSampler(dataset, num_samples=task.share)  # type: ignore[arg-type]
    loader = DataLoader(dataset, batch_size=task.batch_size, sampler=sampler)
    optimizer, loss = task.optimizer(model.parameters()), task.loss
    gate.wait()
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


if __name__ == "__main__":
    main()
