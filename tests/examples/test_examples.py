"""Every example runs from the shell, as it stands, and says what it is there to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wasp_local

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

LAST_WORDS = {
    "quickstart.py": r"Test accuracy +9\d\.\d\d %",
    "own_model.py": r"ended because the test loss is below 0\.001, at loss 0\.00",
    "hogwild_before.py": r"accuracy (8|9)\d\.\d%",
    "hogwild_after.py": r"accuracy (8|9)\d\.\d%",
}


def test_every_example_is_tried():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(LAST_WORDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAST_WORDS)
def test_an_example_runs_and_trains(name, tmp_path):
    package = Path(wasp_local.__file__).resolve().parents[1]
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search(LAST_WORDS[name], ended.stdout), ended.stdout + ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_hogwild_script_moves_over_by_a_handful_of_lines():
    before, after = (
        {line.strip() for line in (EXAMPLES / f"hogwild_{name}.py").read_text().splitlines()[9:]}
        for name in ("before", "after")
    )
    assert len(after - before) <= 8
