"""Straight columns, and the median and spread of what was measured several times."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

__all__ = ["Spread", "ratio", "spread", "table"]


class Spread(NamedTuple):
    """Several measurements of one thing."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(median(values), min(values), max(values))

    def text(self, digits: int) -> tuple[str, str]:
        """The median, and "least - most", as two cells."""
        return f"{self.median:,.{digits}f}", f"{self.least:,.{digits}f} - {self.most:,.{digits}f}"


def spread(values: Sequence[float | None]) -> Spread | None:
    """The spread of the values that are there; None if none is."""
    known = [value for value in values if value is not None]
    return Spread.of(known) if known else None


def ratio(over: Sequence[float | None], under: Sequence[float | None]) -> Spread | None:
    """The spread of the ratios within each round: what drifts between rounds cancels out."""
    return spread([a / b for a, b in zip(over, under, strict=False) if a is not None and b])


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows below their heads: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    lines = []
    for row in [heads, ["-" * width for width in widths], *rows]:
        cells = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([f"{row[0]:<{widths[0]}}", *cells]).rstrip())
    return "\n".join(lines)
