"""Pull rules: when a worker refreshes its copy of the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wasp_local.params import about, at_least, check_fields

__all__ = ["EveryStep", "EverySteps", "OnStore"]


@dataclass(frozen=True)
class EveryStep:
    """Before every batch."""

    on_store = False
    local_steps = False

    def due(self, steps_since_pull: int) -> bool:
        """Whenever the copy has been computed on."""
        return steps_since_pull >= 1


@dataclass(frozen=True)
class EverySteps:
    """Every `steps` batches; in between the worker steps its own copy (Downpour; Dean et al. 2012, n_fetch)."""

    steps: Annotated[int, at_least(1), about("batches a worker computes between two pulls")] = 5
    on_store = False
    local_steps = True

    def due(self, steps_since_pull: int) -> bool:
        """When that many batches have been computed on the copy."""
        return steps_since_pull >= self.steps

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class OnStore:
    """Never: the worker computes on the store itself (Hogwild; Niu, Recht, Re, Wright 2011)."""

    on_store = True
    local_steps = False

    def due(self, steps_since_pull: int) -> bool:
        """Every batch, for its version only: there is no copy to refresh."""
        return steps_since_pull >= 1
