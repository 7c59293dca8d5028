"""Asking the C library to keep memory that was freed, instead of giving it back to the kernel.

The one thing to know: a training step allocates and frees the same large activations every time. By default glibc
returns them to the kernel and takes them anew, zeroed and page by page: for LeNet-5 at batch 64 some 1,100 page
faults a step, a sixth of its time. Kept, they cost nothing; the process stays as large as its largest step.
"""

from __future__ import annotations

import ctypes

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_NEVER, _MOST_IN_OLD_GLIBC = 2**30, 2**25


def keep_freed_memory() -> bool:
    """Keep it from now on in this process; False where the C library knows no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    mallopt.restype = ctypes.c_int
    kept = mallopt(_MMAP_THRESHOLD, _NEVER) or mallopt(_MMAP_THRESHOLD, _MOST_IN_OLD_GLIBC)
    return bool(mallopt(_TRIM_THRESHOLD, _NEVER) and kept)
