"""Gate rules: whether a worker may start a batch now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wasp_local.params import about, at_least, check_fields
from wasp_local.protocol.rules import GateView

__all__ = ["Always", "Bounded", "Lockstep"]


@dataclass(frozen=True)
class Always:
    """Never wait."""

    waits = False

    def may_start(self, view: GateView) -> bool:
        """True."""
        return True


@dataclass(frozen=True)
class Bounded:
    """clock <= fewest clock + slack: the stale synchronous parallel bound (Ho et al. 2013)."""

    slack: Annotated[
        int, at_least(0), about("clocks a worker may be ahead of the slowest; s in the paper")
    ] = 3
    waits = True

    def __post_init__(self) -> None:
        check_fields(self)

    def may_start(self, view: GateView) -> bool:
        """When this worker has finished at most `slack` more pushes than the one with fewest."""
        return view.clock <= view.fewest_clock + self.slack


@dataclass(frozen=True)
class Lockstep:
    """Only batches of the present group may start; the next group's wait for its update (BSP)."""

    waits = True

    def may_start(self, view: GateView) -> bool:
        """While the present group has batches to give out."""
        return view.claimed < view.round_end
