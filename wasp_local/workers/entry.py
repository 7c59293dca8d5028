"""A worker process from its first line to its last.

The one thing to know: a worker never outlives its coordinator. A thread of its own sleeps until the line to the
coordinator closes, which the kernel does however the coordinator ends, and then ends this process whatever its
main thread is doing.

The process ends by `os._exit`: nothing of the process it was forked from may run here at exit.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn

import cloudpickle
import numpy as np
import torch

from wasp_local.data.tensors import LiveData, TensorData
from wasp_local.protocol import Protocol
from wasp_local.shm.heap import keep_freed_memory
from wasp_local.shm.segment import Segment
from wasp_local.store.buffers import BufferPlan, SharedBuffers
from wasp_local.store.group import GradientGroup, GroupPlan
from wasp_local.store.replica import Replica
from wasp_local.store.store import ParameterStore, StorePlan
from wasp_local.workers import payload
from wasp_local.workers.control_block import ControlBlock, ControlPlan, Stop
from wasp_local.workers.driver import Aborted, Driver, Shared
from wasp_local.workers.worker import Worker

__all__ = ["EvaluationJob", "Job", "Plans", "main"]


class Plans(NamedTuple):
    """Where everything lies in the run's segment."""

    store: StorePlan
    control: ControlPlan
    buffers: BufferPlan
    group: GroupPlan | None


class EvaluationJob(NamedTuple):
    """What workers do with the test set in a forced sync."""

    data: TensorData | LiveData
    batch_size: int
    loss: Any


class Job(NamedTuple):
    """What all workers of a run are given."""

    train_fn: Any
    model: torch.nn.Module
    protocol: Protocol
    plans: Plans
    seed: int
    evaluation: EvaluationJob | None


def main(settings: dict[str, Any]) -> NoReturn:
    """Run one worker; `settings` are those of `launch.Settings`."""
    code = 1
    try:
        sys.path[:] = settings["sys_path"]
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        line_fd, stdout, stderr, payload_fd, segment_fd = settings["descriptors"]
        _take_over_output(stdout, stderr)
        line = Connection(line_fd)
        threading.Thread(target=_leave_with_coordinator, args=(line_fd,), daemon=True).start()
        _place(settings["cores"], settings["threads"])
        code = _work(settings, line, payload_fd, segment_fd)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _work(settings: dict[str, Any], line: Connection, payload_fd: int, segment_fd: int) -> int:
    worker: Worker | None = None
    control: ControlBlock | None = None
    try:
        job: Job = payload.load(payload_fd)
        segment = Segment.attach(segment_fd, settings["segment_bytes"])
        os.close(payload_fd)
        control = ControlBlock(segment, job.plans.control, lambda: _still_wanted(control))
        driver = _driver(settings["worker"], job, segment, control, line)
        worker = Worker(driver, job.model, job.seed)
        _send(line, "ready", os.getpid(), sorted(os.sched_getaffinity(0)), torch.get_num_threads())
        returned = job.train_fn(worker)
        driver.leave()
        _send(line, "returned", returned)
    except Aborted:
        return 0
    except BaseException as error:
        step = control.workers[settings["worker"]].pushes if control else 0
        _send(line, "failed", _name(error), str(error), traceback.format_exc(), step)
        return 1
    return 0


def _driver(number: int, job: Job, segment: Segment, control: ControlBlock, line: Connection) -> Driver:
    def still_wanted() -> None:
        _still_wanted(control)

    plans = job.plans
    store = ParameterStore(segment, plans.store, still_wanted)
    on_store = store.params if job.protocol.pull.on_store else None
    replica = Replica(job.model.train(), plans.store.shards, on_store)
    buffers = SharedBuffers(segment, plans.buffers, job.model)
    group = None
    if plans.group is not None:
        group_plan = plans.group

        def group(apply: Any, next_size: Any) -> GradientGroup:
            return GradientGroup(segment, group_plan, control.bell, still_wanted, apply, next_size)

    return Driver(
        number,
        job.protocol,
        Shared(store, control, buffers, group),
        replica,
        notify=lambda: _send(line, "gate"),
        evaluate=_evaluator(job.model, job.evaluation) if job.evaluation else None,
    )


def _evaluator(model: torch.nn.Module, evaluation: EvaluationJob) -> Any:
    """A function that sees one test batch: (summed loss, how many are right or -1 where that has no meaning)."""
    data, size, loss = evaluation

    @torch.no_grad()
    def evaluate(batch: int) -> tuple[float, int]:
        indices = np.arange(batch * size, min(len(data), (batch + 1) * size))
        model.eval()
        try:
            inputs, targets = data.batch(indices)
            output = model(inputs)
            total = loss(output, targets).item() * len(indices)
        finally:
            model.train()
        return total, _correct(output, targets)

    return evaluate


def _correct(output: Any, targets: Any) -> int:
    classifies = (
        isinstance(output, torch.Tensor)
        and isinstance(targets, torch.Tensor)
        and output.ndim == 2
        and targets.ndim == 1
        and not targets.is_floating_point()
    )
    return int((output.argmax(1) == targets).sum()) if classifies else -1


def _still_wanted(control: ControlBlock | None) -> None:
    if control is not None and control.stop == Stop.ABORT:
        raise Aborted


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _send(line: Connection, kind: str, *values: Any) -> None:
    line.send_bytes(cloudpickle.dumps((kind, *values)))


def _take_over_output(stdout: int, stderr: int) -> None:
    """Let all that this process prints, from C too, go to the coordinator line by line."""
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115  open to the end
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115  open to the end


def _place(cores: list[int], threads: int) -> None:
    if cores:
        os.sched_setaffinity(0, cores)
    torch.set_num_threads(threads)
    keep_freed_memory()


def _leave_with_coordinator(line: int) -> None:
    poll = select.poll()
    poll.register(line, 0)  # only the hang-up, which is always reported
    while not poll.poll():
        pass
    os._exit(1)
