from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from processes import fork, wait

from wasp_local.shm.bell import Bell
from wasp_local.shm.segment import Segment


@pytest.fixture
def segment() -> Iterator[Segment]:
    segment = Segment.create(4096, purpose="test")
    Bell(segment, 0).initialise()
    yield segment
    segment.close()


class GivenUp(Exception):
    pass


def give_up() -> None:
    raise GivenUp


@pytest.mark.parametrize("players", [2, 4])
def test_many_rounds_of_taking_turns_need_no_time_out(segment: Segment, players: int) -> None:
    # a lost wake would sleep the whole minute, and then give up
    turn = segment.words(256, 1)

    def play(player: int) -> None:
        bell = Bell(segment, 0)
        for _ in range(300):
            wakes = 0

            def one_more_wake() -> None:
                nonlocal wakes
                wakes += 1
                assert wakes < 1000

            bell.wait(lambda: turn[0] % players == player, one_more_wake, slice_seconds=60)
            turn[0] += 1
            bell.fence()
            bell.ring()

    assert wait(*[fork(lambda player=player: play(player)) for player in range(players)]) == [0] * players
    assert turn[0] == 300 * players


def test_a_condition_that_holds_is_not_waited_for(segment: Segment) -> None:
    Bell(segment, 0).wait(lambda: True, give_up)


def test_a_wait_for_a_ringer_that_is_dead_can_be_given_up(segment: Segment) -> None:
    pid = fork(lambda: os.kill(os.getpid(), signal.SIGKILL))
    wait(pid)

    def is_it_alive() -> None:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            raise GivenUp from None

    with pytest.raises(GivenUp):
        Bell(segment, 0).wait(lambda: False, is_it_alive, slice_seconds=0.01)


def test_a_waiter_that_was_killed_costs_others_nothing(segment: Segment) -> None:
    word = segment.words(256, 1)

    def wait_for_ever() -> None:
        Bell(segment, 0).wait(lambda: word[0] == 99, lambda: os.kill(os.getpid(), signal.SIGKILL), 0.01)

    for _ in range(20):
        assert wait(fork(wait_for_ever)) == [-signal.SIGKILL]
    pid = fork(lambda: Bell(segment, 0).wait(lambda: word[0] == 1, lambda: None, slice_seconds=60))
    word[0] = 1
    bell = Bell(segment, 0)
    bell.fence()
    bell.ring()
    assert wait(pid) == [0]


def test_memory_that_was_freed_is_kept_on_glibc() -> None:
    from wasp_local.shm.heap import keep_freed_memory

    answers: list[int] = wait(fork(lambda: os._exit(3 if keep_freed_memory() else 4)))
    assert answers == [3]
