"""What is the same for all measurements of a benchmark: its options, its data, the machine it ran on.

The one thing to know: `--tiny` trains so little, on the embedded digits, that it shows that everything runs and
measures nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Settings", "add_options", "find_mnist", "machine"]

BATCH_SIZE = 64
WARM_UP = 20
MNIST_IMAGES, DIGITS = 60_000, 4_000
TINY_SAMPLES = 20 * BATCH_SIZE


class Settings(NamedTuple):
    """What every rival is told."""

    samples: int  # to train on, by all its processes together
    batch_size: int
    warm_up: int  # first steps of each process that do not count
    data_root: Path | None  # folder with MNIST/raw; None: the embedded digits
    images: int  # that the embedded digits are repeated to
    rounds: int

    @classmethod
    def of(cls, options: argparse.Namespace) -> Settings:
        """The settings that these options ask for, see `add_options`.

        Raises:
            SystemExit: they make no measurement; the message says what would be right.
        """
        if options.tiny:
            return cls(TINY_SAMPLES, BATCH_SIZE, 1, None, DIGITS, rounds=1)
        unit = 2 * BATCH_SIZE
        if options.rounds < 1:
            sys.exit(f"--rounds must be at least 1, got {options.rounds}")
        if options.samples < unit or options.samples % unit:
            sys.exit(
                f"--samples must be a multiple of {unit}, a whole batch for each of two processes, "
                f"got {options.samples}"
            )
        root = find_mnist(options.data_root)
        return cls(options.samples, BATCH_SIZE, WARM_UP, root, MNIST_IMAGES, options.rounds)

    @property
    def data(self) -> str:
        """What is trained on, in words."""
        if self.data_root is not None:
            return f"MNIST, {MNIST_IMAGES:,} images"
        return f"no MNIST: the {DIGITS:,} embedded digits, repeated to {self.images:,}"


def add_options(parser: argparse.ArgumentParser, rounds: int, samples: int) -> None:
    """Give the parser the options that every benchmark has, with these defaults."""
    parser.add_argument("--rounds", type=int, default=rounds, help=f"how often each is measured ({rounds})")
    parser.add_argument(
        "--samples", type=int, default=samples, help=f"samples of each measurement ({samples:,})"
    )
    parser.add_argument(
        "--data-root",
        type=Path,
        metavar="DIR",
        help="folder that holds MNIST/raw; else $WASP_LOCAL_DATA, else ../shared/data, else embedded digits",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    parser.add_argument(
        "--tiny", action="store_true", help="one round of few samples: shows that it runs, measures nothing"
    )


def find_mnist(root: Path | None) -> Path | None:
    """The folder that holds MNIST/raw: the one given or `mnist` in it; None if it is in none of the usual places.

    Raises:
        SystemExit: a folder was given, and it is not there.
    """
    told = root or os.environ.get("WASP_LOCAL_DATA")
    place = Path(told) if told else Path(__file__).resolve().parents[2] / "shared" / "data"
    for folder in (place, place / "mnist"):
        if (folder / "MNIST" / "raw").is_dir():
            return folder
    if told:
        sys.exit(f"the data folder must hold MNIST/raw, got {place}: leave it out to use the embedded digits")
    return None


def machine() -> dict[str, Any]:
    """Where this is measured, and how busy it is."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch": version("torch"),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
