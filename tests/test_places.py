"""Where a run may be started from: a script without a guard, standard input, `python -c`, and what may be sent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import classes, perceptron
from torch import nn
from torch.optim import SGD

import wasp_local as wl

SCRIPT = """
import torch, wasp_local as wl
print("this line is printed once")
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
    def forward(self, x):
        return self.linear(x)
scale = 0.5
model = Net()
result = wl.Trainer(
    model,
    optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1),
    loss=lambda output, target: scale * torch.nn.functional.cross_entropy(output, target),
    workers=2, threads=1, steps=6, batch_size=8, quiet=True, start_method="METHOD",
).fit((torch.randn(64, 4), torch.randint(0, 2, (64,))))
print(result.updates, "updates")
"""


def run(*command: str, text: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", *command],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_a_script_needs_no_guard_under_any_start_method(tmp_path: Path, method: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("METHOD", method))
    assert run(str(script)) == "this line is printed once\n6 updates\n"


def test_a_script_may_come_on_standard_input_or_by_dash_c() -> None:
    script = SCRIPT.replace("METHOD", "forkserver")
    assert run("-", text=script) == "this line is printed once\n6 updates\n"
    assert run("-c", script) == "this line is printed once\n6 updates\n"


def test_a_model_of_this_test_may_be_local_and_hold_lambdas() -> None:
    class Local(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = perceptron()
            self.squash = lambda outputs: outputs.tanh()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.squash(self.inner(inputs))

    model = Local()
    result = wl.Trainer(
        model, optimizer=SGD(model.parameters(), 0.1), workers=2, threads=1, steps=4, quiet=True
    ).fit(classes())
    assert result.updates == 4


@pytest.mark.parametrize("argument", ["model", "loss"])
def test_what_cannot_be_sent_is_named(argument: str) -> None:
    import threading

    model = perceptron()
    lock = threading.Lock()

    def loss(output: Any, targets: Any) -> Any:
        with lock:
            return nn.functional.cross_entropy(output, targets)

    if argument == "model":
        model.lock = lock
        told: dict[str, Any] = {}
    else:
        told = {"loss": loss}
    trainer = wl.Trainer(model, optimizer=SGD(model.parameters(), 0.1), workers=2, quiet=True, **told)
    with pytest.raises(TypeError, match=rf"^{argument} cannot be sent to a worker process: .*lock"):
        trainer.fit(classes())


def test_a_second_run_may_follow_training_in_this_process() -> None:
    model = perceptron()
    (torch.randn(200, 200) @ torch.randn(200, 200)).sum()
    nn.functional.cross_entropy(model(classes()[0]), classes()[1]).backward()
    for start_method in ("forkserver", "spawn"):
        result = wl.Trainer(
            model,
            optimizer=SGD(model.parameters(), 0.1),
            workers=2,
            steps=4,
            quiet=True,
            start_method=start_method,
        ).fit(classes())
        assert result.updates == 4
