"""The tables of the summary: labelled lines, the staleness histogram as bars, where workers' time went.

The one thing to know: columns stand straight whatever the figures, and the page is 80 columns wide unless a
name or a table of enormous figures needs more.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

from wasp_local.events import WorkerReport
from wasp_local.report import figures

__all__ = ["labelled", "staleness_bars", "worker_table"]

WIDTH = 80
LABEL = 15  # columns of a label and the space behind it
BAR = 44  # columns of the longest bar
BARS = 12  # most rows of the histogram
WORKERS = 16  # most rows of the workers' table
SHARES = {  # heading: field of WorkerReport, in the order of a step
    "data": "data",
    "pull": "pull",
    "compute": "compute",
    "push": "push",
    "test": "evaluate",
    "wait": "wait",
}


def labelled(lines: Sequence[tuple[str, str]]) -> str:
    """Return "label  text" lines, long texts going on below themselves."""
    return "\n".join(
        textwrap.fill(
            text,
            width=WIDTH,
            initial_indent=f"{label:<{LABEL}}",
            subsequent_indent=" " * LABEL,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for label, text in lines
    )


def staleness_bars(histogram: Mapping[int, int], mean: float) -> str:
    """Return the histogram of tau as text bars with counts and shares, neighbours and the tail grouped."""
    pushes = sum(histogram.values())
    if not pushes:
        return f"{'Staleness':<{LABEL}}no push took effect"
    title = (
        f"{'Staleness':<{LABEL}}mean {figures.staleness(mean)} updates between a worker's pull and its push"
    )
    rows = _grouped({tau: number for tau, number in histogram.items() if number})
    label_width = max(len("tau"), *(len(label) for label, _ in rows))
    count_width = max(len("pushes"), *(len(figures.count(number)) for _, number in rows))
    most = max(number for _, number in rows)
    lines = [title, f"  {'tau':>{label_width}}  {'pushes':>{count_width}}"]
    for label, number in rows:
        bar = "#" * round(number / most * BAR) or ("." if number else "")
        share = figures.per_cent(number / pushes)
        lines.append(
            f"  {label:>{label_width}}  {figures.count(number):>{count_width}}  {share:>7}  {bar}".rstrip()
        )
    return "\n".join(lines)


def _grouped(histogram: Mapping[int, int]) -> list[tuple[str, int]]:
    """Return (label, pushes) from the least tau on: single taus, or equal groups and a small tail."""
    least, most = min(histogram), max(histogram)
    if most - least < BARS:
        return [(str(tau), histogram.get(tau, 0)) for tau in range(least, most + 1)]
    pushes, seen, usual = sum(histogram.values()), 0, most
    for tau in sorted(histogram):
        seen += histogram[tau]
        if seen >= 0.99 * pushes:
            usual = tau
            break
    step = math.ceil((usual - least + 1) / (BARS - 1))
    rows = []
    start = least
    while start <= usual:
        end = start + step - 1
        rows.append((_range_label(start, end), sum(histogram.get(tau, 0) for tau in range(start, end + 1))))
        start = end + 1
    tail = sum(number for tau, number in histogram.items() if tau >= start)
    return [*rows, (f">={start}", tail)] if tail else rows


def _range_label(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def worker_table(workers: Sequence[WorkerReport]) -> str:
    """Return where workers' time went, in shares, and what each did: the mean, then one row a worker."""
    heads = [*SHARES, "pushes", "samples", "cores"]
    rows = [_worker_row(each) for each in workers[:WORKERS]]
    if len(workers) > 1:
        rows.insert(0, _mean_row(workers))
    table = [["", *heads], *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["Where the workers' time went, in %"]
    for row in table:
        cells = [
            f"  {row[0]:<{widths[0]}}",
            *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("  ".join(cells).rstrip())
    if len(workers) > WORKERS:
        lines.append(f"  ... and {len(workers) - WORKERS} more workers: all are in the result's `workers`")
    return "\n".join(lines)


def _worker_row(report: WorkerReport) -> list[str]:
    cores = figures.core_ranges(report.cores)
    return [
        f"worker {report.worker}",
        *_shares([getattr(report, name) for name in SHARES.values()]),
        figures.count(report.pushes),
        figures.count(report.samples),
        cores if len(cores) <= len("32 cores") else f"{len(set(report.cores))} cores",
    ]


def _mean_row(workers: Sequence[WorkerReport]) -> list[str]:
    """Return the row of the mean worker; its shares are of all workers' time together."""
    total = [sum(getattr(each, name) for each in workers) for name in SHARES.values()]
    pushes = sum(each.pushes for each in workers) / len(workers)
    samples = sum(each.samples for each in workers) / len(workers)
    return ["mean", *_shares(total), figures.count(pushes), figures.count(samples), ""]


def _shares(seconds: Sequence[float]) -> list[str]:
    whole = sum(seconds)
    if not whole > 0:
        return ["-"] * len(seconds)
    return [figures.per_cent(each / whole).removesuffix(" %").replace("100.0", "100") for each in seconds]
