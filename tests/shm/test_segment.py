"""Blocks of shared memory: seen by all, whole when made, gone with their last user."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest
import torch
from processes import fork, wait

from wasp_local.errors import Shortage
from wasp_local.shm import segment as module
from wasp_local.shm.bell import Bell
from wasp_local.shm.mutex import RobustMutex
from wasp_local.shm.segment import Segment


def held(segment: Segment) -> tuple[int, int]:
    """Descriptors and mappings that this process has of a segment's memory."""
    inode = os.fstat(segment.fd).st_ino
    return held_of(inode)


def held_of(inode: int) -> tuple[int, int]:
    opened = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that the listing itself has open
            opened += os.stat(f"/proc/self/fd/{number}").st_ino == inode
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:wasp_local" in line]
    return opened, sum(line.split()[4] == str(inode) for line in mapped)


def test_what_one_process_writes_another_reads() -> None:
    segment = Segment.create(4096, purpose="test")
    words, numbers, tensor = (
        segment.words(0, 2),
        segment.doubles(64, 1),
        segment.tensor(128, 3, torch.float32),
    )

    def write() -> None:
        other = Segment.attach(segment.fd, segment.nbytes)
        other.words(0, 2)[1] = -7
        other.doubles(64, 1)[0] = 0.5
        other.tensor(128, 3, torch.float32).fill_(2)

    assert wait(fork(write)) == [0]
    assert (words[0], words[1], numbers[0], tensor.tolist()) == (0, -7, 0.5, [2, 2, 2])
    segment.close()


def test_a_block_larger_than_asked_for_can_be_attached() -> None:
    segment = Segment.create(4096 + 16384, purpose="test")
    other = Segment.attach(os.dup(segment.fd), 4096)
    other.words(0, 1)[0] = 5
    assert segment.words(0, 1)[0] == 5
    other.close()
    segment.close()


def test_more_than_is_free_is_refused_with_both_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda: 100_000)
    with pytest.raises(
        Shortage, match=r"the parameter store needs 200,000 bytes .* and 100,000 are free: use fewer"
    ):
        Segment.create(200_000, purpose="parameter store")


def test_tensors_outlive_the_segment_and_take_the_memory_with_them() -> None:
    segment = Segment.create(4096, purpose="test")
    tensor = segment.tensor(0, 4, torch.float64)
    segment.close()
    segment.close()
    tensor.fill_(3)
    assert tensor.sum() == 12
    with pytest.raises(ValueError, match="the segment is closed"):
        segment.words(0, 1)


def test_the_pages_are_there_before_they_are_touched() -> None:
    segment = Segment.create(10 * 2**20, purpose="test")
    assert os.fstat(segment.fd).st_blocks * 512 >= 10 * 2**20
    segment.close()


def test_nothing_is_held_once_a_segment_is_closed_and_nobody_looks_at_it() -> None:
    segment = Segment.create(4096, purpose="test")
    inode = os.fstat(segment.fd).st_ino
    words, tensor = segment.words(0, 1), segment.tensor(64, 8, torch.float32)
    mutex, bell = RobustMutex(segment, 1024), Bell(segment, 2048)
    assert held(segment) == (2, 1)
    segment.close()
    assert held_of(inode) == (1, 1)
    words[0] = 1
    del words, tensor, mutex, bell
    assert held_of(inode) == (0, 0)


def test_other_processes_keep_what_its_maker_let_go() -> None:
    segment = Segment.create(4096, purpose="test")
    segment.words(0, 1)[0] = 41
    reader, writer = os.pipe()

    def look() -> None:
        os.close(writer)
        os.read(reader, 1)  # ends when the maker has closed its own
        assert Segment.attach(segment.fd, 4096).words(0, 1)[0] == 41

    pid = fork(look)
    segment.close()
    os.close(writer)
    assert wait(pid) == [0]
    os.close(reader)


def test_a_program_started_beside_it_does_not_inherit_it() -> None:
    segment = Segment.create(4096, purpose="test")
    assert not os.get_inheritable(segment.fd)
    segment.close()


def test_what_the_kernel_refuses_is_a_shortage_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(Shortage, match="the replica needs 8,192 bytes"):
        Segment.create(8192, purpose="replica")


def test_an_interrupt_while_pages_are_reserved_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "posix_fallocate", interrupt)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(KeyboardInterrupt):
        Segment.create(8192, purpose="test")
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(("offset", "count"), [(4096, 1), (4088, 2), (4, 1), (-8, 1)])
def test_words_outside_or_across_are_refused(offset: int, count: int) -> None:
    segment = Segment.create(4096, purpose="test")
    for look in (segment.words, segment.doubles):
        with pytest.raises(
            ValueError, match=r"words must lie in 0 \.\. 4096 and begin at a multiple of 8, got"
        ):
            look(offset, count)
    segment.close()
