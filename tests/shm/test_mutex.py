"""One holder at a time; a dead one is found out, a stopped one can be given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from processes import fork, wait

from wasp_local.errors import BrokenInvariant
from wasp_local.shm import mutex as module
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


def test_four_processes_count_without_losing_one_or_waiting_for_a_time_out(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SLICE_SECONDS", 3600.0)

    def count() -> None:
        signal.alarm(60)  # ends whoever sleeps through a release
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


@pytest.fixture(params=["monotonic", "wall"])
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to measure a slice of waiting: with glibc 2.30 or later, and before."""
    if request.param == "wall":
        monkeypatch.setattr(module, "_clocklock", None)


@pytest.mark.usefixtures("clock")
def test_waiting_for_a_stopped_holder_can_be_given_up(segment: Segment) -> None:
    def hold_and_stop() -> None:
        RobustMutex(segment, 0).acquire(go_on)
        os.kill(os.getpid(), signal.SIGSTOP)

    pid = fork(hold_and_stop)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    with pytest.raises(GivenUp):
        RobustMutex(segment, 0).acquire(give_up)
    os.kill(pid, signal.SIGKILL)
    assert wait(pid) == [-signal.SIGKILL]
    mutex = RobustMutex(segment, 0)
    assert mutex.acquire(give_up) is True
    mutex.release()


def test_other_threads_run_while_one_waits_for_the_lock(segment: Segment) -> None:
    holding, may_free = threading.Event(), threading.Event()

    def hold() -> None:
        mutex = RobustMutex(segment, 0)
        mutex.acquire(go_on)
        holding.set()
        may_free.wait()
        mutex.release()

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    mutex = RobustMutex(segment, 0)
    assert mutex.acquire(may_free.set) is False
    mutex.release()
    thread.join()


def test_a_thread_that_holds_it_already_is_told_instead_of_waiting_for_ever(segment: Segment) -> None:
    mutex = RobustMutex(segment, 0)
    assert mutex.acquire(give_up) is False
    assert mutex.acquire(give_up) is True
    mutex.release()
    assert mutex.acquire(give_up) is False
    mutex.release()


def test_every_lock_that_a_killed_process_held_is_freed(segment: Segment) -> None:
    offsets = [64 * place for place in range(8)]
    for offset in offsets:
        RobustMutex(segment, offset).initialise()

    def die_holding_all() -> None:
        for offset in offsets:
            RobustMutex(segment, offset).acquire(give_up)
        os.kill(os.getpid(), signal.SIGKILL)

    wait(fork(die_holding_all))
    locks = [RobustMutex(segment, offset) for offset in offsets]
    assert [lock.acquire(give_up) for lock in locks] == [True] * len(offsets)
    for lock in locks:
        lock.release()


def test_a_lock_that_a_program_started_anew_holds_excludes_this_one(segment: Segment) -> None:
    # not a fork: the segment lies elsewhere there
    reader, writer = os.pipe()
    program = (
        "import os, signal, sys\n"
        "from wasp_local.shm.mutex import RobustMutex\n"
        "from wasp_local.shm.segment import Segment\n"
        "segment = Segment.attach(int(sys.argv[1]), 4096)\n"
        "RobustMutex(segment, 0).acquire(lambda: None)\n"
        "os.write(int(sys.argv[2]), b'held')\n"
        "signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(segment.fd), str(writer)], pass_fds=(segment.fd, writer)
    ) as holder:
        os.close(writer)
        assert os.read(reader, 4) == b"held"
        with pytest.raises(GivenUp):
            RobustMutex(segment, 0).acquire(give_up)
        holder.kill()
    mutex = RobustMutex(segment, 0)
    assert mutex.acquire(give_up) is True
    mutex.release()
    os.close(reader)


def test_memory_that_is_no_lock_is_found_out(segment: Segment) -> None:
    words = segment.words(64, 8)
    words[2] = 0x7F  # the kind of no mutex
    with pytest.raises(BrokenInvariant, match="could not be taken: Invalid argument"):
        RobustMutex(segment, 64).acquire(give_up)


def test_a_c_library_without_robust_mutexes_is_named() -> None:
    with pytest.raises(ImportError, match=r"need Linux with glibc 2\.12 or later: .* has no pthread_mutex_x"):
        module._bind(object(), "pthread_mutex_x")


def test_freeing_what_one_does_not_hold_is_an_error(segment: Segment) -> None:
    with pytest.raises(BrokenInvariant, match="could not be freed"):
        RobustMutex(segment, 0).release()
