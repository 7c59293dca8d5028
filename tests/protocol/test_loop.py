"""What holds of every interleaving of worker loops; hypothesis draws them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from play import Run, play

import wasp_local as wl
from wasp_local.params import parameters
from wasp_local.protocol import PRESETS
from wasp_local.protocol.loop import Claim, Compute, Gate, LocalStep, Opening, Pull, Push, Sync, worker_loop

WORKERS, BATCHES, EPOCH = st.integers(1, 5), st.integers(1, 40), st.integers(1, 12)


def in_any_order(data: st.DataObject, run: Run) -> Run:
    play(run, lambda count: data.draw(st.integers(0, count - 1)))
    return run


@given(st.data(), st.sampled_from(sorted(PRESETS)), WORKERS, BATCHES, EPOCH)
def test_every_batch_is_computed_once_and_nobody_waits_for_ever(
    data: st.DataObject, preset: str, workers: int, batches: int, epoch: int
) -> None:
    run = in_any_order(data, Run(PRESETS[preset](), workers, batches, epoch))
    assert Counter(each.batch for each in run.computed) == Counter(range(batches))
    assert all(each.tau >= 0 for each in run.computed)


@given(st.data(), WORKERS, BATCHES, st.integers(0, 4))
def test_no_worker_runs_more_than_s_clocks_ahead(
    data: st.DataObject, workers: int, batches: int, slack: int
) -> None:
    run = in_any_order(data, Run(wl.ssp(slack=slack), workers, batches, epoch=batches))
    assert run.furthest_ahead <= slack


@given(st.data(), WORKERS, BATCHES, EPOCH)
def test_bsp_computes_every_gradient_of_a_group_at_the_groups_version(
    data: st.DataObject, workers: int, batches: int, epoch: int
) -> None:
    run = in_any_order(data, Run(wl.bsp(), workers, batches, epoch))
    assert all(each.tau == 0 for each in run.computed)
    groups = [
        list(range(first, min(first + workers, start + epoch, batches)))
        for start in range(0, batches, epoch)
        for first in range(start, min(start + epoch, batches), workers)
    ]
    for version, group in enumerate(groups):
        assert sorted(each.batch for each in run.computed if each.version == version) == group
    assert run.version == len(groups)


@given(st.data(), WORKERS, BATCHES, st.integers(1, 5))
def test_softsync_makes_an_update_of_every_c_gradients(
    data: st.DataObject, workers: int, batches: int, updates_per_round: int
) -> None:
    protocol = wl.softsync(updates_per_round=updates_per_round)
    run = in_any_order(data, Run(protocol, workers, batches, epoch=batches))
    size = max(1, workers // updates_per_round)
    assert (run.version, len(run.group)) == divmod(batches, size)


SYNCED = sorted(name for name in PRESETS if "sync_every" in parameters(PRESETS[name]))


@given(st.data(), st.sampled_from(SYNCED), WORKERS, BATCHES, st.integers(0, 20))
def test_exactly_the_pushes_asked_for_lie_between_two_syncs_and_none_is_computed_across_one(
    data: st.DataObject, preset: str, workers: int, batches: int, extra: int
) -> None:
    every = workers + extra
    run = in_any_order(data, Run(PRESETS[preset](sync_every=every), workers, batches, epoch=batches))
    assert run.syncs == list(range(every, batches, every))
    updates = -(-every // run.size)  # between two syncs; the last of them perhaps of fewer gradients
    for each in run.computed:
        since = each.batch // every * updates
        assert since <= each.version < since + updates


def answers_of(pull: object, openings: list[Opening]) -> list[str]:
    """The requests of one loop whose gate answers thus; every claim gets the next batch."""
    loop = worker_loop(pull)  # type: ignore[arg-type]
    seen, batch, answer = [], iter(range(100)), None
    gates = iter(openings)
    try:
        while True:
            request = loop.send(answer)
            answer = None
            if isinstance(request, Gate):
                answer = next(gates)
            elif isinstance(request, Claim):
                answer = next(batch)
            else:
                seen.append(type(request).__name__)
    except StopIteration:
        return seen


START, SYNC, END = Opening.START, Opening.SYNC, Opening.END
STEP = [Compute.__name__, Push.__name__]


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("wasp", [Pull.__name__, *STEP] * 3),
        ("hogwild", [Pull.__name__, *STEP] * 3),
        (
            "downpour",
            [Pull.__name__, *[*STEP, LocalStep.__name__] * 2, Pull.__name__, *STEP, LocalStep.__name__],
        ),
    ],
)
def test_a_worker_pulls_when_its_rule_says_so(preset: str, expected: list[str]) -> None:
    protocol = wl.downpour(pull_every=2) if preset == "downpour" else PRESETS[preset]()
    assert answers_of(protocol.pull, [START] * 3 + [END]) == expected


def test_a_forced_sync_is_a_pull() -> None:
    requests = answers_of(wl.wasp().pull, [SYNC, START, SYNC, SYNC, START, END])
    assert requests == [Sync.__name__, *STEP, Sync.__name__, Sync.__name__, *STEP]


def test_a_worker_whose_claim_fails_asks_the_gate_again() -> None:
    loop = worker_loop(wl.wasp().pull)
    assert isinstance(next(loop), Gate)
    assert isinstance(loop.send(START), Claim)
    assert isinstance(loop.send(None), Gate)
