"""Which rules each protocol picks, that what it is told reaches them, and that the docs list it."""

from __future__ import annotations

from pathlib import Path

import pytest

import wasp_local.protocol.presets as presets
from wasp_local.protocol import PRESETS, WEIGHTS, Protocol
from wasp_local.protocol.aggregates import AllWorkers, Single, Softsync
from wasp_local.protocol.gates import Always, Bounded, Lockstep
from wasp_local.protocol.pulls import EveryStep, EverySteps, OnStore
from wasp_local.protocol.syncs import ForcedSync
from wasp_local.protocol.weights import Constant, Exponential, Floored, StalenessAware

DOCS = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text(encoding="utf-8")
SYNC = {"sync_every": 64, "sync_seconds": 2.5}
SYNCED = ForcedSync(64, 2.5)
OTHER = Exponential(0.25)

# every parameter of every protocol is given once, with a value that is no default
PICKS = [
    (presets.wasp(**SYNC), EveryStep(), Always(), Single(), Floored(), SYNCED),
    (presets.wasp(**SYNC, weight=OTHER), EveryStep(), Always(), Single(), OTHER, SYNCED),
    (presets.bsp(), EveryStep(), Lockstep(), AllWorkers(), Constant(), ForcedSync()),
    (presets.asp(), EveryStep(), Always(), Single(), Constant(), ForcedSync()),
    (presets.asp(**SYNC, weight=OTHER), EveryStep(), Always(), Single(), OTHER, SYNCED),
    (presets.hogwild(), OnStore(), Always(), Single(), Constant(), ForcedSync()),
    (presets.ssp(slack=7), EveryStep(), Bounded(7), Single(), Constant(), ForcedSync()),
    (presets.ssp(**SYNC, weight=OTHER), EveryStep(), Bounded(3), Single(), OTHER, SYNCED),
    (presets.downpour(pull_every=9), EverySteps(9), Always(), Single(), Constant(), ForcedSync()),
    (presets.downpour(**SYNC, weight=OTHER), EverySteps(5), Always(), Single(), OTHER, SYNCED),
    (presets.softsync(updates_per_round=4), EveryStep(), Always(), Softsync(4), Constant(), ForcedSync()),
    (presets.softsync(**SYNC, weight=OTHER), EveryStep(), Always(), Softsync(1), OTHER, SYNCED),
    (presets.sa_asgd(), EveryStep(), Always(), Single(), StalenessAware(), ForcedSync()),
    (presets.sa_asgd(**SYNC), EveryStep(), Always(), Single(), StalenessAware(), SYNCED),
]


@pytest.mark.parametrize("pick", PICKS, ids=lambda pick: pick[0].name)
def test_a_protocol_picks_its_rules_and_hands_them_what_it_was_told(pick: tuple[Protocol, ...]) -> None:
    protocol, *rules = pick
    assert [protocol.pull, protocol.gate, protocol.aggregate, protocol.weight, protocol.sync] == rules


def test_every_protocol_of_the_registry_is_public_and_its_picks_are_stated_here() -> None:
    assert set(PRESETS) == set(presets.__all__) - {"PRESETS"} == {protocol.name for protocol, *_ in PICKS}


def test_wasp_synchronises_by_pushes_unless_told_otherwise() -> None:
    assert presets.wasp().sync.pushes is not None
    assert presets.wasp(sync_every=None).sync == ForcedSync()


@pytest.mark.parametrize("name", PRESETS)
def test_the_docs_have_a_row_for_every_protocol(name: str) -> None:
    assert DOCS.count(f"\n| `{name}` |") == 1


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_docs_have_a_row_for_every_weight(name: str) -> None:
    assert DOCS.count(f"\n| `{name}` |") + DOCS.count(f"\n| `{name}:") == 1


def test_as_many_pushes_as_workers_between_two_forced_syncs_are_enough_and_one_less_is_not() -> None:
    presets.wasp(sync_every=8).check_workers(8)
    sentence = (
        r"^sync_every must be at least the number of workers \(8\), got 7: a forced sync waits for every"
    )
    with pytest.raises(ValueError, match=sentence):
        presets.wasp(sync_every=7).check_workers(8)
    presets.wasp(sync_every=None, sync_seconds=1).check_workers(8)


@pytest.mark.parametrize(
    ("arguments", "named", "sentence"),
    [
        ((), {"slak": 3}, r"^ssp\(\) got an unexpected keyword argument 'slak'"),
        ((1, 2, 3.0, OTHER, 5), {}, r"^ssp\(\) too many positional arguments"),
        ((), {"weight": Floored}, r"^weight must be a WeightRule .*, got the class Floored itself"),
        ((), {"weight": "floored"}, r"^weight must be a WeightRule .*, got 'floored'"),
    ],
)
def test_a_protocol_told_something_wrong_says_what(
    arguments: tuple[object, ...], named: dict[str, object], sentence: str
) -> None:
    with pytest.raises(TypeError, match=sentence):
        PRESETS["ssp"](*arguments, **named)
