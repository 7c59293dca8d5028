"""The plan of batches: each sample once an epoch, the same order for any number of workers, exact counts."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasp_local.data.plan import BatchPlan

SIZES = st.integers(1, 60).flatmap(lambda samples: st.tuples(st.just(samples), st.integers(1, samples)))


PLANS = st.builds(
    lambda size, **others: BatchPlan.for_epochs(samples=size[0], batch_size=size[1], **others),
    SIZES,
    epochs=st.integers(1, 4),
    seed=st.integers(0, 2**63 - 1),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)


def epochs_of(plan: BatchPlan) -> list[list[int]]:
    """The samples of each epoch, batch after batch."""
    epochs: dict[int, list[int]] = {}
    for batch in range(plan.batches):
        epochs.setdefault(plan.epoch_of(batch), []).extend(plan.indices(batch).tolist())
    return list(epochs.values())


@given(PLANS)
def test_every_epoch_has_each_sample_exactly_once(plan):
    for samples in epochs_of(plan):
        assert len(set(samples)) == len(samples) == plan.samples_per_epoch
        if not plan.drop_last:
            assert sorted(samples) == list(range(plan.samples))


@given(PLANS, st.data())
def test_each_sample_goes_to_one_worker_however_batches_are_claimed(plan, data):
    """Each worker has a plan of its own, and they claim in any order of turns."""
    workers = [pickle.loads(pickle.dumps(plan)) for _ in range(data.draw(st.integers(1, 5)))]
    turns = st.lists(st.sampled_from(workers), min_size=plan.batches, max_size=plan.batches)
    seen = [each.indices(batch).tolist() for batch, each in enumerate(data.draw(turns))]
    assert seen == [plan.indices(batch).tolist() for batch in range(plan.batches)]


@given(PLANS)
def test_sizes_counts_and_epochs_agree_with_the_samples(plan):
    sizes = [len(plan.indices(batch)) for batch in range(plan.batches)]
    assert sizes == [plan.size_of(batch) for batch in range(plan.batches)]
    assert [plan.samples_before(batch) for batch in range(plan.batches + 1)] == np.cumsum(
        [0, *sizes]
    ).tolist()
    assert plan.total_samples == sum(sizes)
    for batch in range(plan.batches):
        assert plan.epoch_of(plan.epoch_end(batch) - 1) == plan.epoch_of(batch) == batch // plan.per_epoch
        assert plan.epoch_of(plan.epoch_end(batch)) == plan.epoch_of(batch) + 1


@given(SIZES, st.integers(1, 300), st.booleans())
def test_a_budget_of_samples_is_met_exactly(size, budget, drop_last):
    plan = BatchPlan.for_samples(budget, samples=size[0], batch_size=size[1], drop_last=drop_last)
    indices = [plan.indices(batch) for batch in range(plan.batches)]
    assert sum(map(len, indices)) == plan.total_samples == budget
    assert all(len(each) for each in indices)


@given(SIZES, st.integers(1, 40), st.integers(1, 9), st.booleans())
def test_a_number_of_updates_is_met_exactly(size, updates, group, within_epoch):
    plan = BatchPlan.for_updates(updates, group, within_epoch, samples=size[0], batch_size=size[1])
    made, gradients = 0, 0
    for batch in range(plan.batches):
        gradients += 1
        epoch_ends = within_epoch and plan.epoch_end(batch) == batch + 1
        if gradients == group or epoch_ends:
            made, gradients = made + 1, 0
    assert (made, gradients) == (updates, 0)
    assert plan.updates(group, within_epoch) == updates


def test_two_epochs_of_100_samples_are_200_samples():
    plan = BatchPlan.for_epochs(2, samples=100, batch_size=32)
    assert (plan.batches, plan.total_samples) == (8, 200)


def test_37_batches_are_37_batches_whatever_the_epoch():
    plan = BatchPlan.for_batches(37, samples=100, batch_size=32)
    assert (plan.batches, plan.total_samples) == (37, 9 * 100 + 32)


def test_epochs_and_seeds_have_orders_of_their_own():
    def orders(seed):
        return epochs_of(BatchPlan.for_epochs(2, samples=50, batch_size=8, seed=seed))

    first, second = orders(seed=0)
    assert first != second
    assert orders(seed=0) == [first, second]
    assert orders(seed=1)[0] != first


def test_an_unshuffled_epoch_keeps_the_order_of_the_data():
    plan = BatchPlan.for_epochs(2, samples=5, batch_size=2, shuffle=False)
    assert epochs_of(plan) == [[0, 1, 2, 3, 4]] * 2


def test_a_pickled_plan_has_no_order_in_it():
    plan = BatchPlan.for_epochs(1, samples=100_000, batch_size=10)
    plan.indices(0)
    assert len(pickle.dumps(plan)) < 1000


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"batch_size": 11}, ValueError, r"^batch_size must be at most .* data \(10\), got 11$"),
        ({"batch_size": 0}, ValueError, r"^batch_size must be at least 1 .*, got 0$"),
        ({"batch_size": 2.5}, TypeError, r"^batch_size must be a whole number .*, got 2\.5$"),
        ({"samples": 0}, ValueError, r"^samples must be at least 1 .*, got 0$"),
        ({"seed": -1}, ValueError, r"^seed must be at least 0 .*, got -1$"),
        ({"epochs": 0}, ValueError, r"^epochs must be at least 1 .*, got 0$"),
    ],
)
def test_a_wrong_number_is_refused_in_one_sentence(changed, error, message):
    with pytest.raises(error, match=message):
        BatchPlan.for_epochs(**{"epochs": 1, "samples": 10, "batch_size": 2, **changed})


def test_planning_needs_no_torch():
    program = "import sys, wasp_local.data.plan; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
