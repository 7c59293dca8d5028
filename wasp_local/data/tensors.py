"""A data set as a worker reads it: decoded once into tensors, or item by item where items are random.

The one thing to know: what is decoded is decoded in one process and lies in memory once; workers take rows
of it. Images stay bytes there and are normalised as a batch is taken. Whether items are random is seen by
reading up to 64 of them twice; those that are (random augmentation) are never decoded, which would freeze one
draw for the whole run. Looking leaves the generators of Python, numpy and torch as they were.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

__all__ = ["Batch", "LiveData", "Normalise", "TensorData", "decode"]

PROBES = 64
CHUNK = 256  # items collated at a time, so that a data set lies in memory once, not twice

Batch = tuple[torch.Tensor, torch.Tensor]


class Normalise(NamedTuple):
    """(bytes / 255 - mean) / std."""

    mean: float
    std: float

    @property
    def scale(self) -> float:
        """What a byte is multiplied by."""
        return 1 / (255 * self.std)

    @property
    def shift(self) -> float:
        """What is added to it then."""
        return -self.mean / self.std


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
    _shift: torch.Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shift = 0.0 if self.normalise is None else self.normalise.shift
        object.__setattr__(self, "_shift", torch.tensor(shift))

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.sample_shape)) or "one number"
        return f"<{len(self):,} samples of {shape}, {str(self.inputs.dtype).removeprefix('torch.')}>"

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.inputs.shape[1:])

    def batch(self, indices: NDArray[np.int64], seed: int = 0) -> Batch:
        """Copy out the inputs and targets of these samples; `seed` is for data that draw, see `LiveData`.

        64 images of 28 x 28 bytes take 36 us on one thread: rows 14, floats 9, normalising 6, targets 4.
        """
        rows = torch.from_numpy(indices)
        inputs = self.inputs.index_select(0, rows)
        if self.normalise is not None:
            inputs = inputs.to(torch.float32)
            torch.add(self._shift, inputs, alpha=self.normalise.scale, out=inputs)
        return inputs, self.targets.index_select(0, rows)


@dataclass(frozen=True)
class LiveData:
    """A map-style data set whose items are random: workers read them anew for each batch."""

    dataset: Dataset[Any]

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<{len(self):,} samples of {type(self.dataset).__name__}, read anew for each batch>"

    def batch(self, indices: NDArray[np.int64], seed: int = 0) -> Batch:
        """Read and collate these items, the generators of Python, numpy and torch seeded by `seed`.

        A generator that the data set holds itself is not reached: workers draw the same from it.
        """
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.default_generator.manual_seed(seed)
        inputs, targets = default_collate([self.dataset[int(index)] for index in indices])
        return inputs, targets


def decode(data: Any, what: str = "data") -> TensorData | LiveData:
    """Make of what the user gave what workers read.

    Args:
        data: a pair (inputs, targets) of tensors or arrays, a `TensorDataset` of two tensors, a map-style
            data set or list with items (input, target), or what this function returned.
        what: the argument's name, for messages.

    Raises:
        TypeError: it is something else, or its items are.
        ValueError: inputs and targets differ in number, or there are none.
    """
    if isinstance(data, TensorData | LiveData):
        return data
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, tuple | list) and len(data) == 2 and all(map(_is_array, data)):
        return _pair(_tensor(data[0]), _tensor(data[1]), what)
    if isinstance(data, DataLoader):
        raise TypeError(
            f"{what} must be the data set itself, got a DataLoader: "
            f"pass loader.dataset and batch_size={data.batch_size}"
        )
    if isinstance(data, IterableDataset):
        raise TypeError(
            f"{what} must have items by index, so that each can go to exactly one worker, got the iterable "
            f"{type(data).__name__}: pass list({what}) if its items fit into memory"
        )
    by_index = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if not by_index or isinstance(data, tuple | str | bytes | Mapping) or _is_array(data):
        raise TypeError(
            f"{what} must be a pair (inputs, targets) of tensors, or a data set with len() and items by "
            f"index, got {type(data).__name__}"
        )
    with _generators_kept():
        return _decode_items(data, what)


def _is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray)


def _tensor(value: Any) -> torch.Tensor:
    """The array as a tensor that shares its memory where torch can."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(np.require(value, requirements=["C", "W"]))
    tensor: torch.Tensor = value.detach().contiguous()
    return tensor


def _pair(inputs: torch.Tensor, targets: torch.Tensor, what: str) -> TensorData:
    for name, tensor in (("inputs", inputs), ("targets", targets)):
        if tensor.device.type != "cpu":
            raise ValueError(f"{what} must be on the CPU, got {name} on {tensor.device}: call .cpu() on them")
        if tensor.ndim == 0 or not len(tensor):
            shape = tuple(tensor.shape)
            raise ValueError(f"{what} must have at least one sample, got {name} of shape {shape}")
    if len(inputs) != len(targets):
        raise ValueError(
            f"{what} must have as many targets as inputs, "
            f"got {len(inputs):,} inputs and {len(targets):,} targets"
        )
    return TensorData(inputs, targets)


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
    if _draws(dataset, length):
        return LiveData(dataset)
    try:
        inputs, targets = _read_all(dataset, length)
    except (TypeError, RuntimeError, ValueError) as error:
        raise TypeError(
            f"{what} must have items of tensors, arrays or numbers of equal shapes and types: {error}"
        ) from error
    return _pair(inputs, targets, what)


def _read_all(dataset: Any, length: int) -> Batch:
    """Read every item once, into tensors laid out beforehand."""
    whole: list[torch.Tensor] = []
    for start in range(0, length, CHUNK):
        stop = min(start + CHUNK, length)
        items = [dataset[index] for index in range(start, stop)]
        parts = default_collate(items)
        if not all(isinstance(part, torch.Tensor) for part in parts):
            raise TypeError(f"got ({', '.join(type(each).__name__ for each in items[0])})")
        if not whole:
            whole = [part.new_empty((length, *part.shape[1:])) for part in parts]
        for tensor, part in zip(whole, parts, strict=True):
            if (part.shape[1:], part.dtype) != (tensor.shape[1:], tensor.dtype):
                raise TypeError(
                    f"items {start} to {stop - 1} are {part.dtype} of shape {tuple(part.shape[1:])}, "
                    f"those before {tensor.dtype} of shape {tuple(tensor.shape[1:])}"
                )
            tensor[start:stop] = part
    return whole[0], whole[1]


def _draws(dataset: Any, length: int) -> bool:
    """Whether items differ when they are read again."""
    probed = islice(cycle(range(length)), PROBES)
    return any(not _same(dataset[index], dataset[index]) for index in probed)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, torch.Tensor):
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and bool(torch.isclose(one, other, rtol=0, atol=0, equal_nan=True).all())
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()


@contextmanager
def _generators_kept() -> Iterator[None]:
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])
