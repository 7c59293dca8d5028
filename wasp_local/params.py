"""A parameter, declared once: its type, default, bounds and meaning stand where it is defined.

    exponent: Annotated[float, at_least(0), about("how fast the weight falls with tau")] = 0.5

The one thing to know: the check, its message, the command line's flag and its help all come from that line.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

__all__ = [
    "REQUIRED",
    "Bound",
    "Parameter",
    "about",
    "above",
    "at_least",
    "at_most",
    "below",
    "check",
    "check_fields",
    "check_values",
    "one_of",
    "parameters",
]

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Bound:
    """A condition on a value, and the words for it: "must be {words}"."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class _About:
    text: str


def at_least(least: float) -> Bound:
    """The value is `least` or more."""
    return Bound(f"at least {least}", lambda value: value >= least)


def above(limit: float) -> Bound:
    """The value is more than `limit`."""
    return Bound(f"above {limit}", lambda value: value > limit)


def at_most(most: float) -> Bound:
    """The value is `most` or less."""
    return Bound(f"at most {most}", lambda value: value <= most)


def below(limit: float) -> Bound:
    """The value is less than `limit`."""
    return Bound(f"below {limit}", lambda value: value < limit)


def one_of(*names: str) -> Bound:
    """The value is one of these names."""
    return Bound("one of " + ", ".join(names), lambda value: value in names)


def about(text: str) -> _About:
    """What the parameter means, in a clause for help and messages."""
    return _About(text)


@dataclass(frozen=True)
class Parameter:
    """One declared parameter.

    Attributes:
        name: as in Python; its flag has dashes.
        type: int, float, bool, str or a class.
        optional: whether None may be given.
        default: `REQUIRED` where there is none.
        bounds: all must hold of a value that is not None.
        help: the clause of `about`, "" without.
    """

    name: str
    type: type
    optional: bool
    default: Any
    bounds: tuple[Bound, ...]
    help: str


def parameters(target: Any) -> dict[str, Parameter]:
    """The declared parameters of a dataclass or a function, by name, in order."""
    hints = typing.get_type_hints(target, include_extras=True)
    if is_dataclass(target):
        defaults = {each.name: _default_of(each) for each in fields(target) if each.init}
    else:
        defaults = {name: each.default for name, each in inspect.signature(target).parameters.items()}
    return {name: _parameter(name, hints[name], default) for name, default in defaults.items()}


def _default_of(field: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    return REQUIRED if field.default_factory is MISSING else field.default_factory()


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    notes: tuple[Any, ...] = ()
    if typing.get_origin(hint) is typing.Annotated:
        hint, *rest = typing.get_args(hint)
        notes = tuple(rest)
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    kind = next(each for each in members if each is not type(None))
    text = next((note.text for note in notes if isinstance(note, _About)), "")
    bounds = tuple(note for note in notes if isinstance(note, Bound))
    return Parameter(name, kind, type(None) in members, default, bounds, text)


def check(parameter: Parameter, value: Any) -> None:
    """Raise unless `value` suits `parameter`.

    Raises:
        TypeError: it is of another type.
        ValueError: it is out of bounds, or not finite.
    """
    if value is None and parameter.optional:
        return
    meaning = f" ({parameter.help})" if parameter.help else ""
    if not _suits(parameter.type, value):
        wanted = _TYPE_WORDS.get(parameter.type, f"a {parameter.type.__name__}")
        wanted += " or None" if parameter.optional else ""
        got = f"the class {value.__name__} itself" if isinstance(value, type) else repr(value)
        raise TypeError(f"{parameter.name} must be {wanted}{meaning}, got {got}")
    if parameter.type is float and not _is_finite(value):
        raise ValueError(f"{parameter.name} must be a finite number{meaning}, got {value!r}")
    if not all(bound.holds(value) for bound in parameter.bounds):
        words = " and ".join(bound.words for bound in parameter.bounds)
        raise ValueError(f"{parameter.name} must be {words}{meaning}, got {value!r}")


_TYPE_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}


def _suits(kind: Any, value: Any) -> bool:
    if isinstance(value, bool) and kind is not bool:
        return False
    if kind is float:
        return isinstance(value, int | float)
    if typing.is_protocol(kind) if hasattr(typing, "is_protocol") else getattr(kind, "_is_protocol", False):
        return callable(value) and not isinstance(value, type)
    return isinstance(value, kind)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond the largest float
        return False


def check_fields(instance: Any) -> None:
    """Check every declared parameter of a dataclass instance; for its `__post_init__`."""
    check_values(
        parameters(type(instance)), {each.name: getattr(instance, each.name) for each in fields(instance)}
    )


def check_values(declared: Mapping[str, Parameter], values: Mapping[str, Any]) -> None:
    """Check each value against the parameter of its name."""
    for name, parameter in declared.items():
        if name in values:
            check(parameter, values[name])
