"""Figures that people read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasp_local.report import figures


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (figures.count(17300), "17,300"),
        (figures.per_cent(0.9513), "95.1 %"),
        (figures.per_cent(0.43, 0), "43 %"),
        (figures.per_cent(1.0), "100.0 %"),
        (figures.per_cent(0.0), "0.0 %"),
        (figures.per_cent(0.00001), "<0.1 %"),
        (figures.loss(0.0123), "0.0123"),
        (figures.loss(2.3026), "2.303"),
        (figures.loss(123.456), "123.5"),
        (figures.loss(1234567.0), "1.2e+06"),
        (figures.loss(0.0), "0.0000"),
        (figures.staleness(0.98), "0.98"),
        (figures.staleness(63.21), "63.2"),
        (figures.duration(4.712), "4.71 s"),
        (figures.duration(59.96), "1 min 00 s"),
        (figures.duration(125), "2 min 05 s"),
        (figures.duration(12_000), "3 h 20 min"),
        (figures.clock_time(12.3), "0:12"),
        (figures.clock_time(3750), "1:02:30"),
        (figures.size(999), "999 bytes"),
        (figures.size(34_567_890), "34.6 MB"),
        (figures.size(5 * 10**15), "5000.0 TB"),
        (figures.core_ranges([3, 0, 1, 2, 8, 8]), "0-3,8"),
        (figures.core_ranges([]), ""),
    ],
)
def test_a_figure_is_written_so(written, wanted):
    assert written == wanted


@given(st.floats(0, 3599))
def test_a_duration_never_reads_sixty_seconds(seconds):
    assert float(figures.duration(seconds).split()[-2]) < 60


@pytest.mark.parametrize(
    "write",
    [
        figures.count,
        figures.per_cent,
        figures.loss,
        figures.staleness,
        figures.duration,
        figures.clock_time,
    ],
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_does_not_look_like_a_number(write, value):
    assert write(value) == "not finite"
