"""JSON that every reader takes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from wasp_local.events import Restart, WorkerId
from wasp_local.report.json_text import json_text, plain


@dataclass
class Inner:
    path: Path
    sizes: tuple[int, ...]


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@given(
    st.recursive(st.floats() | st.integers() | st.text() | st.booleans() | st.none(), st.lists, max_leaves=20)
)
def test_any_value_becomes_strict_json_on_one_line(value):
    text = json_text(value)
    json.loads(text, parse_constant=refuse)
    assert "\n" not in text


def test_what_is_not_finite_is_null():
    assert json.loads(json_text({"loss": math.nan, "best": [math.inf, 0.5]})) == {
        "loss": None,
        "best": [None, 0.5],
    }


def test_paths_dataclasses_named_tuples_sets_and_keys_have_a_plain_form():
    value = {1: Inner(Path("runs"), (3, 4)), "cores": {2, 1}, "event": Restart(WorkerId(7))}
    assert plain(value) == {
        "1": {"path": "runs", "sizes": [3, 4]},
        "cores": [1, 2],
        "event": {"worker": 7},
    }


def test_what_has_no_plain_form_is_its_repr():
    assert plain(Mapping) == repr(Mapping)
