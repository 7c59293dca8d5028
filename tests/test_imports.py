"""Imports point one way, what needs no torch loads none, and what is tested is what is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import wasp_local

ROOT = Path(__file__).resolve().parent.parent
WITHOUT_TORCH = (
    "wasp_local",
    "wasp_local.cli",
    "wasp_local.config",
    "wasp_local.data.mnist",
    "wasp_local.data.plan",
    "wasp_local.errors",
    "wasp_local.events",
    "wasp_local.params",
    "wasp_local.protocol",
    "wasp_local.protocol.loop",
    "wasp_local.report.summary",
    "wasp_local.report.progress",
    "wasp_local.shm.bell",
    "wasp_local.shm.mutex",
    "wasp_local.shm.segment",
)
INSTALLED = "WASP_LOCAL_TEST_INSTALLED"


def told_by(program: str) -> object:
    """What a fresh Python, started in the test's empty folder, prints as JSON."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_imports_point_one_way():
    """The contracts are in pyproject.toml."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", ROOT / "pyproject.toml"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_modules_that_need_no_torch_load_none():
    loading = told_by(
        "import importlib, json, sys\n"
        "loading = []\n"
        f"for name in {WITHOUT_TORCH}:\n"
        "    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules: loading.append(name); break\n"
        "print(json.dumps(loading))"
    )
    assert loading == []


def test_every_public_name_is_there_and_no_other():
    names = told_by(
        "import json, wasp_local\n"
        "for name in wasp_local.__all__: getattr(wasp_local, name)\n"
        "print(json.dumps([wasp_local.__all__, dir(wasp_local)]))"
    )
    assert names == [sorted(set(wasp_local.__all__))] * 2


@pytest.mark.skipif(os.environ.get(INSTALLED) != "1", reason=f"{INSTALLED} is not 1: may test a checkout")
def test_the_installed_package_is_tested_here_and_in_every_process_that_a_test_starts():
    site_packages = Path(sysconfig.get_path("purelib")).resolve()
    found = told_by("import json, sys, wasp_local; print(json.dumps([wasp_local.__file__, sys.path]))")
    for file in (wasp_local.__file__, found[0]):
        assert site_packages in Path(file).resolve().parents
    assert str(ROOT) not in [*sys.path, *found[1]]
    assert Path.cwd() not in (ROOT, *ROOT.parents)
