"""The process that imports torch once and forks every worker of a run.

The one thing to know: it holds the control socket and nothing else of the run. When that socket closes, the
coordinator has ended or died: the server kills the workers that are left, and leaves.

    in:   start SETTINGS (with the worker's descriptors)   kill PID
    out:  started PID                                      ended PID CODE
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from typing import Any, NoReturn

from wasp_local.workers import entry

__all__ = ["main"]

_DESCRIPTORS = 5


def main(settings: dict[str, Any]) -> NoReturn:
    """Serve until the control socket closes; never returns."""
    # A Ctrl-C at the terminal reaches the whole process group: the coordinator decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=settings["control"])
    wake, children = _wake_on_child_exit(), set[int]()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == wake:
                _drain(wake)
                _report_ended(control, children)
            elif not _obey(control, children):
                _end(children)


def _obey(control: socket.socket, children: set[int]) -> bool:
    """Carry out one command; False when there will be none any more."""
    try:
        message, descriptors, _, _ = socket.recv_fds(control, 2**20, _DESCRIPTORS)
    except OSError:
        return False
    if not message:
        return False
    command, _, argument = message.decode().partition(" ")
    if command == "start":
        _start(control, json.loads(argument), descriptors, children)
    elif command == "kill" and int(argument) in children:
        os.kill(int(argument), signal.SIGKILL)
    return True


def _start(
    control: socket.socket, settings: dict[str, Any], descriptors: list[int], children: set[int]
) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            control.close()
            os.close(signal.set_wakeup_fd(-1))
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            entry.main({**settings, "descriptors": descriptors})
        finally:
            os._exit(1)  # reached only if entry itself failed to start
    for descriptor in descriptors:
        os.close(descriptor)
    children.add(pid)
    _tell(control, f"started {pid}")


def _report_ended(control: socket.socket, children: set[int]) -> None:
    for pid in list(children):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            children.discard(pid)
            _tell(control, f"ended {pid} {os.waitstatus_to_exitcode(status)}")


def _tell(control: socket.socket, message: str) -> None:
    try:
        control.send(message.encode())
    except OSError:  # the coordinator is gone: the next poll says so
        return


def _end(children: set[int]) -> NoReturn:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)
    os._exit(0)


def _wake_on_child_exit() -> int:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    return reader


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        return
