"""A data set as a worker reads it: decoded once into tensors, or item by item where items are random.

The one thing to know: what is decoded is decoded in one process and lies in memory once; workers take rows of it.
Images stay bytes there and are normalised as a batch is taken. A data set whose items differ each time they are
read (random augmentation) is never decoded beforehand: that would freeze one draw for the whole run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

__all__ = ["LiveData", "Normalise", "TensorData", "decode"]

PROBED_ITEMS = 64
Batch = tuple[torch.Tensor, torch.Tensor]


class Normalise(NamedTuple):
    """(bytes / 255 - mean) / std."""

    mean: float
    std: float


@dataclass(frozen=True)
class TensorData:
    """Inputs and targets as tensors whose first dimension counts samples.

    Attributes:
        inputs: (samples, ...); uint8 where `normalise` is given.
        targets: (samples, ...).
        normalise: turns the inputs of a batch into float32; None leaves them as they are.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    normalise: Normalise | None = None

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.inputs.shape[1:])

    def batch(self, indices: NDArray[np.int64], seed: int = 0) -> Batch:
        """The inputs and targets of these samples; copies. `seed` is for data that draw, see `LiveData`."""
        rows = torch.from_numpy(indices)
        inputs = self.inputs.index_select(0, rows)
        if self.normalise is not None:
            scale = 1 / (255 * self.normalise.std)
            inputs = inputs.to(torch.float32).mul_(scale).sub_(self.normalise.mean / self.normalise.std)
        return inputs, self.targets.index_select(0, rows)


@dataclass(frozen=True)
class LiveData:
    """A map-style data set whose items are read anew for each batch, because they are random."""

    dataset: Dataset[Any]

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def batch(self, indices: NDArray[np.int64], seed: int = 0) -> Batch:
        """Read these items with the generators of Python, numpy and torch seeded by `seed`, and collate them."""
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.random.default_generator.manual_seed(seed)
        inputs, targets = default_collate([self.dataset[int(index)] for index in indices])
        return inputs, targets


def decode(data: Any, what: str = "data") -> TensorData | LiveData:
    """Make of what the user gave what workers read.

    Args:
        data: a pair (inputs, targets) of tensors or arrays, a `TensorDataset` of two tensors, a map-style data set
            with items (input, target), or what this function returned.
        what: the argument's name, for messages.

    Raises:
        TypeError: it is something else.
        ValueError: inputs and targets differ in length, or there are none.
    """
    if isinstance(data, TensorData | LiveData):
        return data
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, tuple | list) and len(data) == 2 and all(map(_is_array, data)):
        return _pair(torch.as_tensor(data[0]), torch.as_tensor(data[1]), what)
    if isinstance(data, DataLoader):
        raise TypeError(
            f"{what} must be the data set itself, got a DataLoader: pass loader.dataset and batch_size={data.batch_size}"
        )
    if isinstance(data, IterableDataset) or not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise TypeError(
            f"{what} must be a pair (inputs, targets) of tensors or a data set with len() and items by index, "
            f"got {type(data).__name__}"
        )
    return _decode_items(data, what)


def _is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray)


def _pair(inputs: torch.Tensor, targets: torch.Tensor, what: str) -> TensorData:
    for name, tensor in (("inputs", inputs), ("targets", targets)):
        if tensor.ndim == 0 or not len(tensor):
            raise ValueError(f"{what} must have at least one sample, got {name} of shape {tuple(tensor.shape)}")
    if len(inputs) != len(targets):
        raise ValueError(
            f"{what} must have as many targets as inputs, got {len(inputs):,} inputs and {len(targets):,} targets"
        )
    return TensorData(inputs.detach().contiguous(), targets.detach().contiguous())


def _decode_items(dataset: Any, what: str) -> TensorData | LiveData:
    length = len(dataset)
    if not length:
        raise ValueError(f"{what} must have at least one sample, got an empty {type(dataset).__name__}")
    first = dataset[0]
    if not (isinstance(first, tuple | list) and len(first) == 2):
        raise TypeError(
            f"{what} must have items (input, target), got items of type {type(first).__name__} "
            f"from {type(dataset).__name__}"
        )
    if _draws(dataset, min(length, PROBED_ITEMS)):
        return LiveData(dataset)
    try:
        inputs, targets = default_collate([dataset[index] for index in range(length)])
    except (TypeError, RuntimeError) as error:
        raise TypeError(f"{what} must have items of tensors, arrays or numbers of equal shapes: {error}") from error
    return _pair(inputs, targets, what)


def _draws(dataset: Any, items: int) -> bool:
    """Whether items differ when they are read again; leaves the generators as they were."""
    with _generators_kept():
        return any(not _same(dataset[index], dataset[index]) for index in range(items))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple | list):
        return all(map(_same, one, other))
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return bool(np.array_equal(one, other))


@contextmanager
def _generators_kept() -> Iterator[None]:
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])
