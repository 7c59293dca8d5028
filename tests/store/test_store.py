"""Pull and push: versions, staleness, weights, and what each consistency promises."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from laid import Laid, odd_model
from torch import nn
from torch.optim import SGD

from wasp_local.errors import BrokenInvariant


def ones(laid: Laid) -> list[Any]:
    return [
        [torch.ones(slot.shape, dtype=shard.dtype) for slot in shard.slots]
        for shard in laid.store.plan.shards
    ]


def uniform_model(tensors: int = 50) -> nn.Module:
    model = nn.Module()
    for index in range(tensors):
        model.register_parameter(f"p{index}", nn.Parameter(torch.zeros(1 + index)))
    return model


def push(laid: Laid, pulled: int = 0, weight: float = 1.0, **options: Any) -> list[tuple[int, float]]:
    committed: list[tuple[int, float]] = []
    laid.store.push(
        ones(laid),
        pulled,
        lambda tau: weight,
        lambda tau, weight: committed.append((tau, weight)),
        pusher=0,
        **options,
    )
    return committed


@pytest.mark.parametrize("consistency", ["locked", "snapshot", "hogwild"])
@pytest.mark.parametrize("shard_bytes", [64, 2**24])
def test_every_push_moves_every_shard_on_by_one_version(
    lay: Callable[..., Laid], consistency: str, shard_bytes: int
) -> None:
    model = odd_model()
    laid = lay(model, SGD(model.parameters(), 0.1), consistency=consistency, shard_bytes=shard_bytes)
    for pushes in range(3):
        assert set(laid.store.versions()) == {pushes}
        push(laid, pulled=pushes)
    assert set(laid.store.pull(laid.replica.flats)) == {3}


def test_staleness_is_the_version_now_minus_the_version_pulled(lay: Callable[..., Laid]) -> None:
    model = odd_model()
    laid = lay(model, SGD(model.parameters(), 0.1))
    assert push(laid, pulled=0) == [(0, 1.0)]
    assert push(laid, pulled=0) == [(1, 1.0)]
    assert push(laid, pulled=0, weight=0.5) == [(2, 0.5)]


def test_a_push_of_weight_zero_changes_nothing_and_is_committed(lay: Callable[..., Laid]) -> None:
    model = odd_model()
    laid = lay(model, SGD(model.parameters(), 0.1))
    before = laid.store.memories[0].params.clone()
    assert push(laid, weight=0.0) == [(0, 0.0)]
    assert torch.equal(laid.store.memories[0].params, before)
    assert laid.store.version() == 0


@pytest.mark.parametrize("shard_bytes", [64, 2**24])
def test_a_push_that_refreshes_equals_a_push_and_a_pull(lay: Callable[..., Laid], shard_bytes: int) -> None:
    model = odd_model()
    laid = lay(model, SGD(model.parameters(), 0.1), shard_bytes=shard_bytes)
    refreshed = [torch.zeros_like(flat) for flat in laid.replica.flats]
    versions = laid.store.push(
        ones(laid), 0, lambda tau: 1.0, lambda tau, weight: None, pusher=0, refresh=refreshed
    )
    assert versions == laid.store.pull(laid.replica.flats)
    for ours, pulled in zip(refreshed, laid.replica.flats, strict=True):
        assert torch.equal(ours, pulled)


def in_a_process(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            torch.set_num_threads(1)  # OpenMP's other threads did not survive the fork
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


@pytest.mark.parametrize(("consistency", "shard_bytes"), [("locked", 2**24), ("snapshot", 64)])
def test_every_pull_is_uniform_while_four_processes_push(
    lay: Callable[..., Laid], consistency: str, shard_bytes: int
) -> None:
    # each update adds the same to all 50 tensors: any mixture of two versions would show
    model = uniform_model()
    laid = lay(model, SGD(model.parameters(), lr=1.0), consistency=consistency, shard_bytes=shard_bytes)
    pushes, pushers = 150, 4

    def work() -> None:
        for _ in range(pushes):
            push(laid)

    pids = [in_a_process(work) for _ in range(pushers)]
    seen = set()
    while laid.store.version() < pushes * pushers:
        versions = laid.store.pull(laid.replica.flats)
        assert len(set(versions)) == 1
        for parameter in laid.model.parameters():
            assert torch.all(parameter == -float(versions[0]))
        seen.add(versions[0])
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * pushers
    assert len(seen) > 1
    assert laid.store.versions() == (pushes * pushers,) * len(laid.store.plan.shards)


def test_locked_shards_are_each_whole_though_not_of_one_version(lay: Callable[..., Laid]) -> None:
    model = uniform_model(8)
    laid = lay(model, SGD(model.parameters(), lr=1.0), shard_bytes=64)
    pid = in_a_process(lambda: [push(laid) for _ in range(300)] and None)
    while laid.store.version() < 300:
        versions = laid.store.pull(laid.replica.flats)
        for version, parameter in zip(versions, laid.model.parameters(), strict=True):
            assert torch.all(parameter == -float(version))
    assert os.waitpid(pid, 0)[1] == 0


def test_a_pusher_that_died_under_the_lock_is_found_out(lay: Callable[..., Laid]) -> None:
    model = odd_model()
    laid = lay(model, SGD(model.parameters(), 0.1))

    def die_under_the_lock() -> None:
        laid.store.push(
            ones(laid), 0, lambda tau: os.kill(os.getpid(), signal.SIGKILL) or 1.0, lambda *_: None, pusher=0
        )

    os.waitpid(in_a_process(die_under_the_lock), 0)
    with pytest.raises(BrokenInvariant, match="a worker died while it updated shard 0"):
        laid.store.pull(laid.replica.flats)


def test_an_error_in_an_update_lets_go_of_the_lock(lay: Callable[..., Laid]) -> None:
    model = odd_model()
    laid = lay(model, SGD(model.parameters(), 0.1))
    with pytest.raises(ZeroDivisionError, match="division"):
        laid.store.push(ones(laid), 0, lambda tau: 1 / 0, lambda *_: None, pusher=0)
    assert push(laid) == [(0, 1.0)]


def test_a_replica_is_the_workers_own_memory(lay: Callable[..., Laid]) -> None:
    model = odd_model()
    laid = lay(model, SGD(model.parameters(), 0.1))
    laid.store.pull(laid.replica.flats)
    before = [parameter.clone() for parameter in laid.model.parameters()]
    push(laid)
    assert all(torch.equal(one, other) for one, other in zip(before, laid.model.parameters(), strict=True))
    store = laid.store.memories[0].params
    ranges = range(store.data_ptr(), store.data_ptr() + store.nbytes)
    assert all(
        parameter.data_ptr() not in ranges for parameter in laid.model.parameters() if len(parameter.shape)
    )
