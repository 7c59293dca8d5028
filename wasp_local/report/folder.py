"""A run's folder: its own, though two runs start in the same second, with files that are whole or absent.

The one thing to know: the folder's name is claimed by `mkdir`, which only one process can win, and not by
looking whether it exists.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from wasp_local.report.json_text import json_text

__all__ = ["create_run_folder", "write_json"]

ONLY_MINE = 0o700


def create_run_folder(parent: Path | str, label: str, *, now: float | None = None) -> Path:
    """Make and return a new folder below `parent`, named by the time and `label`, readable by its owner only.

    Args:
        parent: made if it does not exist, with the folders above it.
        label: what runs, such as "lenet5-wasp"; what does not suit a file name becomes "_".
        now: seconds since 1970; the present if not given.

    Raises:
        ValueError: `parent` is a file, or nothing can be written there.
    """
    parent = Path(parent).expanduser()
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))
    name = f"{stamp}_{re.sub(r'[^A-Za-z0-9_.-]+', '_', label)[:80]}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return _claim(parent, name)
    except OSError as cause:
        reason = "is a file" if parent.is_file() else (cause.strerror or str(cause)).lower()
        raise ValueError(
            f"out must be a folder that can be written to, got {str(parent)!r}: {reason}"
        ) from cause


def _claim(parent: Path, name: str) -> Path:
    attempt = 1
    while True:
        folder = parent / (name if attempt == 1 else f"{name}_{attempt}")
        try:
            folder.mkdir(mode=ONLY_MINE)
            return folder
        except FileExistsError:
            attempt += 1


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as JSON to `path`; whoever opens it sees the old text or the new, never a part."""
    path = Path(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(json_text(value, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
