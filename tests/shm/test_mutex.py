from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from processes import fork, wait

from wasp_local.errors import BrokenInvariant
from wasp_local.shm.mutex import RobustMutex
from wasp_local.shm.segment import Segment


@pytest.fixture
def segment() -> Iterator[Segment]:
    segment = Segment.create(4096, purpose="test")
    RobustMutex(segment, 0).initialise()
    yield segment
    segment.close()


def go_on() -> None:
    pass


class GivenUp(Exception):
    pass


def give_up() -> None:
    raise GivenUp


def test_four_processes_count_without_losing_one(segment: Segment) -> None:
    def count() -> None:
        mutex, words = RobustMutex(segment, 0), segment.words(64, 1)
        for _ in range(3000):
            assert mutex.acquire(go_on) is False
            words[0] += 1
            mutex.release()

    assert wait(*[fork(count) for _ in range(4)]) == [0] * 4
    assert segment.words(64, 1)[0] == 12000


def test_whoever_comes_after_a_killed_holder_is_told_once(segment: Segment) -> None:
    mutex, words = RobustMutex(segment, 0), segment.words(64, 1)

    def die_holding() -> None:
        mutex.acquire(go_on)
        words[0] += 1
        os.kill(os.getpid(), signal.SIGKILL)

    for kills in range(1, 61):
        assert wait(fork(die_holding)) == [-signal.SIGKILL]
        assert mutex.acquire(give_up) is True
        assert words[0] == kills
        mutex.release()
        assert mutex.acquire(give_up) is False
        mutex.release()


def test_a_waiter_gets_the_lock_of_a_holder_that_is_killed(segment: Segment) -> None:
    reader, writer = os.pipe()

    def hold() -> None:
        RobustMutex(segment, 0).acquire(go_on)
        os.write(writer, b"held")
        signal.pause()

    pid = fork(hold)
    os.read(reader, 4)
    looks = 0

    def kill_at_the_second_look() -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            os.kill(pid, signal.SIGKILL)

    mutex = RobustMutex(segment, 0)
    assert mutex.acquire(kill_at_the_second_look) is True
    mutex.release()
    wait(pid)
    os.close(reader)
    os.close(writer)


def test_waiting_for_a_stopped_holder_can_be_given_up(segment: Segment) -> None:
    reader, writer = os.pipe()

    def hold() -> None:
        RobustMutex(segment, 0).acquire(go_on)
        os.write(writer, b"held")
        os.kill(os.getpid(), signal.SIGSTOP)

    pid = fork(hold)
    os.read(reader, 4)
    os.waitpid(pid, os.WUNTRACED)
    with pytest.raises(GivenUp):
        RobustMutex(segment, 0).acquire(give_up)
    os.kill(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGCONT)
    wait(pid)
    os.close(reader)
    os.close(writer)


def test_freeing_what_one_does_not_hold_is_an_error(segment: Segment) -> None:
    with pytest.raises(BrokenInvariant, match="could not be freed"):
        RobustMutex(segment, 0).release()
