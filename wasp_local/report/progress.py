"""The progress of a run on a screen or in a log, written by one process: the coordinator.

The one thing to know: on a terminal there is one line that is drawn over again; anywhere else (a file, a
pipe) there are plain lines, at most one a second, without carriage returns or escape codes. Whatever else is
to be printed during a run goes through `write`, which takes the line away first and puts it back. Threads may
call it at once.

Why not tqdm: it starts a thread and makes a semaphore shared between processes, and a line too long for the
terminal is cut on the right, where this one leaves out what matters least.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from wasp_local.events import Progress
from wasp_local.report import figures

__all__ = ["ProgressLine"]

SECONDS_BETWEEN_LINES = 1.0  # where each stays
SECONDS_BETWEEN_DRAWINGS = 0.1  # where each replaces the one before
SHORTEST_BAR, LONGEST_BAR = 8, 30


class ProgressLine:
    """Shows a run's progress on `stream`.

    Args:
        samples_total: samples of the whole run.
        stream: where to; standard error if not given.
        quiet: show no progress and no `say`; `write` still prints.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        samples_total: int,
        stream: TextIO | None = None,
        quiet: bool = False,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.samples_total = samples_total
        self.stream = sys.stderr if stream is None else stream
        self.quiet = quiet
        self._clock = clock
        self._one_at_a_time = threading.RLock()
        self._on_terminal = self.stream.isatty()
        self._drawn = 0  # columns of the line that stands on the terminal, 0 = none
        self._latest: Progress | None = None
        self._shown: Progress | None = None
        self._shown_at: float | None = None

    def update(self, progress: Progress) -> None:
        """Show `progress`, unless something was shown a moment ago; the latest is kept for later."""
        between = SECONDS_BETWEEN_DRAWINGS if self._on_terminal else SECONDS_BETWEEN_LINES
        with self._one_at_a_time:
            self._latest = progress
            if not self.quiet and (self._shown_at is None or self._clock() - self._shown_at >= between):
                self._show(progress)

    def say(self, text: str) -> None:
        """Print a line of our own words; nothing when quiet."""
        if not self.quiet:
            self.write(text)

    def write(self, text: str, stream: TextIO | None = None) -> None:
        """Print `text` and a line end above the progress line, to `stream` or else where that one goes."""
        target = self.stream if stream is None else stream
        with self._one_at_a_time:
            self._take_away()
            target.write(_writable(text if text.endswith("\n") else text + "\n", target))
            target.flush()
            if self._on_terminal and self._shown is not None and not self.quiet:
                self._draw(self._shown)

    def close(self) -> None:
        """Leave the line as it last was and go on below it; again does nothing."""
        if self.quiet:
            return
        with self._one_at_a_time:
            if self._latest is not None and self._latest is not self._shown:
                if self._on_terminal:
                    self._show(self._latest)
                else:
                    self.update(self._latest)
            if self._drawn:
                self.stream.write("\n")
                self.stream.flush()
            self._drawn, self._shown, self._latest = 0, None, None

    def _show(self, progress: Progress) -> None:
        self._shown, self._shown_at = progress, self._clock()
        if self._on_terminal:
            self._draw(progress)
        else:
            self.stream.write(plain_line(progress, self.samples_total) + "\n")
            self.stream.flush()

    def _draw(self, progress: Progress) -> None:
        columns = _columns(self.stream)
        line = terminal_line(
            progress, self.samples_total, columns - 1
        )  # a full last column makes some scroll
        self.stream.write("\r" + line.ljust(min(self._drawn, columns - 1)))
        self.stream.flush()
        self._drawn = len(line)

    def _take_away(self) -> None:
        if self._drawn:
            self.stream.write("\r" + " " * self._drawn + "\r")
            self.stream.flush()
            self._drawn = 0


def plain_line(progress: Progress, samples_total: int) -> str:
    """Return progress as one line for a log."""
    parts = [
        f"{figures.count(progress.samples)} of {figures.count(samples_total)} samples"
        f" ({_whole(_share(progress, samples_total))})",
        f"epoch {progress.epoch:.1f}",
        f"{figures.count(progress.samples_per_second)} samples/s",
    ]
    if progress.loss is not None:
        parts.append(f"loss {figures.loss(progress.loss)}")
    if progress.accuracy is not None:
        parts.append(f"test accuracy {figures.per_cent(progress.accuracy)}")
    parts.append(f"mean staleness {figures.staleness(progress.staleness)}")
    return ", ".join(parts)


def terminal_line(progress: Progress, samples_total: int, width: int) -> str:
    """Return progress as one line of at most `width` columns; what matters least is left out first."""
    share = _share(progress, samples_total)
    head = f"{_whole(share):>5} "
    ranked = [  # rank (0 is left out last), text; in the order in which they stand
        (0, f"{figures.count(progress.samples)}/{figures.count(samples_total)}"),
        (3, f"{figures.count(progress.samples_per_second)}/s"),
        (5, _time_left(progress, samples_total)),
        (1, "" if progress.loss is None else f"loss {figures.loss(progress.loss)}"),
        (2, "" if progress.accuracy is None else f"accuracy {figures.per_cent(progress.accuracy)}"),
        (4, f"staleness {figures.staleness(progress.staleness)}"),
    ]
    for worst in range(5, -1, -1):
        text = head + "  ".join(part for rank, part in ranked if part and rank <= worst)
        if len(text) <= width:
            return text[: len(head)] + _bar(share, width - len(text)) + text[len(head) :]
    return head.strip()[: max(width, 0)]


def _columns(terminal: TextIO) -> int:
    try:
        columns = os.get_terminal_size(terminal.fileno()).columns
    except OSError:
        columns = 0
    return columns or shutil.get_terminal_size().columns  # some terminals say 0


def _writable(text: str, target: TextIO) -> str:
    """Return `text` with what the stream's encoding lacks as escapes: a worker's print must not end a run."""
    encoding = target.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _share(progress: Progress, samples_total: int) -> float:
    return progress.samples / samples_total if samples_total else 1.0


def _whole(share: float) -> str:
    """Whole per cent, rounded down: what is not done does not read 100 %."""
    return f"{int(share * 100)} %"


def _time_left(progress: Progress, samples_total: int) -> str:
    if not progress.samples or progress.seconds <= 0 or progress.samples >= samples_total:
        return ""
    return f"{figures.clock_time(progress.seconds * (samples_total / progress.samples - 1))} left"


def _bar(share: float, room: int) -> str:
    length = min(room - 3, LONGEST_BAR)  # brackets and a space
    if length < SHORTEST_BAR:
        return ""
    done = min(length, int(share * length))
    return "[" + "#" * done + "." * (length - done) + "] "
