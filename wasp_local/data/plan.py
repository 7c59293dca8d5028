"""Which samples are in which batch: the whole run's plan, worked out from a few numbers.

The one thing to know: batches are numbered 0, 1, ... over all epochs, and a batch's samples depend on the
seed and its number alone: the order is the same for any number of workers, and who claims a number knows its
samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from wasp_local.params import about, at_least, check_fields

__all__ = ["BatchPlan"]


@dataclass(frozen=True)
class BatchPlan:
    """The batches of a run; `for_epochs`, `for_samples`, `for_batches` and `for_updates` count them.

    Attributes:
        samples: of the data.
        batch_size: samples of a batch; the last of an epoch may have fewer.
        batches: of the whole run.
        seed: sets each epoch's order.
        shuffle: a new order each epoch; False keeps the data's own.
        drop_last: an epoch leaves out its last batch if it is smaller.
        cut: samples left out of the run's last batch, so that a budget of samples comes out even.
    """

    samples: Annotated[int, at_least(1), about("samples of the data")]
    batch_size: Annotated[int, at_least(1), about("samples of a batch")]
    batches: Annotated[int, at_least(0), about("batches of the run")]
    seed: Annotated[int, at_least(0), about("sets the order of the samples")] = 0
    shuffle: bool = True
    drop_last: bool = False
    cut: int = 0
    _orders: dict[int, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.batch_size > self.samples:
            raise ValueError(
                f"batch_size must be at most the number of samples of the data ({self.samples:,}), "
                f"got {self.batch_size:,}"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_orders": {}}  # an order is worked out again where it is needed

    @classmethod
    def for_batches(cls, batches: int, **shared: Any) -> BatchPlan:
        """Plan so many batches."""
        return cls(batches=batches, **shared)

    @classmethod
    def for_epochs(cls, epochs: int, **shared: Any) -> BatchPlan:
        """Plan so many passes over the data."""
        if epochs < 1:
            raise ValueError(f"epochs must be at least 1 (passes over the data), got {epochs!r}")
        return cls(batches=epochs * cls(batches=0, **shared).per_epoch, **shared)

    @classmethod
    def for_samples(cls, budget: int, **shared: Any) -> BatchPlan:
        """Plan exactly `budget` samples: the last batch is cut."""
        plan = cls(batches=0, **shared)
        epochs, rest = divmod(budget, plan.samples_per_epoch)
        batches = epochs * plan.per_epoch + -(-rest // plan.batch_size)
        whole = cls(batches=batches, **shared)
        return cls(batches=batches, cut=whole.total_samples - budget, **shared)

    @classmethod
    def for_updates(cls, updates: int, group: int, within_epoch: bool, **shared: Any) -> BatchPlan:
        """Plan `updates` updates of `group` gradients each; see the method `updates`."""
        plan = cls(batches=0, **shared)
        if not within_epoch:
            return cls(batches=updates * group, **shared)
        epochs, rest = divmod(updates, -(-plan.per_epoch // group))
        return cls(batches=epochs * plan.per_epoch + min(rest * group, plan.per_epoch), **shared)

    def updates(self, group: int, within_epoch: bool) -> int:
        """Count the run's updates: `group` gradients make one, or fewer at an epoch's or the run's end."""
        if not within_epoch:
            return -(-self.batches // group)
        epochs, rest = divmod(self.batches, self.per_epoch)
        return epochs * -(-self.per_epoch // group) + -(-rest // group)

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch."""
        whole, rest = divmod(self.samples, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    @property
    def samples_per_epoch(self) -> int:
        """Samples of an epoch: all, or those of its whole batches."""
        return min(self.samples, self.per_epoch * self.batch_size)

    @property
    def total_samples(self) -> int:
        """Samples of the run, each as often as it is used."""
        return self.samples_before(self.batches)

    def samples_before(self, batch: int) -> int:
        """Samples in all batches before this one, 0 <= batch <= batches."""
        epochs, rest = divmod(batch, self.per_epoch)
        before = epochs * self.samples_per_epoch + min(rest * self.batch_size, self.samples_per_epoch)
        return before - self.cut if batch == self.batches else before

    def epoch_of(self, batch: int) -> int:
        """The epoch of a batch, from 0."""
        return batch // self.per_epoch

    def epoch_end(self, batch: int) -> int:
        """The first batch of the epoch after that of `batch`."""
        return (self.epoch_of(batch) + 1) * self.per_epoch

    def size_of(self, batch: int) -> int:
        """Samples of a batch."""
        start = batch % self.per_epoch * self.batch_size
        size = min(self.batch_size, self.samples - start)
        return size - self.cut if batch == self.batches - 1 else size

    def indices(self, batch: int) -> NDArray[np.int64]:
        """Which samples are in a batch: their indices in the data, int64 of shape (size_of(batch),)."""
        start = batch % self.per_epoch * self.batch_size
        stop = start + self.size_of(batch)
        if not self.shuffle:
            return np.arange(start, stop)
        return self._order(self.epoch_of(batch))[start:stop]

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """The order of an epoch; the latest is kept, since batches are claimed in order."""
        if epoch not in self._orders:
            self._orders.clear()
            generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence((self.seed, epoch))))
            self._orders[epoch] = generator.permutation(self.samples)
        return self._orders[epoch]
