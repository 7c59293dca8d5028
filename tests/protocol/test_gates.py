"""Which batches a gate lets start, at the edge of its bound."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from wasp_local.protocol.gates import Always, Bounded, Lockstep

COUNT = st.integers(0, 10**6)


@dataclass
class Seen:
    """A run as one worker sees it."""

    clock: int = 0
    fewest_clock: int = 0
    claimed: int = 0
    round_end: int = 0


@given(COUNT, COUNT, COUNT, COUNT)
def test_always_never_waits(clock: int, fewest: int, claimed: int, round_end: int) -> None:
    assert Always().may_start(Seen(clock, fewest, claimed, round_end))
    assert not Always().waits


@given(COUNT, st.integers(0, 100))
def test_a_worker_may_start_up_to_s_clocks_ahead_and_not_one_more(fewest: int, slack: int) -> None:
    assert Bounded(slack).may_start(Seen(clock=fewest + slack, fewest_clock=fewest))
    assert not Bounded(slack).may_start(Seen(clock=fewest + slack + 1, fewest_clock=fewest))
    assert Bounded(slack).waits


@given(COUNT, st.integers(0, 100))
def test_the_slowest_worker_may_always_start(fewest: int, slack: int) -> None:
    assert Bounded(slack).may_start(Seen(clock=fewest, fewest_clock=fewest))


@given(st.integers(1, 10**6))
def test_only_batches_of_the_present_group_may_start_in_lockstep(round_end: int) -> None:
    assert Lockstep().may_start(Seen(claimed=round_end - 1, round_end=round_end))
    assert not Lockstep().may_start(Seen(claimed=round_end, round_end=round_end))
    assert Lockstep().waits
