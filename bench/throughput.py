"""How fast do we train, against the machine's limit and against what one would type instead?

    python bench/throughput.py            all rivals, five rounds: some minutes per round on two cores

The one thing to know: only ratios within one run count. All rivals train the same task in every round, in
an order that rotates, and a ratio is taken within each round before the median is. The steady throughput
leaves out imports, start-up and first steps; the second table, seconds of the whole run, has them all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from measure import Measurement, RivalFailed, measure
from peers import KEEP_FREED_MEMORY, LIMIT, OURS, RIVALS
from settings import Settings, add_options, machine
from tables import Spread, ratio, spread, table

__all__ = ["main"]

ROUNDS, SAMPLES = 5, 30_720

Taken = dict[str, list[Measurement]]  # of each rival, one a round; a rival that failed has fewer
Row = dict[str, Any]  # all that is known of a rival, plain enough for JSON


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables and return the exit code: 1 if a rival failed."""
    options = _parse(argv)
    settings = Settings.of(options)
    about = _about(settings, options.keep_freed_memory)
    print(_opening(about), flush=True)
    environment = KEEP_FREED_MEMORY if options.keep_freed_memory else {}
    taken, failed = _measure_in_rounds(options.only, settings, environment)
    rows = {name: _row(name, taken) for name in options.only}
    print(f"\n{_throughput_table(rows)}\n\n{_seconds_table(rows)}\n\n{_notes(options.only, failed)}")
    if options.json:
        told = {**about, "rivals": rows, "failed": failed}
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    return 1 if failed else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser, rounds=ROUNDS, samples=SAMPLES)
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        choices=[*RIVALS],
        default=[*RIVALS],
        help=f"measure these: {', '.join(RIVALS)}",
    )
    parser.add_argument(
        "--keep-freed-memory",
        action="store_true",
        help="give every rival the allocator's setting that ours and the limit have",
    )
    return parser.parse_args(argv)


def _about(settings: Settings, keep_freed_memory: bool) -> dict[str, Any]:
    return {
        "machine": machine(),
        "data": settings.data,
        "samples": settings.samples,
        "batch_size": settings.batch_size,
        "warm_up": settings.warm_up,
        "rounds": settings.rounds,
        "keep_freed_memory": keep_freed_memory,
    }


def _opening(about: dict[str, Any]) -> str:
    where = about["machine"]
    kept = "; every rival keeps freed memory" if about["keep_freed_memory"] else ""
    return (
        f"LeNet-5, batch {about['batch_size']}, SGD with momentum, {about['samples']:,} samples each time, "
        f"rounds: {about['rounds']}{kept}\n"
        f"Data: {about['data']}\n"
        f"Machine: {where['cores']} cores, {where['processor']}, torch {where['torch']}, "
        f"load {where['load']} before the start (it should be near 0)"
    )


def _measure_in_rounds(
    names: list[str], settings: Settings, environment: Mapping[str, str]
) -> tuple[Taken, dict[str, str]]:
    """Each rival once a round, in an order that rotates; one that fails is left out from then on."""
    taken: Taken = {name: [] for name in names}
    failed: dict[str, str] = {}
    for round_number in range(settings.rounds):
        turn = round_number % len(names)
        for name in names[turn:] + names[:turn]:
            if name in failed:
                continue
            try:
                taken[name].append(measure(RIVALS[name], settings, environment))
            except RivalFailed as error:
                failed[name] = str(error)
            told = failed.get(name) or _one_line(taken[name][-1])
            print(f"round {round_number + 1}/{settings.rounds}  {name}: {told}", file=sys.stderr, flush=True)
    return taken, failed


def _one_line(one: Measurement) -> str:
    rate = one.samples_per_second
    return f"{'too short to tell' if rate is None else f'{rate:,.0f} samples/s'}, {one.seconds:.1f} s in all"


def _row(name: str, taken: Taken) -> Row:
    rates = {rival: [one.samples_per_second for one in ones] for rival, ones in taken.items()}
    ones, rival = taken[name], RIVALS[name]
    ours = [one.seconds for one in taken.get(OURS, [])]
    seconds = [one.seconds for one in ones]
    return {
        "title": rival.title,
        "note": rival.note,
        "processes": rival.processes,
        "threads": rival.threads,
        "samples": [one.told["samples"] for one in ones],
        "samples_of_each": [one.told["samples_of_each"] for one in ones],
        "samples_per_second": rates[name],
        "steady_seconds": [one.told["steady_seconds"] for one in ones],
        "seconds": seconds,
        "loss": [one.told["loss"] for one in ones],
        "of_limit": ratio(rates[name], rates.get(LIMIT, [])),
        "ours_over_it": ratio(rates.get(OURS, []), rates[name]),
        "its_seconds_over_ours": ratio(seconds, ours),
    }


def _throughput_table(rows: Mapping[str, Row]) -> str:
    lines = [
        [
            f"{name}: {row['title']}",
            *_cells(spread(row["samples_per_second"]), 0),
            *_cells(row["of_limit"], 2),
            *_cells(row["ours_over_it"], 2),
            _cells(spread(row["loss"]), 2)[0],
        ]
        for name, row in rows.items()
    ]
    heads = ["steady throughput", "samples/s", "spread", "/ limit", "spread", f"{OURS} / it", "spread"]
    return table([*heads, "loss"], lines)


def _seconds_table(rows: Mapping[str, Row]) -> str:
    lines = [
        [
            f"{name}: {row['title']}",
            *_cells(spread(row["seconds"]), 1),
            *_cells(row["its_seconds_over_ours"], 2),
        ]
        for name, row in rows.items()
    ]
    return table(
        ["whole run, imports and start-up too", "seconds", "spread", f"it / {OURS}", "spread"], lines
    )


def _cells(measured: Spread | None, digits: int) -> tuple[str, str]:
    return measured.text(digits) if measured else ("-", "-")


def _notes(names: Sequence[str], failed: dict[str, str]) -> str:
    lines = [
        "Medians over the rounds; spread: least - most; ratios are taken within a round first.",
        "Loss: mean over each worker's last 50 steps; it shows that a rival trained, not how well.",
        *(f"  {name}: {RIVALS[name].note}" for name in names),
        *(f"FAILED {name}: {message}" for name, message in failed.items()),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
