"""The check around every test: it ends with what it began with, or fails naming what is left.

    look -> the test, in an empty folder -> look, again and again for two seconds -> fail, or not

Looked at: child processes and their children, and any process that was started by this session and lost its
parents; open descriptors; shared mappings; names in /dev/shm; threads; files in the folder that the test ran
in and in the one it had for temporary files (both new and empty; `tmp_path` is the test's own and not looked
at).

The one thing to know: nothing is excused by name. What a library makes once and keeps (compute threads) is
made before the first test, by `warm_up`. Where it cannot look, it fails.

What doesn't work: a thread that isn't Python's is known by its number only, so one that replaces another is
not seen; nor is an orphan that was forked without starting a program of its own.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

PROC = Path("/proc")
SHM = Path("/dev/shm")
MARK = "WASP_LOCAL_TEST_SESSION"  # every process that a test starts inherits it
PATIENCE = 2.0  # seconds for what is on its way out
LOOK_AGAIN = 0.02
MOST_COMPUTE_THREADS = 4  # that a test may ask torch for

Held = dict[Hashable, str]  # what identifies a thing: how to name it to a person


@pytest.fixture(scope="session", autouse=True)
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder outside every test's own, made before one of them moves the place for temporary files."""
    os.environ[MARK] = f"{os.getpid()}.{time.time_ns()}"
    yield tmp_path_factory.mktemp("leftovers")
    del os.environ[MARK]


@pytest.fixture(scope="session", autouse=True)
def warm_up() -> int:
    """Have torch make its threads; how many there are then that aren't Python's."""
    import torch

    usual = torch.get_num_threads()
    torch.set_num_threads(max(usual, MOST_COMPUTE_THREADS))
    weight = torch.ones(256, 256, requires_grad=True)
    (weight @ weight).sum().backward()
    torch.optim.SGD([weight], lr=0.1).step()
    warm = len(native_threads())
    torch.set_num_threads(usual)
    return warm


@pytest.fixture(autouse=True)
def leaves_nothing_behind(session_folder: Path, warm_up: int) -> Iterator[None]:
    """Fail a test that leaves something behind."""
    with empty_folders(session_folder):
        left = yield from watched(session_folder, warm_up)
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)


@contextmanager
def empty_folders(session_folder: Path) -> Iterator[None]:
    """Make two new folders, one to run in and one for temporary files, and remove them."""
    folders = [session_folder / name for name in ("cwd", "tmp")]
    for folder in folders:
        folder.mkdir()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folders[0])
            patch.setenv("TMPDIR", str(folders[1]))
            patch.setattr(tempfile, "tempdir", None)
            yield
    finally:
        for folder in folders:
            shutil.rmtree(folder)


def watched(session_folder: Path, warm_up: int) -> Generator[None, None, list[str]]:
    """Look, let the test run, look again; what the test left."""
    kinds: dict[str, Callable[[], Held]] = {
        "process": processes,
        "descriptor": descriptors,
        "shared mapping": mappings,
        "name in /dev/shm": shm_names,
        "Python thread": python_threads,
        "file": lambda: files(session_folder),
    }
    before = {kind: look() for kind, look in kinds.items()}
    threads = max(warm_up, len(native_threads()))
    yield
    return wait_until_gone(lambda: left_of(kinds, before) + native_left(threads))


def wait_until_gone(look: Callable[[], list[str]]) -> list[str]:
    """What is still left once what is on its way out has had time to go."""
    deadline = time.monotonic() + PATIENCE
    while (left := look()) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(LOOK_AGAIN)
    return left


def left_of(kinds: dict[str, Callable[[], Held]], before: dict[str, Held]) -> list[str]:
    """What is there now and wasn't before."""
    return [
        f"{kind}: {name}"
        for kind, look in kinds.items()
        for key, name in look().items()
        if key not in before[kind]
    ]


def native_left(most: int) -> list[str]:
    """The threads that aren't Python's, if there are more than `most`: the newest."""
    return [f"native thread: {name}" for _, name in sorted(native_threads().items())[most:]]


class Process(NamedTuple):
    """What the kernel tells of a process."""

    parent: int
    started: int
    state: str
    name: str


def processes() -> Held:
    """Descendants of this process, and orphans that carry its mark."""
    table = process_table()
    own = os.getpid()
    return {
        (pid, process.started): f"{pid} ({process.state}) {command_of(pid) or process.name}"
        for pid, process in table.items()
        if own in ancestors(pid, table)
        or (process.started >= table[own].started and pid != own and marked(pid))
    }


def process_table() -> dict[int, Process]:
    """Every process, by its number."""
    table = {}
    for entry in os.listdir(PROC):
        if entry.isdecimal():
            try:
                with open(f"{PROC}/{entry}/stat", "rb") as stat:
                    name, _, rest = stat.read().decode(errors="replace").partition("(")[2].rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
            numbers = rest.split()
            table[int(entry)] = Process(int(numbers[1]), int(numbers[19]), numbers[0], name)
    return table


def ancestors(pid: int, table: dict[int, Process]) -> Iterator[int]:
    """The parent of a process, its parent, and so on."""
    while (process := table.get(pid)) is not None:
        pid = process.parent
        yield pid


def marked(pid: int) -> bool:
    """Whether this session started the process, or one that started it."""
    try:
        with open(f"{PROC}/{pid}/environ", "rb") as environ:
            return f"{MARK}={os.environ[MARK]}".encode() in environ.read().split(b"\0")
    except PermissionError:
        return False  # another user's
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended


def command_of(pid: int) -> str:
    """What was typed to start a process; "" if it has ended."""
    try:
        with open(f"{PROC}/{pid}/cmdline", "rb") as line:
            return line.read().replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def descriptors() -> Held:
    """What this process has open."""
    held: Held = {}
    for number in os.listdir(PROC / "self" / "fd"):
        try:
            target = os.readlink(PROC / "self" / "fd" / number)
        except FileNotFoundError:
            continue  # the one that the listing itself had open
        held[number, target] = f"{number} -> {target}"
    return held


def mappings() -> Held:
    """Mapped memory that other processes could share, but for files that still have a name."""
    held: Held = {}
    for line in (PROC / "self" / "maps").read_text().splitlines():
        where, permissions, _, _, inode, *path = line.split(maxsplit=5)
        name = path[0] if path else ""
        nameless = "memfd:" in name or name.startswith((f"{SHM}/", "/dev/zero")) or name.endswith("(deleted)")
        if nameless or (permissions.endswith("s") and not name):
            held[where, inode, name] = f"{where} {permissions} {name}"
    return held


def shm_names() -> Held:
    """Names of shared memory and semaphores."""
    return {name: name for name in os.listdir(SHM)}


def python_threads() -> Held:
    """Threads that Python started."""
    return {thread.ident: repr(thread) for thread in threading.enumerate()}


def native_threads() -> dict[int, str]:
    """Threads that Python didn't start, by their number."""
    python = {thread.native_id for thread in threading.enumerate()}
    held = {}
    for entry in os.listdir(PROC / "self" / "task"):
        if int(entry) not in python:
            try:
                held[int(entry)] = (PROC / "self" / "task" / entry / "comm").read_text().strip()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
    return held


def files(folder: Path) -> Held:
    """Everything below a folder."""
    return {path: str(path.relative_to(folder)) for path in folder.rglob("*")}
