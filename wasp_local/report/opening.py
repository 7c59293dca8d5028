"""The first line of a run: what is about to happen, so that someone can check it against what they meant.

The one thing to know: it says what was found out and not what was asked for: the cores that workers got, the
number of parameters that the model has, the folder that was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wasp_local.report import figures

__all__ = ["opening"]


def opening(
    *,
    model: str,
    parameters: int,
    train: int,
    test: int | None,
    cores_of: Sequence[Sequence[int]],
    threads: int,
    cores: str,
    protocol: str,
    run_folder: Path | None,
) -> str:
    """Return the line.

    Args:
        model: the name of what is trained.
        parameters: how many numbers it learns.
        train: samples of the training data.
        test: samples of the test data; None without any.
        cores_of: for each worker the cores it is pinned to; empty where it is not.
        threads: compute threads of each worker.
        cores: where the number of usable cores came from.
        protocol: the protocol as the user would write it.
        run_folder: where the run's files go; None if it keeps none.
    """
    data = f"{figures.count(train)} samples" + (
        "" if test is None else f" (and {figures.count(test)} to test)"
    )
    workers = _many(len(cores_of), "worker") + " with " + _many(threads, "thread")
    if len(cores_of) > 1:
        workers += " each"
    pinned = {core for each in cores_of for core in each}
    place = (
        f"pinned to {'core' if len(pinned) == 1 else 'cores'} {figures.core_ranges(pinned)}"
        if pinned
        else "not pinned"
    )
    kept = "no run folder" if run_folder is None else f"run folder {run_folder}"
    return (
        f"Training {model} ({figures.count(parameters)} parameters) on {data}: {workers}, {place} "
        f"(usable cores: {cores}), protocol {protocol}, {kept}"
    )


def _many(number: int, thing: str) -> str:
    return f"{figures.count(number)} {thing}" + ("" if number == 1 else "s")
