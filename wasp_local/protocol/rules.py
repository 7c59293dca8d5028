"""The contract of a protocol: one value that picks one of each of five rules.

The one thing to know: a rule is pure. It is given numbers and returns a decision; it knows no tensors, locks,
processes or wall time, so the live run, a replay and a simulation can ask the very same value.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass

__all__ = [
    "AggregateRule",
    "GateRule",
    "GateView",
    "Protocol",
    "PullRule",
    "SyncRule",
    "WeightRule",
    "WeightView",
]


class GateView(typing.Protocol):
    """What a gate may ask about the run, as seen by one worker."""

    @property
    def clock(self) -> int:
        """Pushes this worker has finished."""

    @property
    def fewest_clock(self) -> int:
        """Pushes finished by the worker that has finished fewest."""

    @property
    def claimed(self) -> int:
        """Batches claimed so far by all workers."""

    @property
    def round_end(self) -> int:
        """First batch that does not belong to the present group of gradients."""


class GateRule(typing.Protocol):
    """May a worker start a batch now? Asked again whenever something has changed."""

    @property
    def waits(self) -> bool:
        """Whether it may ever say no."""

    def may_start(self, view: GateView) -> bool:
        """Decide; a worker that may not now must be allowed once the others have gone on."""


class WeightView(typing.Protocol):
    """What a weight may ask about the run."""

    @property
    def workers(self) -> int:
        """How many workers train: N."""

    def share_fresher(self, tau: int) -> float:
        """F(tau) = P(T < tau) + P(T = tau) / 2 over the staleness T of all pushes so far; 0.5 before the first."""


class WeightRule(typing.Protocol):
    """How much does a gradient of staleness tau count?"""

    def __call__(self, tau: int, view: WeightView) -> float:
        """The factor, >= 0; 0 drops the gradient. With one worker tau is always 0 and the factor is 1."""


class PullRule(typing.Protocol):
    """When does a worker refresh its copy?"""

    @property
    def on_store(self) -> bool:
        """Whether workers compute on the store itself and so never copy."""

    @property
    def local_steps(self) -> bool:
        """Whether a worker steps its own copy between two pulls."""

    def due(self, steps_since_pull: int) -> bool:
        """Decide; `steps_since_pull` counts batches computed on the present copy."""


class AggregateRule(typing.Protocol):
    """How many gradients make one update?"""

    @property
    def within_epoch(self) -> bool:
        """Whether a group of gradients ends with its epoch."""

    def gradients(self, workers: int) -> int:
        """The size of a group among `workers`, >= 1."""


class SyncRule(typing.Protocol):
    """When is a forced sync due?"""

    @property
    def pushes(self) -> int | None:
        """After so many pushes since the last; None: not by pushes."""

    @property
    def seconds(self) -> float | None:
        """After so many seconds since the last; None: not by time."""


@dataclass(frozen=True)
class Protocol:
    """One of each rule, under a name."""

    name: str
    pull: PullRule
    gate: GateRule
    aggregate: AggregateRule
    weight: WeightRule
    sync: SyncRule

    def __str__(self) -> str:
        """The name and what sets it apart, for people; `repr` rebuilds it."""
        sync = self.sync
        dues = [f"{sync.pushes:,} pushes"] if sync.pushes is not None else []
        dues += [f"{sync.seconds:g} s"] if sync.seconds is not None else []
        synced = f"forced sync every {' or '.join(dues)}" if dues else "no forced sync"
        rules = (self.pull, self.gate, self.aggregate, self.weight)
        return f"{self.name} ({', '.join(map(repr, rules))}, {synced})"

    def check_workers(self, workers: int) -> None:
        """Raise ValueError if so many workers cannot follow this protocol."""
        pushes = self.sync.pushes
        if pushes is not None and pushes < workers:
            raise ValueError(
                f"sync_every must be at least the number of workers ({workers}), got {pushes}: a forced sync waits "
                "for every worker, so fewer pushes than workers between two of them would never be reached"
            )
