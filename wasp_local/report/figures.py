"""Figures as people read them: counts with commas, shares in per cent, and never a NaN or a None.

The one thing to know: a figure that is missing is left out by its caller, and one that is not finite (a run
that diverged) is written as "not finite", so that neither looks like a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["clock_time", "core_ranges", "count", "duration", "loss", "per_cent", "size", "staleness"]

NOT_FINITE = "not finite"


def count(number: float) -> str:
    """Write a whole number: 17300 is "17,300"."""
    return f"{number:,.0f}" if math.isfinite(number) else NOT_FINITE


def per_cent(share: float, digits: int = 1) -> str:
    """Write a share: 0.9513 is "95.1 %"; what would round to nothing, but is not, is "<0.1 %"."""
    if not math.isfinite(share):
        return NOT_FINITE
    smallest = 10.0**-digits
    if 0 < share * 100 < smallest / 2:
        return f"<{smallest:.{digits}f} %"
    return f"{share * 100:.{digits}f} %"


def loss(value: float) -> str:
    """Write a loss with three digits that count: 0.0123, 1.23, 1.2e+06."""
    if not math.isfinite(value):
        return NOT_FINITE
    if value != 0 and not 1e-4 <= abs(value) < 1e4:
        return f"{value:.1e}"
    return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def staleness(tau: float) -> str:
    """Write a mean staleness: two digits after the point, one where it is large."""
    return (f"{tau:.2f}" if tau < 10 else f"{tau:.1f}") if math.isfinite(tau) else NOT_FINITE


def duration(seconds: float) -> str:
    """Write a time: "4.71 s", "2 min 05 s", "3 h 20 min"."""
    if not math.isfinite(seconds):
        return NOT_FINITE
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def clock_time(seconds: float) -> str:
    """Write a time with as few letters as can be: "0:12", "1:02:30"."""
    if not math.isfinite(seconds):
        return NOT_FINITE
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def size(nbytes: int) -> str:
    """Write a size in bytes: "1.4 MB" (a megabyte is 1,000,000 bytes)."""
    value = float(nbytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def core_ranges(cores: Iterable[int]) -> str:
    """Write core numbers: 0, 1, 2, 3 and 8 are "0-3,8"."""
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
