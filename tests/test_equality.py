"""A run against a plain PyTorch loop: one worker bit for bit, BSP against one process with a larger batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from runs import classes, fit, perceptron, plain_loop, same_weights
from torch.optim import SGD, Adam, AdamW, Optimizer

from wasp_local.protocol import PRESETS

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda p: SGD(p, 0.1, momentum=0.9, weight_decay=1e-3, fused=True),
    "nesterov": lambda p: SGD(p, 0.1, momentum=0.9, nesterov=True, fused=True),
    "adam": lambda p: Adam(p, 1e-2, fused=True),
    "adamw": lambda p: AdamW(p, 1e-2, fused=True),
    "sgd by torch's loop": lambda p: SGD(p, 0.1, momentum=0.9, fused=False),
}
STEPS, BATCH = 20, 16


def assert_one_worker_is_the_plain_loop(preset: str, optimizer: str) -> None:
    ours, theirs = perceptron(), perceptron()
    make = OPTIMIZERS[optimizer]
    our_optimizer, their_optimizer = make(ours.parameters()), make(theirs.parameters())
    result = fit(
        ours,
        classes(),
        optimizer=our_optimizer,
        workers=1,
        protocol=preset,
        steps=STEPS,
        batch_size=BATCH,
        seed=3,
    )
    plain_loop(theirs, their_optimizer, classes(), STEPS, BATCH, seed=3)
    assert same_weights(ours, theirs)
    assert result.updates == STEPS
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        for name, value in their_optimizer.state[other].items():
            assert torch.equal(our_optimizer.state[one][name], value)


@pytest.mark.parametrize("preset", PRESETS)
def test_one_worker_is_plain_sgd_bit_for_bit(preset: str) -> None:
    assert_one_worker_is_the_plain_loop(preset, "sgd")


@pytest.mark.parametrize("optimizer", [name for name in OPTIMIZERS if name != "sgd"])
def test_one_worker_is_the_plain_loop_of_every_optimizer(optimizer: str) -> None:
    assert_one_worker_is_the_plain_loop("wasp", optimizer)


@pytest.mark.parametrize("preset", ["downpour", "hogwild"])
def test_one_worker_is_the_plain_loop_of_adam_where_the_replica_is_special(preset: str) -> None:
    assert_one_worker_is_the_plain_loop(preset, "adam")


@pytest.mark.parametrize("workers", [2, 3])
def test_bsp_is_one_process_with_a_larger_batch_and_the_same_on_every_run(workers: int) -> None:
    # 96 samples of batches of 7: 14 a epoch, the last one smaller, the last group of 3 workers smaller too
    runs = []
    for _ in range(2):
        model = perceptron()
        optimizer = SGD(model.parameters(), 0.1, momentum=0.9)
        fit(model, classes(), optimizer=optimizer, workers=workers, protocol="bsp", epochs=2, batch_size=7)
        runs.append(model)
    assert same_weights(*runs)
    large = perceptron()
    updates = 2 * -(-14 // workers)
    plain_loop(large, SGD(large.parameters(), 0.1, momentum=0.9), classes(), updates, 7 * workers)
    for ours, theirs in zip(runs[0].parameters(), large.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_bsp_has_the_same_bits_under_every_start_method() -> None:
    models = {}
    for method in ("forkserver", "spawn", "fork"):
        models[method] = perceptron()
        fit(
            models[method],
            classes(),
            optimizer=SGD(models[method].parameters(), 0.1),
            workers=2,
            protocol="bsp",
            steps=20,
            batch_size=16,
            start_method=method,
        )
    assert same_weights(models["forkserver"], models["spawn"])
    assert same_weights(models["forkserver"], models["fork"])
