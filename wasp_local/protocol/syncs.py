"""Sync rules: when a forced sync is due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wasp_local.params import about, above, at_least, check_fields

__all__ = ["ForcedSync"]


@dataclass(frozen=True)
class ForcedSync:
    """After so many pushes, or so many seconds, since the last one; whichever comes first. None of both: never."""

    pushes: Annotated[int | None, at_least(1), about("pushes between two forced syncs")] = None
    seconds: Annotated[float | None, above(0), about("seconds between two forced syncs")] = None

    def __post_init__(self) -> None:
        check_fields(self)
