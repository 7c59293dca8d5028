"""A parameter declared once: its check, its message, and what flags and help are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest

from wasp_local.params import (
    REQUIRED,
    about,
    above,
    at_least,
    at_most,
    below,
    check_fields,
    check_values,
    one_of,
    parameters,
)


@dataclass(frozen=True)
class Oven:
    degrees: Annotated[float, above(0), at_most(300), about("how hot it is")]
    racks: Annotated[int, at_least(1), below(10)] = 2
    mode: Annotated[str | None, one_of("fan", "grill"), about("where the heat comes from")] = None
    door: Annotated[bool, about("whether the door is open")] = False

    def __post_init__(self) -> None:
        check_fields(self)


def bake(minutes: Annotated[int | None, at_least(1), about("how long")] = None) -> None:
    """Declared like a preset."""


def test_a_declaration_is_read_off_a_dataclass() -> None:
    declared = parameters(Oven)
    assert list(declared) == ["degrees", "racks", "mode", "door"]
    assert (declared["degrees"].type, declared["degrees"].default) == (float, REQUIRED)
    assert (declared["mode"].type, declared["mode"].optional, declared["mode"].default) == (str, True, None)
    assert [bound.words for bound in declared["racks"].bounds] == ["at least 1", "below 10"]
    assert declared["degrees"].help == "how hot it is"


def test_a_declaration_is_read_off_a_function() -> None:
    (minutes,) = parameters(bake).values()
    assert (minutes.name, minutes.type, minutes.optional, minutes.default) == ("minutes", int, True, None)


def test_values_within_bounds_are_taken() -> None:
    Oven(180)
    Oven(0.5, racks=9, mode="fan", door=True)


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        ({"degrees": 0}, ValueError, r"degrees must be above 0 and at most 300 \(how hot it is\), got 0"),
        ({"degrees": 301.5}, ValueError, r"degrees must be above 0 and at most 300 .*, got 301\.5"),
        ({"degrees": float("inf")}, ValueError, r"degrees must be a finite number .*, got inf"),
        ({"degrees": float("nan")}, ValueError, r"degrees must be a finite number .*, got nan"),
        ({"degrees": 10**400}, ValueError, r"degrees must be a finite number .*, got 10+$"),
        ({"degrees": float}, TypeError, r"degrees must be a number .*, got the class float itself"),
        ({"degrees": "hot"}, TypeError, r"degrees must be a number .*, got 'hot'"),
        ({"degrees": None}, TypeError, r"degrees must be a number .*, got None"),
        ({"degrees": 1, "racks": 10}, ValueError, r"^racks must be at least 1 and below 10, got 10"),
        ({"degrees": 1, "racks": 2.0}, TypeError, r"^racks must be a whole number, got 2\.0"),
        ({"degrees": 1, "racks": True}, TypeError, r"^racks must be a whole number, got True"),
        ({"degrees": 1, "mode": "steam"}, ValueError, r"mode must be one of fan, grill .*, got 'steam'"),
        ({"degrees": 1, "mode": 3}, TypeError, r"mode must be a text or None .*, got 3"),
        ({"degrees": 1, "door": 1}, TypeError, r"door must be True or False .*, got 1"),
    ],
)
def test_a_wrong_value_is_one_sentence(
    given: dict[str, object], kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        Oven(**given)  # type: ignore[arg-type]


def test_values_that_were_not_given_are_not_checked() -> None:
    check_values(parameters(bake), {})
    with pytest.raises(ValueError, match=r"minutes must be at least 1 \(how long\), got 0"):
        check_values(parameters(bake), {"minutes": 0})
