"""How runs end: a worker that raises, leaves or is killed; Ctrl-C; a coordinator that dies. Nothing stays behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from runs import Counter, classes, fit, numbers, perceptron
from torch.optim import SGD

import wasp_local as wl

ENDLESS = """
import sys, torch, wasp_local as wl
model = torch.nn.Linear(4, 2)
data = torch.randn(64, 4), torch.randint(0, 2, (64,))
def loss(output, target):
    print("going", flush=True)
    return torch.nn.functional.cross_entropy(output, target)
trainer = wl.Trainer(model, optimizer=torch.optim.SGD(model.parameters(), 0.01), loss=loss, workers=3, threads=1,
                     epochs=10**6, batch_size=8, quiet=True, start_method=sys.argv[1])
trainer.fit(data)
"""


def launch(train_fn: Any, **told: Any) -> list[Any]:
    model = Counter()
    optimizer = SGD(model.parameters(), 0.1)
    return wl.launch(train_fn, model=model, optimizer=optimizer, threads=1, workers=3, **told)


def doing(what: Any, step: int = 2) -> Any:
    """A train_fn whose worker 1 does something after some pushes, while the others go on for long."""

    def train(worker: Any) -> None:
        batches = worker.batches(numbers(64), batch_size=1, epochs=10**6)
        for done, (_, targets) in enumerate(batches):
            if worker.id == 1 and done == step:
                what()
            worker.step(worker.model(targets.float()))

    return train


def test_an_exception_is_told_with_the_workers_own_traceback() -> None:
    class Peculiar(Exception):
        def __init__(self, one: int, two: int, three: int) -> None:
            super().__init__(f"{one} {two} {three}")

    def fail() -> None:
        raise Peculiar(1, 2, 3)

    with pytest.raises(
        wl.WorkerFailed, match=r"worker 1 \(pid \d+\) failed after 2 pushes: .*Peculiar: 1 2 3"
    ) as caught:
        launch(doing(fail))
    assert (caught.value.worker, caught.value.step) == (1, 2)
    assert "raise Peculiar(1, 2, 3)" in caught.value.traceback_text
    assert "raise Peculiar(1, 2, 3)" in str(caught.value.__cause__)


def test_a_kill_is_told_with_its_signal_and_likely_cause() -> None:
    with pytest.raises(
        wl.WorkerFailed, match=r"worker 1 .* was killed by signal 9 \(SIGKILL\): likely the kernel"
    ):
        launch(doing(lambda: os.kill(os.getpid(), signal.SIGKILL)))


def test_a_fault_in_compiled_code_is_told() -> None:
    with pytest.raises(wl.WorkerFailed, match=r"killed by signal 11 \(SIGSEGV\)"):
        launch(doing(lambda: os.kill(os.getpid(), signal.SIGSEGV)))


def test_leaving_by_sys_exit_is_told() -> None:
    with pytest.raises(wl.WorkerFailed, match=r"worker 1 .* failed after 2 pushes: SystemExit: 3"):
        launch(doing(lambda: sys.exit(3)))


def test_leaving_by_os_exit_is_told() -> None:
    with pytest.raises(wl.WorkerFailed, match=r"left with exit code 7 before its work was done"):
        launch(doing(lambda: os._exit(7)))


@pytest.mark.parametrize("start_method", ["spawn", "fork"])
def test_a_kill_is_told_under_every_start_method(start_method: str) -> None:
    with pytest.raises(wl.WorkerFailed, match=r"was killed by signal 9"):
        launch(doing(lambda: os.kill(os.getpid(), signal.SIGKILL)), start_method=start_method)


@pytest.mark.parametrize("protocol", ["bsp", "ssp", "softsync"])
def test_those_who_wait_for_a_dead_worker_are_let_go(protocol: str) -> None:
    with pytest.raises(wl.WorkerFailed, match="was killed by signal 9"):
        launch(doing(lambda: os.kill(os.getpid(), signal.SIGKILL)), protocol=protocol)


def test_a_worker_that_dies_inside_the_optimizers_step_is_told() -> None:
    # the loss's backward pass is the user's: here the gradient itself kills, inside the push of nobody
    model = perceptron()

    def deadly(output: Any, targets: Any) -> Any:
        output.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGKILL))
        return output.sum()

    with pytest.raises(wl.WorkerFailed, match="was killed by signal 9"):
        fit(model, classes(), loss=deadly, optimizer=SGD(model.parameters(), 0.1), workers=2)


def test_ten_fits_in_one_process_leave_nothing() -> None:
    model = perceptron()
    trainer = wl.Trainer(
        model, optimizer=SGD(model.parameters(), 0.1), workers=2, threads=1, steps=4, quiet=True,
        start_method="fork",
    )  # fmt: skip
    trainer.fit(classes())
    process = psutil.Process()
    before = process.num_fds(), process.num_threads(), len(process.children(recursive=True))
    for _ in range(9):
        trainer.fit(classes())
    assert (process.num_fds(), process.num_threads(), len(process.children(recursive=True))) == before


def start_endless(tmp_path: Path, start_method: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start an endless run and wait until every worker trains."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, str(script), start_method],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    seen: set[str] = set()
    while len(seen) < 3:
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        seen.add(line.split("]")[0])
    return process, psutil.Process(process.pid).children(recursive=True)


def all_gone(processes: list[psutil.Process], within: float = 10.0) -> bool:
    return not psutil.wait_procs(processes, timeout=within)[1]


@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "fork"])
@pytest.mark.parametrize("to", ["parent", "group"])
def test_ctrl_c_ends_the_run_and_leaves_nothing(tmp_path: Path, start_method: str, to: str) -> None:
    process, workers = start_endless(tmp_path, start_method)
    if to == "parent":
        process.send_signal(signal.SIGINT)
    else:
        os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode in (130, -signal.SIGINT)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert not re.search(r"^\[worker|WorkerFailed", err, re.MULTILINE)
    assert all_gone(workers)


def test_a_second_ctrl_c_leaves_nothing_either(tmp_path: Path) -> None:
    process, workers = start_endless(tmp_path, "forkserver")
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode != 0
    assert all_gone(workers)


@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "fork"])
def test_workers_leave_when_the_coordinator_is_killed(tmp_path: Path, start_method: str) -> None:
    process, workers = start_endless(tmp_path, start_method)
    process.kill()
    process.communicate(timeout=20)
    assert all_gone(workers)
