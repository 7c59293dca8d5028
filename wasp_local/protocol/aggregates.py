"""Aggregate rules: how many gradients make one update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wasp_local.params import about, at_least, check_fields

__all__ = ["AllWorkers", "Single", "Softsync"]


@dataclass(frozen=True)
class Single:
    """Each gradient is an update of its own."""

    within_epoch = False

    def gradients(self, workers: int) -> int:
        """1."""
        return 1


@dataclass(frozen=True)
class Softsync:
    """Every c = workers / updates_per_round gradients, as they come, make an update (Zhang et al. 2016)."""

    updates_per_round: Annotated[
        int, at_least(1), about("updates made of one gradient a worker; 1: all make one; n in the paper")
    ] = 1
    within_epoch = False

    def __post_init__(self) -> None:
        check_fields(self)

    def gradients(self, workers: int) -> int:
        """c, rounded down, and at least 1."""
        return max(1, workers // self.updates_per_round)


@dataclass(frozen=True)
class AllWorkers:
    """As many gradients as there are workers; a group ends with its epoch (BSP)."""

    within_epoch = True

    def gradients(self, workers: int) -> int:
        """One from each worker."""
        return workers
