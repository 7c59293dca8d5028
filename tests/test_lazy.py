"""The public names: each loads its own module when it is first used, and type checkers see the same ones."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from importlib import import_module

import pytest

import wasp_local
from wasp_local.protocol import PRESETS, WEIGHTS


def declared_for_type_checkers() -> dict[str, str]:
    """Name and module of each import in the TYPE_CHECKING block."""
    tree = ast.parse(inspect.getsource(wasp_local))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
        if alias.asname == alias.name
    }


def test_type_checkers_see_the_names_that_there_are():
    assert declared_for_type_checkers() == wasp_local._MODULE_OF
    assert sorted([*wasp_local._MODULE_OF, "__version__"]) == wasp_local.__all__


@pytest.mark.parametrize("name", wasp_local._MODULE_OF)
def test_a_public_name_is_its_modules_own_and_public_there(name):
    module = import_module(wasp_local._MODULE_OF[name])
    assert getattr(wasp_local, name) is getattr(module, name)
    assert name in module.__all__


def test_every_preset_and_every_weight_is_public():
    assert set(PRESETS) < set(wasp_local.__all__)
    assert {kind.__name__ for kind in WEIGHTS.values()} < set(wasp_local.__all__)


def test_importing_the_package_loads_none_of_its_modules():
    program = "import json, sys, wasp_local; print(json.dumps([n for n in sys.modules if n.startswith('wasp_local.')]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'wasp_local' has no attribute 'trainer_of'"):
        wasp_local.trainer_of  # noqa: B018
    assert not hasattr(wasp_local, "Worker")
