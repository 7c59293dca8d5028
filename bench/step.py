"""Where does a worker's step go: data, pull, forward and backward, push, waiting?

    python bench/step.py                  1 and 2 workers at batch 64

The one thing to know: the figures are the workers' own, over their whole run, first steps included, and
each is a mean: microseconds a step, and the share of all that a worker did. Only forward and backward is
what the user came for; everything else is ours to keep small.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from measure import measure
from peers import RIVALS
from settings import Settings, add_options, machine
from tables import Spread, table

__all__ = ["main"]

ROUNDS, SAMPLES = 3, 30_720
NAMES = ("ours-1", "ours-2")
COMPUTE = "forward and backward"
PARTS = {  # what a row is called: the field of a worker's report
    "data": "data",
    "pull": "pull",
    COMPUTE: "compute",
    "push": "push",
    "waiting": "wait",
}
REST, WHOLE = f"all but {COMPUTE}", "whole step"

Costs = dict[str, float]  # microseconds a step, of each row of the table


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser, rounds=ROUNDS, samples=SAMPLES)
    options = parser.parse_args(argv)
    settings = Settings.of(options)
    told: dict[str, list[Costs]] = {name: [] for name in NAMES}
    for _ in range(settings.rounds):
        for name in NAMES:
            told[name].append(costs(measure(RIVALS[name], settings).told["workers"]))
    print(
        f"LeNet-5, batch {settings.batch_size}, {settings.samples:,} samples each time, "
        f"rounds: {settings.rounds}\nData: {settings.data}\n\n{_table(told)}"
    )
    if options.json:
        whole = {"machine": machine(), "samples": settings.samples, "microseconds": told}
        options.json.write_text(json.dumps(whole, indent=1) + "\n")
    return 0


def costs(workers: Sequence[Mapping[str, Any]]) -> Costs:
    """What each part of a step took, a mean over all steps of all workers of one run."""
    pushes = sum(each["pushes"] for each in workers)
    parts = {part: 1e6 * sum(each[field] for each in workers) / pushes for part, field in PARTS.items()}
    whole = sum(parts.values())
    return {**parts, REST: whole - parts[COMPUTE], WHOLE: whole}


def _table(told: Mapping[str, Sequence[Costs]]) -> str:
    heads = ["part of a step"]
    for name in told:
        heads += [f"{name}, us", "spread", "share"]
    rows = []
    for part in (*PARTS, REST, WHOLE):
        row = [part]
        for rounds in told.values():
            row += _cells(part, rounds)
        rows.append(row)
    return table(heads, rows)


def _cells(part: str, rounds: Sequence[Costs]) -> tuple[str, str, str]:
    cost = Spread.of([each[part] for each in rounds])
    share = Spread.of([each[part] / each[WHOLE] for each in rounds])
    return (*cost.text(0), f"{share.median:.1%}")


if __name__ == "__main__":
    sys.exit(main())
