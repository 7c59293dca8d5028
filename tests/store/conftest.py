from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from laid import Laid, laying


@pytest.fixture
def lay() -> Iterator[Callable[..., Laid]]:
    with laying() as lay:
        yield lay
