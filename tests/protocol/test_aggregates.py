"""How many gradients an aggregate rule makes into one update."""

from __future__ import annotations

import pytest

from wasp_local.protocol.aggregates import AllWorkers, Single, Softsync


@pytest.mark.parametrize(
    ("updates_per_round", "workers", "size"),
    [(1, 1, 1), (1, 16, 16), (2, 16, 8), (3, 16, 5), (16, 16, 1), (17, 16, 1)],
)
def test_n_softsync_takes_the_workers_over_n_rounded_down_and_never_none(
    updates_per_round: int, workers: int, size: int
) -> None:
    assert Softsync(updates_per_round).gradients(workers) == size
    assert not Softsync(updates_per_round).within_epoch


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_bsp_takes_one_gradient_a_worker_within_an_epoch_and_the_asynchronous_take_one(workers: int) -> None:
    assert (AllWorkers().gradients(workers), AllWorkers.within_epoch) == (workers, True)
    assert (Single().gradients(workers), Single.within_epoch) == (1, False)
