"""JSON as this package writes it: a number that is not finite is null, a path is text, a set a sorted list.

The one thing to know: `NaN` and `Infinity` are no JSON, though Python writes them; other readers refuse the
whole file for one of them.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

__all__ = ["json_text", "plain"]


def plain(value: Any) -> Any:
    """Return `value` as dict, list, str, int, float, bool and None; what has no such form as its repr."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return repr(value)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return `value` as JSON, on one line unless `indent` is given."""
    return json.dumps(plain(value), indent=indent, allow_nan=False, ensure_ascii=False)
