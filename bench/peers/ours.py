"""wasp_local on the task of the rivals: what a user would type, timed by the same loss as theirs.

The one thing to know: it is given the images as bytes, and its workers normalise each batch, where the
rivals in memory have normalised all of them before they start. The workers' own reports go along, for
`step.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from peers.task import Task
from wasp_local import Trainer

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Train and print the report."""
    task = Task.from_arguments(argv)
    model = task.model()
    trainer = Trainer(
        model,
        optimizer=task.optimizer(model.parameters()),
        loss=task.loss,
        workers=task.processes,
        threads=task.threads,
        batch_size=task.batch_size,
        samples=task.samples,
        quiet=True,
    )
    result = trainer.fit(task.digits())
    task.report(
        workers=[each._asdict() for each in result.workers],
        staleness_mean=result.staleness_mean,
        syncs=result.syncs,
        protocol=result.protocol,
    )


if __name__ == "__main__":
    main()
