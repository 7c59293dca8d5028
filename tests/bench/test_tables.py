"""Straight columns, medians, and ratios taken within a round."""

from __future__ import annotations

import pytest
from tables import ratio, spread, table


def test_a_ratio_is_taken_within_a_round_so_that_drift_between_rounds_cancels_out():
    over, under = [10.0, 100.0, 40.0], [20.0, 200.0, 80.0]
    assert ratio(over, under) == (0.5, 0.5, 0.5)


def test_what_is_missing_in_a_round_is_left_out_of_it():
    assert spread([3.0, None, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert spread([None]) is None
    assert ratio([1.0, None, 9.0], [2.0, 1.0, 3.0]) == (pytest.approx(1.75), 0.5, 3.0)
    assert ratio([1.0, 1.0], [4.0]) == (0.25, 0.25, 0.25)


def test_the_columns_of_a_table_end_in_the_same_place():
    lines = table(["what", "samples/s"], [["a rival", "12"], ["b", "1,234,567"]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].startswith("a rival ")
    assert lines[3].endswith(" 1,234,567")
