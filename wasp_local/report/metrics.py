"""A run's metrics as JSON Lines: one object a line, each whole on disk as soon as it is known.

The one thing to know: `event` names what a line is ("progress", "evaluation", "worker", "restart", "end");
the other keys are the fields of the type of that name in `wasp_local.events`. A figure that is missing or not
finite is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from wasp_local.events import Evaluation, Progress, Restart, WorkerReport
from wasp_local.report.json_text import json_text

__all__ = ["MetricsLog"]


class MetricsLog:
    """Writes metrics to `path`, which it makes or goes on with; for one process, the coordinator."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file = open(self.path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  closed by close()

    def progress(self, progress: Progress) -> None:
        """Write how far the run is."""
        self._line("progress", progress._asdict())

    def evaluation(self, evaluation: Evaluation) -> None:
        """Write what the test set said."""
        self._line("evaluation", evaluation._asdict())

    def worker(self, report: WorkerReport) -> None:
        """Write what one worker did."""
        self._line("worker", report._asdict())

    def restart(self, restart: Restart) -> None:
        """Write that a worker was started again."""
        self._line("restart", restart._asdict())

    def end(self, summary: Mapping[str, Any]) -> None:
        """Write the last line: the run's result, or why it failed."""
        self._line("end", summary)

    def close(self) -> None:
        """Close the file; again does nothing."""
        self._file.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _line(self, event: str, fields: Mapping[str, Any]) -> None:
        self._file.write(json_text({"event": event, **fields}) + "\n")
