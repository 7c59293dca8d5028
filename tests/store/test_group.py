"""Groups of gradients: their mean, its bits, and who waits for whom."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wasp_local.shm.arena import Arena
from wasp_local.shm.bell import Bell
from wasp_local.shm.segment import Segment
from wasp_local.store.group import Deposit, GradientGroup, plan_group, reduce_group
from wasp_local.store.layout import plan_shards

SHARDS = plan_shards([[("a", torch.zeros(3)), ("b", torch.zeros(2, 2))]])


def gradient(seed: int, without_b: bool = False) -> Any:
    generator = torch.Generator().manual_seed(seed)
    b = None if without_b else torch.randn(2, 2, generator=generator)
    return [[torch.randn(3, generator=generator), b]]


@given(st.permutations(range(4)))
def test_the_mean_has_the_same_bits_in_whatever_order_the_gradients_came(order: list[int]) -> None:
    notes = [Deposit(batch=batch, samples=1 + batch, pulled=0) for batch in range(4)]
    expected, weight = reduce_group(notes, [gradient(batch) for batch in range(4)], [1.0] * 4)
    mean, same = reduce_group([notes[i] for i in order], [gradient(i) for i in order], [1.0] * 4)
    assert weight == same == 1.0
    assert all(torch.equal(one, other) for one, other in zip(expected[0], mean[0], strict=True))


def test_the_mean_is_weighted_by_samples_and_by_staleness_weight() -> None:
    notes = [Deposit(0, 3, 0), Deposit(1, 1, 0)]
    mean, weight = reduce_group(notes, [gradient(0), gradient(1)], [1.0, 0.5])
    expected = (3 * gradient(0)[0][0] + 0.5 * gradient(1)[0][0]) / 4
    torch.testing.assert_close(mean[0][0] * weight, expected)


def test_a_missing_gradient_counts_as_zero_unless_all_miss_it() -> None:
    notes = [Deposit(0, 1, 0), Deposit(1, 1, 0)]
    mean, _ = reduce_group(notes, [gradient(0), gradient(1, without_b=True)], [1.0, 1.0])
    torch.testing.assert_close(mean[0][1], gradient(0)[0][1] / 2)
    mean, _ = reduce_group(notes, [gradient(0, without_b=True), gradient(1, without_b=True)], [1.0, 1.0])
    assert mean[0][1] is None


def test_a_group_of_weight_zero_is_dropped() -> None:
    notes = [Deposit(0, 1, 0), Deposit(1, 1, 0)]
    assert reduce_group(notes, [gradient(0), gradient(1)], [0.0, 0.0])[1] == 0.0


class Applied(list[tuple[list[int], torch.Tensor]]):
    """What a group has been applied with."""

    def __call__(self, notes: Sequence[Deposit], gradients: Sequence[Any]) -> None:
        self.append(([note.batch for note in notes], torch.stack([each[0][0] for each in gradients])))


@pytest.fixture
def make_group() -> Iterator[Callable[..., tuple[GradientGroup, Applied]]]:
    segments: list[Segment] = []

    def make(size: int) -> tuple[GradientGroup, Applied]:
        arena = Arena()
        bell_at = arena.take(Bell.SIZE)
        plan = plan_group(arena, SHARDS, capacity=size)
        segments.append(Segment.create(arena.nbytes, purpose="test"))
        bell = Bell(segments[-1], bell_at)
        bell.initialise()
        applied = Applied()
        group = GradientGroup(segments[-1], plan, bell, lambda: None, applied, lambda: size)
        group.initialise()
        group.open(size)
        return group, applied

    yield make
    for segment in segments:
        segment.close()
    segments.clear()


def test_the_deposit_that_completes_a_group_applies_it(
    make_group: Callable[..., tuple[GradientGroup, Applied]],
) -> None:
    group, applied = make_group(3)
    commits: list[int] = []
    for batch in range(7):
        group.deposit(gradient(batch), Deposit(batch, 1, 0), lambda batch=batch: commits.append(batch))
    assert [batches for batches, _ in applied] == [[0, 1, 2], [3, 4, 5]]
    assert torch.equal(applied[1][1][2], gradient(5)[0][0])
    assert commits == list(range(7))


def test_a_flush_applies_what_is_there_and_nothing_twice(
    make_group: Callable[..., tuple[GradientGroup, Applied]],
) -> None:
    group, applied = make_group(3)
    group.flush()
    group.deposit(gradient(0), Deposit(0, 1, 0), lambda: None)
    group.flush()
    group.flush()
    for batch in (1, 2, 3):
        group.deposit(gradient(batch), Deposit(batch, 1, 0), lambda: None)
    assert [batches for batches, _ in applied] == [[0], [1, 2, 3]]


def test_many_depositors_lose_and_double_nothing(
    make_group: Callable[..., tuple[GradientGroup, Applied]],
) -> None:
    group, applied = make_group(3)
    numbers = itertools.count()
    taking = threading.Lock()

    def deposit() -> None:
        while True:
            with taking:
                batch = next(numbers)
            if batch >= 90:
                return
            group.deposit(gradient(batch), Deposit(batch, 1, 0), lambda: None)

    threads = [threading.Thread(target=deposit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(batch for batches, _ in applied for batch in batches) == list(range(90))
    for batches, stacked in applied:
        for batch, got in zip(batches, stacked, strict=True):
            assert torch.equal(got, gradient(batch)[0][0])


@pytest.mark.parametrize("next_size", [2, 0])
def test_a_flush_waits_for_a_full_group_that_is_being_applied(
    make_group: Callable[..., tuple[GradientGroup, Applied]], next_size: int
) -> None:
    group, applied = make_group(2)
    group._next_size = lambda: next_size  # 0: the run has no more batches
    applying, go_on = threading.Event(), threading.Event()

    def hold(notes: Sequence[Deposit], gradients: Sequence[Any]) -> None:
        applying.set()
        go_on.wait()
        applied(notes, gradients)

    group._apply = hold
    group.deposit(gradient(0), Deposit(0, 1, 0), lambda: None)
    completing = threading.Thread(target=lambda: group.deposit(gradient(1), Deposit(1, 1, 0), lambda: None))
    completing.start()
    applying.wait()
    flushing = threading.Thread(target=group.flush)
    flushing.start()
    assert applied == []
    go_on.set()
    completing.join()
    flushing.join()
    assert [batches for batches, _ in applied] == [[0, 1]]
