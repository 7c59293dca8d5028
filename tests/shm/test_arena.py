"""Who gets which bytes of a segment."""

from __future__ import annotations

from wasp_local.shm.arena import Arena


def test_every_piece_of_an_arena_starts_on_a_cache_line_of_its_own() -> None:
    arena = Arena()
    assert [arena.take(nbytes) for nbytes in (1, 64, 65, 0, 8)] == [0, 64, 128, 256, 256]
    assert arena.nbytes == 320
