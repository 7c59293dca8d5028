"""The result of a run: what came out, and the page of text that a person reads when it ends.

The one thing to know: `str(result)` fits 80 columns unless a name in it is longer, is plain ASCII apart from
names, and leaves out what the run has not (no test set, no accuracy); `result.as_dict()` is the same for a
program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from wasp_local.events import Evaluation, WorkerReport
from wasp_local.report import figures
from wasp_local.report.json_text import plain
from wasp_local.report.tables import labelled, staleness_bars, worker_table

__all__ = ["Result"]


@dataclass(frozen=True, repr=False, kw_only=True)
class Result:
    """What a run came to. A figure that the run has not is None.

    Attributes:
        accuracy: share of the test set that the final parameters get right, 0..1.
        loss: mean training loss over the last samples that were reported.
        test_loss: mean loss over the test set of the final parameters.
        samples: samples trained on, each time one was used.
        updates: how often the store's parameters were changed; its version at the end.
        pushes: gradients that took effect, alone or in a group.
        dropped: gradients that were given weight 0 and thrown away.
        syncs: forced syncs.
        seconds: from the moment all workers could start to the last push.
        samples_per_second: samples over seconds.
        staleness_histogram: how many pushes had each staleness tau.
        staleness_mean: mean tau over the pushes; 0 where there was none.
        workers: what each worker did and where its time went.
        evaluations: the test set at each evaluation, in order.
        stopped: why the run ended, as a clause such as "all 10 epochs done".
        protocol: the protocol's repr.
        cores: where the number of usable cores came from.
        run_folder: where the run's files are; None if it was told to keep none.
        shared_bytes: shared memory that the run held.
    """

    accuracy: float | None = None
    loss: float | None = None
    test_loss: float | None = None
    samples: int
    updates: int
    pushes: int
    dropped: int = 0
    syncs: int = 0
    seconds: float
    samples_per_second: float
    staleness_histogram: Mapping[int, int] = field(default_factory=dict)
    staleness_mean: float = 0.0
    workers: tuple[WorkerReport, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    stopped: str
    protocol: str
    cores: str
    run_folder: Path | None = None
    shared_bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain values that JSON can hold."""
        return {each.name: plain(getattr(self, each.name)) for each in fields(self)}

    def __repr__(self) -> str:
        accuracy = "" if self.accuracy is None else f"accuracy={self.accuracy:.4f}, "
        return f"Result({accuracy}samples={self.samples}, updates={self.updates}, seconds={self.seconds:.2f})"

    def __str__(self) -> str:
        parts = [labelled(self._outcome())]
        parts.append(staleness_bars(self.staleness_histogram, self.staleness_mean))
        if self.workers:
            parts.append(worker_table(self.workers))
        parts.append(labelled(self._circumstances()))
        return "\n\n".join(parts)

    def _outcome(self) -> list[tuple[str, str]]:
        lines = []
        if self.accuracy is not None:
            lines.append(("Test accuracy", figures.per_cent(self.accuracy, 2) + self._best()))
        losses = [(self.loss, "in training"), (self.test_loss, "on the test set")]
        known = [f"{figures.loss(value)} {where}" for value, where in losses if value is not None]
        if known:
            lines.append(("Loss", ", ".join(known)))
        speed = f", {figures.count(self.samples_per_second)} samples/s" if self.samples else ""
        lines.append(("Time", figures.duration(self.seconds) + speed))
        dropped = f" ({figures.count(self.dropped)} more dropped)" if self.dropped else ""
        lines.append(
            (
                "Work",
                f"{figures.count(self.samples)} samples in {figures.count(self.pushes)} pushes{dropped}, "
                f"{figures.count(self.updates)} updates, {figures.count(self.syncs)} forced syncs",
            )
        )
        lines.append(("Ended", self.stopped))
        return lines

    def _best(self) -> str:
        """Return where the test accuracy was better than at the end, or nothing."""
        scored = [each for each in self.evaluations if each.accuracy is not None]
        best = max(scored, key=lambda each: each.accuracy or 0.0, default=None)
        if (
            best is None
            or best.accuracy is None
            or self.accuracy is None
            or not best.accuracy > self.accuracy
        ):
            return ""
        return f" (best {figures.per_cent(best.accuracy, 2)}, after epoch {best.epoch:.3g})"

    def _circumstances(self) -> list[tuple[str, str]]:
        lines = [("Protocol", self.protocol), ("Usable cores", self.cores)]
        if self.shared_bytes:
            lines.append(("Shared memory", figures.size(self.shared_bytes)))
        if self.run_folder is not None:
            lines.append(("Run folder", str(self.run_folder)))
        return lines
