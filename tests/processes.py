"""Forked children for tests: they share the test's memory and leave by the kernel's door."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable


def fork(work: Callable[[], object]) -> int:
    """Do `work` in a child; its exit code is 0 if that returned."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(*pids: int) -> list[int]:
    """Exit codes of children, minus the signal's number for those that were killed."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
