"""The coordinator's side of the worker processes: start them, hear them, notice how they end, end them.

The one thing to know: all that can happen to a worker reaches one selector: a message on its line, output on its
pipes, its death on its pidfd. So the coordinator waits in one place, and a death wakes it at once.
"""

from __future__ import annotations

import functools
import os
import pickle
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from wasp_local.errors import WorkerFailed, WorkerTraceback
from wasp_local.shm.segment import Segment
from wasp_local.workers.launch import Launcher, Settings, make_launcher
from wasp_local.workers.topology import Placement

__all__ = ["Crew", "Message", "Output"]

Output = Callable[[int, str, str], None]  # worker, "stdout" or "stderr", one line of text


class Message(NamedTuple):
    """What a worker said: "ready", "gate" or "returned", and what it said with it."""

    worker: int
    kind: str
    values: tuple[Any, ...]


class _Member:
    """One worker process as the coordinator holds it."""

    def __init__(self, worker: int, pid: int, line: Connection, outputs: dict[str, int]) -> None:
        self.worker = worker
        self.pid = pid
        self.line = line
        self.outputs = outputs
        self.partial = dict.fromkeys(outputs, b"")
        self.pidfd = os.pidfd_open(pid)
        self.returned = False
        self.alive = True

    def descriptors(self) -> list[int]:
        return [self.line.fileno(), self.pidfd, *self.outputs.values()]


class Crew:
    """The workers of one run.

    Args:
        start_method: see `launch`.
        output: gets every line that a worker prints.
        clock_of: how many pushes a worker has finished, for the message when it dies.
    """

    def __init__(self, start_method: str, output: Output, clock_of: Callable[[int], int]) -> None:
        self._launcher: Launcher = make_launcher(start_method)
        self._selector = selectors.DefaultSelector()
        self._members: dict[int, _Member] = {}
        self._output = output
        self._clock_of = clock_of

    def start(
        self, placement: Placement, sys_path: Sequence[str], payload: Segment, segment: Segment
    ) -> None:
        """Start one worker for each place."""
        for worker, cores in enumerate(placement.cores_of):
            settings = Settings(
                worker, tuple(cores), placement.threads_per_worker, segment.nbytes, tuple(sys_path), ()
            )
            self._start_one(settings, payload, segment)

    def _start_one(self, settings: Settings, payload: Segment, segment: Segment) -> None:
        ours, theirs = socket.socketpair()
        pipes = [os.pipe(), os.pipe()]
        handed = [theirs.fileno(), pipes[0][1], pipes[1][1], payload.fd, segment.fd]
        held = [ours.fileno(), pipes[0][0], pipes[1][0]]
        others = [descriptor for member in self._members.values() for descriptor in member.descriptors()]
        try:
            pid = self._launcher.start(
                settings._replace(descriptors=tuple(handed)), [*others, self._selector.fileno(), *held]
            )
        except BaseException:
            for descriptor in held[1:]:
                os.close(descriptor)
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(pipes[0][1])
            os.close(pipes[1][1])
        outputs = {"stdout": pipes[0][0], "stderr": pipes[1][0]}
        member = _Member(settings.worker, pid, Connection(ours.detach()), outputs)
        self._members[settings.worker] = member
        self._watch(member)

    def _watch(self, member: _Member) -> None:
        self._selector.register(member.line, selectors.EVENT_READ, (self._hear, member))
        self._selector.register(member.pidfd, selectors.EVENT_READ, (self._bury, member))
        for stream, descriptor in member.outputs.items():
            os.set_blocking(descriptor, False)
            read = functools.partial(self._read, stream)
            self._selector.register(descriptor, selectors.EVENT_READ, (read, member))

    @property
    def running(self) -> list[int]:
        """Workers whose process has not ended."""
        return [member.worker for member in self._members.values() if member.alive]

    @property
    def pids(self) -> dict[int, int]:
        """Each worker's process, ended ones included."""
        return {worker: member.pid for worker, member in self._members.items()}

    def wait(self, timeout: float) -> list[Message]:
        """Wait for something to happen, at most `timeout` seconds; pass output on and return messages.

        Raises:
            WorkerFailed: a worker raised, exited or was killed.
        """
        messages: list[Message] = []
        events = self._selector.select(max(0.0, timeout))
        # What a worker said and printed comes before the news of its death.
        events.sort(key=lambda event: event[0].data[0] == self._bury)
        for key, _ in events:
            act, member = key.data
            messages.extend(act(member))
        return messages

    def _hear(self, member: _Member) -> Iterator[Message]:
        while member.line.poll(0):
            try:
                kind, *values = pickle.loads(member.line.recv_bytes())
            except (EOFError, ConnectionResetError):
                self._forget(member.line)
                return
            if kind == "failed":
                self._raise_failed(member, *values)
            member.returned = member.returned or kind == "returned"
            yield Message(member.worker, kind, tuple(values))

    def _read(self, stream: str, member: _Member) -> list[Message]:
        self._pass_on(stream, member)
        return []

    def _pass_on(self, stream: str, member: _Member) -> bool:
        """Read what a pipe has and pass on whole lines; False when there is nothing (more)."""
        try:
            data = os.read(member.outputs[stream], 65536)
        except BlockingIOError:
            return False
        *lines, member.partial[stream] = (member.partial[stream] + data).split(b"\n")
        if not data and member.partial[stream]:
            lines, member.partial[stream] = [member.partial[stream]], b""
        for line in lines:
            self._output(member.worker, stream, line.decode("utf-8", "backslashreplace"))
        if not data:
            self._forget(member.outputs[stream])
        return bool(data)

    def _bury(self, member: _Member) -> list[Message]:
        """A worker's process has ended: the last it said, then whether that was in order."""
        member.alive = False
        self._forget(member.pidfd)
        messages = list(self._hear(member)) if not member.line.closed else []
        self._drain_output(member)
        status = self._launcher.exit_status(member.pid, timeout=2.0)
        if not member.returned:
            step = self._clock_of(member.worker)
            raise WorkerFailed(
                f"worker {member.worker} (pid {member.pid}) {_how_it_ended(status)}, after {step} pushes",
                worker=member.worker,
                pid=member.pid,
                step=step,
            )
        return messages

    def _drain_output(self, member: _Member) -> None:
        """What lies in the pipes; helpers that the worker left behind may hold them open, so not to their end."""
        for stream, descriptor in member.outputs.items():
            while self._pass_on(stream, member):
                pass
            self._forget(descriptor)

    def _forget(self, what: Any) -> None:
        if what in {key.fileobj for key in self._selector.get_map().values()}:
            self._selector.unregister(what)

    def _raise_failed(self, member: _Member, name: str, text: str, trace: str, step: int) -> None:
        member.returned = True  # it said how it ended; its exit is no news
        said = f"{name}: {text}" if text else name
        raise WorkerFailed(
            f"worker {member.worker} (pid {member.pid}) failed after {step} pushes: {said}",
            worker=member.worker,
            pid=member.pid,
            step=step,
            traceback_text=trace,
        ) from WorkerTraceback(trace)

    def close(self, grace: float) -> None:
        """End what still runs, after `grace` seconds to leave by itself, and leave nothing behind."""
        try:
            self._let_leave(grace)
        finally:
            for member in self._members.values():
                if member.alive:
                    self._launcher.kill(member.pid)
            self._launcher.close()
            self._selector.close()
            for member in self._members.values():
                member.line.close()
                for descriptor in (member.pidfd, *member.outputs.values()):
                    os.close(descriptor)

    def _let_leave(self, grace: float) -> None:
        deadline = time.monotonic() + grace
        while self.running and time.monotonic() < deadline:
            try:
                self.wait(min(0.1, deadline - time.monotonic()))
            except WorkerFailed:  # the run has ended already, for a reason of its own
                continue


def _how_it_ended(status: int | None) -> str:
    if status is None:
        return "ended, and how could not be found out"
    if status >= 0:
        return (
            f"left with exit code {status} before its work was done: "
            "a worker must return from its train_fn, not call sys.exit or os._exit"
        )
    name = signal.Signals(-status).name
    likely = {
        signal.SIGKILL: "likely the kernel for lack of memory (see `dmesg`), or somebody's kill -9",
        signal.SIGSEGV: "a fault in compiled code; run with PYTHONFAULTHANDLER=1 to see where",
        signal.SIGBUS: "shared memory that the machine could not back; see `df /dev/shm` and free memory",
        signal.SIGABRT: "compiled code gave up; its message stands above",
    }.get(signal.Signals(-status), "sent from outside the run")
    return f"was killed by signal {-status} ({name}): {likely}"
