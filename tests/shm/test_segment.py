from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from processes import fork, wait

from wasp_local.errors import Shortage
from wasp_local.shm import segment as module
from wasp_local.shm.arena import Arena
from wasp_local.shm.segment import Segment


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


def test_what_is_free_is_no_more_than_the_control_group_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, used = tmp_path / "max", tmp_path / "current"
    used.write_text("30")
    monkeypatch.setattr(module, "_MEMORY_GROUPS", ((str(limit), str(used)),))
    unlimited = module.free_bytes()
    for text, free in (("100\n", 70), ("10\n", 0)):
        limit.write_text(text)
        assert module.free_bytes() == free
    limit.write_text("max\n")
    assert module.free_bytes() > 1000
    assert unlimited > 1000


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


def test_every_piece_of_an_arena_starts_on_a_cache_line_of_its_own() -> None:
    arena = Arena()
    assert [arena.take(nbytes) for nbytes in (1, 64, 65, 0, 8)] == [0, 64, 128, 256, 256]
    assert arena.nbytes == 320
