"""Starting worker processes, and learning how they ended.

The one thing to know: no start method here imports the user's main script. A worker gets its job pickled by value
(see `payload`), so a script needs no `if __name__ == "__main__":`. Three ways to start one:

- forkserver (default): one server process imports torch, then forks a worker in some 20 ms each;
- spawn: every worker is a fresh interpreter and imports torch itself, seconds each;
- fork: a copy of the present process, quick, but unsafe where it runs other threads.

What each process holds:

    coordinator --- control socket --- forkserver --- fork --- worker
         |  |______________ line (socket), stdout, stderr (pipes) __|   |
         |_________________ segment and payload (memory) ______________|

When the coordinator dies, however it dies, the control socket and the lines close: the server kills the workers
and leaves, and each worker leaves by itself.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from wasp_local.errors import RunError

__all__ = ["ForkLauncher", "ForkserverLauncher", "Launcher", "Settings", "SpawnLauncher", "make_launcher"]

START_METHODS = ("forkserver", "spawn", "fork")
_BOOT = (
    "import json, sys; settings = json.loads(sys.argv[1]); sys.path[:] = settings['sys_path']; "
    "from wasp_local.workers import {module}; {module}.{function}(settings)"
)


class Settings(NamedTuple):
    """What a worker process is told before it can unpickle anything; plain enough for JSON."""

    worker: int
    cores: tuple[int, ...]  # to be pinned to; empty: not pinned
    threads: int
    segment_bytes: int
    sys_path: tuple[str, ...]
    descriptors: tuple[int, ...]  # line, stdout, stderr, payload, segment

    def as_json(self, descriptors: Sequence[int]) -> str:
        """The settings with the descriptors' numbers as the worker will have them."""
        return json.dumps(self._replace(descriptors=tuple(descriptors))._asdict())


class Launcher(Protocol):
    """Starts workers and tells how they ended."""

    def start(self, settings: Settings, close_in_child: Sequence[int]) -> int:
        """Start a worker on duplicates of `settings.descriptors` and return its pid."""

    def exit_status(self, pid: int, timeout: float) -> int | None:
        """Exit code of a worker that has ended, minus the signal's number if one killed it; None: not known."""

    def kill(self, pid: int) -> None:
        """SIGKILL a worker unless it has been reaped."""

    def close(self) -> None:
        """Leave no process and no descriptor of the launcher's own."""


def make_launcher(start_method: str) -> Launcher:
    """The launcher of a start method, one of `START_METHODS`."""
    kinds: dict[str, type[Launcher]] = {
        "forkserver": ForkserverLauncher,
        "spawn": SpawnLauncher,
        "fork": ForkLauncher,
    }
    return kinds[start_method]()


def _python(module: str, function: str, settings: str) -> list[str]:
    # The flags that this interpreter was started with (-W, -X, -O, ...), as multiprocessing passes them on.
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", _BOOT.format(module=module, function=function), settings]


class _Children:
    """Exit codes of direct children, reaped one by one; never touches children that are not ours."""

    def __init__(self) -> None:
        self._codes: dict[int, int | None] = {}

    def add(self, pid: int) -> None:
        self._codes[pid] = None

    def exit_status(self, pid: int, timeout: float) -> int | None:
        if self._codes.get(pid) is None:
            _wait_readable_pidfd(pid, timeout)
            try:
                done, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                return None
            if done:
                self._codes[pid] = os.waitstatus_to_exitcode(status)
        return self._codes.get(pid)

    def kill(self, pid: int) -> None:
        if self.exit_status(pid, 0) is None:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def close(self) -> None:
        for pid in self._codes:
            self.kill(pid)
        for pid in self._codes:
            self.exit_status(pid, 5.0)


def _wait_readable_pidfd(pid: int, timeout: float) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(timeout * 1000)
    finally:
        os.close(descriptor)


class SpawnLauncher(_Children):
    """A fresh interpreter a worker."""

    def start(self, settings: Settings, close_in_child: Sequence[int]) -> int:
        """See `Launcher`."""
        command = _python("entry", "main", settings.as_json(settings.descriptors))
        process = subprocess.Popen(command, pass_fds=settings.descriptors, stdin=subprocess.DEVNULL)
        process.returncode = 0  # reaped here by pid; Popen must not wait for it again
        self.add(process.pid)
        return process.pid


class ForkLauncher(_Children):
    """A copy of this process a worker."""

    def start(self, settings: Settings, close_in_child: Sequence[int]) -> int:
        """See `Launcher`."""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                for descriptor in close_in_child:
                    os.close(descriptor)
                from wasp_local.workers import entry

                entry.main(json.loads(settings.as_json(settings.descriptors)))
            finally:
                os._exit(1)  # reached only if entry itself failed to start
        self.add(pid)
        return pid


class ForkserverLauncher:
    """A server that has imported torch and forks the workers."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        settings = json.dumps({"sys_path": sys.path, "control": theirs.fileno()})
        try:
            self._server = subprocess.Popen(
                _python("forkserver", "main", settings),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        finally:
            theirs.close()
        self._control = ours
        self._codes: dict[int, int] = {}
        self._running: set[int] = set()

    def start(self, settings: Settings, close_in_child: Sequence[int]) -> int:
        """See `Launcher`."""
        message = b"start " + settings.as_json(()).encode()
        try:
            socket.send_fds(self._control, [message], settings.descriptors)
            started = self._receive_until(lambda kind, _: kind == "started", timeout=120.0)
        except OSError:
            started = None
        if started is None:
            raise RunError(
                f"the process that starts workers ended with exit code {self._server.poll()}: "
                "its own message stands above; start_method='spawn' does without it"
            )
        self._running.add(started[0])
        return started[0]

    def exit_status(self, pid: int, timeout: float) -> int | None:
        """See `Launcher`."""
        if pid not in self._codes:
            self._receive_until(lambda kind, numbers: kind == "ended" and numbers[0] == pid, timeout)
        return self._codes.get(pid)

    def kill(self, pid: int) -> None:
        """See `Launcher`; the server knows whether the pid is still its child's."""
        try:
            self._control.send(f"kill {pid}".encode())
        except OSError:
            return

    def close(self) -> None:
        """See `Launcher`; the server kills what still runs when its control socket closes."""
        self._control.close()
        try:
            self._server.wait(5.0)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _receive_until(self, wanted: Callable[[str, list[int]], bool], timeout: float) -> list[int] | None:
        self._control.settimeout(timeout)
        while True:
            try:
                message = self._control.recv(4096)
            except (TimeoutError, BlockingIOError):
                return None
            if not message:
                return None
            kind, *words = message.decode().split()
            numbers = [int(word) for word in words]
            if kind == "ended":
                self._codes[numbers[0]] = numbers[1]
                self._running.discard(numbers[0])
            if wanted(kind, numbers):
                return numbers
