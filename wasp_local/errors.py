"""The errors this package raises, by who can mend them: you, the world, us.

A mistake in what a run was told raises `ValueError` or `TypeError` before any worker starts. What is below
happens later, or lies outside the call: `WorkerFailed` (your code, or the kernel, ended a worker), `Shortage`
(the machine has too little of something), `DataError` (a file is missing or damaged), `BrokenInvariant` (a
fault of ours: please report it).
"""

from __future__ import annotations

__all__ = ["BrokenInvariant", "DataError", "RunError", "Shortage", "WorkerFailed", "WorkerTraceback"]


class RunError(Exception):
    """A run could not be started or finished; the message is one sentence that says what would be right."""


class WorkerFailed(RunError):
    """A worker raised, exited or was killed; its own traceback text, if it left one, is in the message.

    Attributes:
        worker: the worker's number.
        pid: its process.
        step: how many pushes it had finished.
        traceback_text: what Python printed in the worker, or "" if it was killed.
    """

    def __init__(self, message: str, *, worker: int, pid: int, step: int, traceback_text: str = "") -> None:
        super().__init__(message)
        self.worker = worker
        self.pid = pid
        self.step = step
        self.traceback_text = traceback_text


class Shortage(RunError):
    """The machine has too little memory, descriptors or disk for this run."""


class DataError(RunError):
    """A data file is missing, damaged or not what its name says."""


class BrokenInvariant(RunError):
    """Something held that this package promises cannot; the shared state is not to be trusted."""


class WorkerTraceback(Exception):
    """The traceback that Python printed in a worker, as the cause of a `WorkerFailed`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def __str__(self) -> str:
        return "\n\n" + str(self.args[0]).rstrip()
