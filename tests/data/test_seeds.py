"""Each batch has a seed of its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wasp_local.data.seeds import batch_seed


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40))
def test_a_seed_is_one_that_every_generator_takes(seed, batch):
    assert 0 <= batch_seed(seed, batch) < 2**63


def test_no_two_batches_of_a_few_runs_share_a_seed():
    seeds = [batch_seed(seed, batch) for seed in range(50) for batch in range(200)]
    assert len(set(seeds)) == len(seeds)
