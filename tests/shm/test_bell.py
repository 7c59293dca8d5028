"""Waits end by a ring, a look or an order to give up, and no wake is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from processes import fork, wait

from wasp_local.shm import bell as module
from wasp_local.shm import mutex
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


LONGER_THAN_ANY_TEST = 3600.0  # seconds: who sleeps so long has lost a wake
MOST_SECONDS = 60  # after which whoever lost one is ended, and its exit code tells


def wait_without_time_out(segment: Segment, condition: Callable[[], bool]) -> None:
    """Wait for no more than `MOST_SECONDS`, and never wake by a time-out."""
    signal.alarm(MOST_SECONDS)
    Bell(segment, 0).wait(condition, lambda: None, slice_seconds=LONGER_THAN_ANY_TEST)
    signal.alarm(0)


@pytest.mark.parametrize("players", [2, 4])
def test_many_rounds_of_taking_turns_need_no_time_out(segment: Segment, players: int) -> None:
    turn = segment.words(256, 1)

    def play(player: int) -> None:
        bell = Bell(segment, 0)
        for _ in range(500):
            wait_without_time_out(segment, lambda: turn[0] % players == player)
            turn[0] += 1
            bell.fence()
            bell.ring()

    assert wait(*[fork(lambda player=player: play(player)) for player in range(players)]) == [0] * players
    assert turn[0] == 500 * players


@pytest.mark.parametrize("look", [1, 2, 3])
def test_a_change_right_after_a_waiter_looked_ends_its_sleep(segment: Segment, look: int) -> None:
    # the race itself, built: the word changes between a look that says no and what comes after it
    word = segment.words(256, 1)
    looks = 0

    def change() -> None:
        word[0] = 1
        bell = Bell(segment, 0)
        bell.fence()
        bell.ring()

    def changed_too_late() -> bool:
        nonlocal looks
        looks += 1
        answer = word[0] == 1
        if looks == look:
            assert wait(fork(change)) == [0]
        elif looks < look and looks > 1:  # wake it without a change, so that it looks once more
            assert wait(fork(Bell(segment, 0).ring)) == [0]
        return answer

    assert wait(fork(lambda: wait_without_time_out(segment, changed_too_late))) == [0]


def test_a_ring_wakes_all_who_wait(segment: Segment) -> None:
    word, ready = segment.words(256, 1), segment.words(320, 5)

    def join(place: int) -> None:
        def says_so_when_registered() -> bool:
            ready[place] += 1
            return word[0] == 1

        wait_without_time_out(segment, says_so_when_registered)

    pids = [fork(lambda place=place: join(place)) for place in range(5)]
    while min(ready) < 2:  # the second look comes with the waiter registered
        os.sched_yield()
    word[0] = 1
    bell = Bell(segment, 0)
    bell.fence()
    bell.ring()
    assert wait(*pids) == [0] * 5


def test_a_ring_without_a_change_ends_no_wait(segment: Segment) -> None:
    looks = 0

    def ring_again() -> None:
        nonlocal looks
        looks += 1
        if looks == 5:
            raise GivenUp

    def ring() -> bool:
        Bell(segment, 0).ring()
        return False

    with pytest.raises(GivenUp):
        Bell(segment, 0).wait(ring, ring_again, slice_seconds=LONGER_THAN_ANY_TEST)


def test_whoever_gave_up_is_not_waited_for(segment: Segment) -> None:
    for _ in range(3):
        with pytest.raises(GivenUp):
            Bell(segment, 0).wait(lambda: False, give_up, slice_seconds=0.001)
    assert segment.words(0, 2).tolist() == [0, 0]


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
    pid = fork(lambda: wait_without_time_out(segment, lambda: word[0] == 1))
    word[0] = 1
    bell = Bell(segment, 0)
    bell.fence()
    bell.ring()
    assert wait(pid) == [0]


def test_a_bell_whose_lock_died_with_its_holder_rings_on(segment: Segment) -> None:
    word = segment.words(256, 1)

    def die_ringing() -> None:
        Bell(segment, 0)._lock.acquire(give_up)
        os.kill(os.getpid(), signal.SIGKILL)

    pid = fork(lambda: wait_without_time_out(segment, lambda: word[0] == 1))
    assert wait(fork(die_ringing)) == [-signal.SIGKILL]
    word[0] = 1
    bell = Bell(segment, 0)
    bell.fence()
    bell.ring()
    assert wait(pid) == [0]


def test_ctrl_c_right_after_the_lock_was_taken_hinders_no_later_ring(segment: Segment) -> None:
    def interrupted_then_again() -> None:
        signal.alarm(MOST_SECONDS)
        bell = Bell(segment, 0)
        for again in (bell.fence, bell.ring):
            segment.words(0, 2)[1] = 1  # somebody waits, so that a ring takes the lock
            take_and_be_interrupted(again)
            bell.fence()
            take_and_be_interrupted(again)
            bell.ring()
        signal.alarm(0)
        os.kill(os.getpid(), signal.SIGKILL if bell._lock.acquire(give_up) else signal.SIGTERM)

    assert wait(fork(interrupted_then_again)) == [-signal.SIGTERM]


def take_and_be_interrupted(act: Callable[[], None]) -> None:
    take = mutex._trylock

    def take_and_interrupt(at: object) -> None:
        take(at)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutex, "_trylock", take_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            act()


def test_a_machine_whose_futex_is_not_known_is_named() -> None:
    with pytest.raises(ImportError, match="futex on x86_64 or aarch64, this machine is 'riscv64'"):
        module._futex_number("riscv64")
