"""What holds for every test: it leaves nothing behind (see `leftovers`), and knows where real data may lie."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["leftovers"]

ROOT = Path(__file__).resolve().parent.parent
DATA = "WASP_LOCAL_DATA"

# No example has a deadline: how long it takes says more about the machine than about the code.
settings.register_profile(
    "wasp_local",
    parent=settings.get_profile("ci" if "CI" in os.environ else "default"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("wasp_local")

# A shell that runs the tests in the background ignores Ctrl-C for them, and so for every process they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def real_mnist() -> Path:
    """The folder that holds MNIST/raw with the original files, or skip."""
    data = Path(os.environ.get(DATA, ROOT.parent / "shared" / "data")).resolve()
    if not (data / "mnist" / "MNIST" / "raw").is_dir():
        pytest.skip(f"no MNIST in {data}: set {DATA} to a folder that holds mnist/MNIST/raw")
    return data / "mnist"
