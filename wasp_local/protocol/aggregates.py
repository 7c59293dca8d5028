"""Aggregate rules: how many gradients make one update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wasp_local.params import about, at_least, check_fields

__all__ = ["AllWorkers", "Groups", "Single"]


@dataclass(frozen=True)
class Single:
    """Each gradient is an update of its own."""

    within_epoch = False

    def gradients(self, workers: int) -> int:
        """1."""
        return 1


@dataclass(frozen=True)
class Groups:
    """Every `size` gradients, in the order in which they come, are averaged to one update (n-softsync)."""

    size: Annotated[int, at_least(1), about("gradients averaged to one update; c in the paper")] = 2
    within_epoch = False

    def __post_init__(self) -> None:
        check_fields(self)

    def gradients(self, workers: int) -> int:
        """The size, whatever the number of workers."""
        return self.size


@dataclass(frozen=True)
class AllWorkers:
    """As many gradients as there are workers; a group ends with its epoch (BSP)."""

    within_epoch = True

    def gradients(self, workers: int) -> int:
        """One from each worker."""
        return workers
