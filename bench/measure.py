"""Runs one rival in a process of its own and takes down what it says and how long it took.

The one thing to know: a rival starts from a clean slate. It inherits this process's import path and none of
the variables that set threads, pinning or allocation, so "default" means default; when it ends, whatever it
started is ended with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from peers import Rival
from settings import Settings

__all__ = ["Measurement", "RivalFailed", "measure"]

BENCH = Path(__file__).resolve().parent
SECONDS_TO_END = 900.0  # for one measurement; only a rival that hangs takes longer
SETS_THREADS = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "MALLOC_", "TORCH_")
LAST_LINES = 8  # of what a rival wrote before it failed


class Measurement(NamedTuple):
    """One rival, once."""

    seconds: float  # from the start of its process to its end
    told: dict[str, Any]  # the JSON line that it printed

    @property
    def samples_per_second(self) -> float | None:
        """Steady throughput; None if its workers did too few steps to tell."""
        rate: float | None = self.told["samples_per_second"]
        return rate


class RivalFailed(Exception):
    """A rival ended with an error or did not end; the message has the last lines it wrote."""


def measure(rival: Rival, settings: Settings, environment: Mapping[str, str] | None = None) -> Measurement:
    """Run a rival once.

    Args:
        rival: which.
        settings: what it is to train.
        environment: variables that it gets beside its own.

    Raises:
        RivalFailed: it failed.
    """
    variables = {**_clean_environment(), **(environment or {}), **rival.environment}
    with tempfile.TemporaryDirectory(prefix="bench-") as log:
        command = [sys.executable, "-m", f"peers.{rival.module}", *_arguments(rival, settings, log)]
        begin = time.perf_counter()
        code, output, errors = _run(command, variables)
        seconds = time.perf_counter() - begin
    if code:
        last = "\n".join(errors.strip().splitlines()[-LAST_LINES:])
        raise RivalFailed(f"it ended with exit code {code}:\n{last}")
    return Measurement(seconds, json.loads(output.strip().splitlines()[-1]))


def _run(command: list[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command, with nothing left running that it started."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            raise RivalFailed(f"it did not end within {SECONDS_TO_END:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, output, errors


def _arguments(rival: Rival, settings: Settings, log: str) -> list[str]:
    told = {
        "samples": settings.samples,
        "batch-size": settings.batch_size,
        "processes": rival.processes,
        "threads": rival.threads,
        "warm-up": settings.warm_up,
        "data-root": settings.data_root,
        "images": settings.images,
        "log": log,
    }
    return [f"--{name}={value}" for name, value in told.items() if value is not None]


def _clean_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(SETS_THREADS)}
    kept["PYTHONPATH"] = os.pathsep.join([str(BENCH), *filter(None, sys.path)])
    return kept
