"""Memory that was freed stays with the process."""

from __future__ import annotations

import os

from processes import fork, wait

from wasp_local.shm.heap import keep_freed_memory


def test_memory_that_was_freed_is_kept_on_glibc() -> None:
    answers = wait(fork(lambda: os._exit(3 if keep_freed_memory() else 4)))
    assert answers == [3]
