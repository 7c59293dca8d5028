"""One contract for every rule and every protocol, taken from the registries: one that nobody tested can't exist."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wasp_local.protocol.aggregates
import wasp_local.protocol.gates
import wasp_local.protocol.pulls
import wasp_local.protocol.syncs
import wasp_local.protocol.weights
from wasp_local.params import parameters
from wasp_local.protocol import PRESETS, WEIGHTS, Protocol, parse_weight, rules

MODULES = [
    wasp_local.protocol.aggregates,
    wasp_local.protocol.gates,
    wasp_local.protocol.pulls,
    wasp_local.protocol.syncs,
    wasp_local.protocol.weights,
]
NAMES: dict[str, Any] = {"Protocol": Protocol}
for _module in MODULES:
    NAMES |= {name: getattr(_module, name) for name in _module.__all__}
RULES = [kind for kind in NAMES.values() if isinstance(kind, type) and kind is not Protocol]


class Seen:
    """A run of N workers whose pushes so far had these staleness values."""

    def __init__(self, workers: int, taus: tuple[int, ...] = (0,)) -> None:
        self.workers, self.taus = workers, taus

    def share_fresher(self, tau: int) -> float:
        below = sum(each < tau for each in self.taus)
        return (below + self.taus.count(tau) / 2) / len(self.taus)


def test_every_weight_of_the_module_is_registered() -> None:
    kinds = {name for name in wasp_local.protocol.weights.__all__ if name[0].isupper() and name != "WEIGHTS"}
    assert {kind.__name__ for kind in WEIGHTS.values()} == kinds


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
def test_a_rule_is_a_frozen_value_that_pickles_and_whose_repr_rebuilds_it(kind: Any) -> None:
    rule = kind()
    assert pickle.loads(pickle.dumps(rule)) == rule == eval(repr(rule), NAMES)
    assert hash(rule) == hash(kind())
    with pytest.raises(AttributeError):
        rule.anything = 1


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
def test_every_parameter_of_a_rule_says_what_it_means_and_is_bounded(kind: Any) -> None:
    for name, parameter in parameters(kind).items():
        assert parameter.help, name
        assert parameter.bounds, name
        with pytest.raises(ValueError, match=f"^{name} must be"):
            kind(**{name: -1})
        with pytest.raises(ValueError, match=f"^{name} must be|finite"):
            kind(**{name: math.nan if parameter.type is float else -5})
        with pytest.raises(TypeError, match=f"^{name} must be"):
            kind(**{name: "much"})


@pytest.mark.parametrize("name", PRESETS)
def test_a_protocol_pickles_and_its_repr_rebuilds_it(name: str) -> None:
    protocol = PRESETS[name]()
    assert pickle.loads(pickle.dumps(protocol)) == protocol == eval(repr(protocol), NAMES)
    assert protocol.name == name
    assert str(protocol).startswith(f"{name} (")
    assert PRESETS[name].__doc__


@pytest.mark.parametrize("name", PRESETS)
def test_every_parameter_of_a_protocol_says_what_it_means_and_is_checked(name: str) -> None:
    for parameter in parameters(PRESETS[name]).values():
        assert parameter.help
        with pytest.raises(TypeError, match=f"^{parameter.name} must be"):
            PRESETS[name](**{parameter.name: "much"})
        if parameter.bounds:
            with pytest.raises(ValueError, match=f"^{parameter.name} must be"):
                PRESETS[name](**{parameter.name: -1})


@pytest.mark.parametrize("name", PRESETS)
def test_one_worker_is_never_held_up_alone_and_its_gradients_count_in_full(name: str) -> None:
    protocol = PRESETS[name]()

    class Alone:
        clock = fewest_clock = 7
        claimed, round_end = 7, 8

    assert protocol.gate.may_start(Alone())
    assert protocol.aggregate.gradients(1) == 1
    assert protocol.weight(0, Seen(1)) == 1
    protocol.check_workers(1)


@pytest.mark.parametrize("name", WEIGHTS)
@given(st.integers(0, 10**6), st.integers(1, 4096), st.lists(st.integers(0, 100), min_size=1, max_size=20))
def test_a_weight_is_a_finite_factor_and_the_same_each_time(
    name: str, tau: int, workers: int, taus: list[int]
) -> None:
    rule = WEIGHTS[name]()
    seen = Seen(workers, tuple(taus))
    factor = rule(tau, seen)
    assert math.isfinite(factor)
    assert 0 <= factor <= 2
    assert factor == rule(tau, seen)


EXTREMES = [
    ("polynomial", (0,)),
    ("polynomial", (1e308,)),
    ("exponential", (0,)),
    ("exponential", (1e308,)),
    ("hinge", (1e308, 0)),
    ("hinge", (5e-324, 10**9)),
    ("drop_stale", (1,)),
    ("drop_stale", (10**9,)),
    ("tail", (0,)),
    ("tail", (1,)),
]


@pytest.mark.parametrize(("name", "values"), EXTREMES)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 100), min_size=1, max_size=20))
def test_a_weight_stays_a_finite_factor_at_the_ends_of_its_parameters(
    name: str, values: tuple[float, ...], tau: int, taus: list[int]
) -> None:
    factor = WEIGHTS[name](*values)(tau, Seen(4, tuple(taus)))
    assert math.isfinite(factor)
    assert 0 <= factor <= 2


@pytest.mark.parametrize("name", WEIGHTS)
@given(st.integers(1, 1000))
def test_one_workers_gradients_count_in_full_under_every_weight(name: str, pushes: int) -> None:
    assert WEIGHTS[name]()(0, Seen(1, (0,) * pushes)) == 1


@pytest.mark.parametrize("name", [name for name in WEIGHTS if name != "tail"])
@given(st.integers(0, 1000), st.integers(1, 64))
def test_a_later_gradient_never_counts_for_more(name: str, tau: int, workers: int) -> None:
    rule = WEIGHTS[name]()
    assert rule(tau + 1, Seen(workers)) <= rule(tau, Seen(workers))


FORMULAS = {
    "constant": lambda tau, n: 1.0,
    "inverse": lambda tau, n: 1 / (1 + tau),
    "floored": lambda tau, n: min(1 / n, 1 / (1 + tau)),
    "staleness_aware": lambda tau, n: 1.0 if tau == 0 else 1 / tau,
    "polynomial": lambda tau, n: 1 / math.sqrt(1 + tau),
    "hinge": lambda tau, n: 1.0 if tau <= 4 else 1 / (10 * (tau - 4) + 1),
    "exponential": lambda tau, n: math.exp(-tau / 10),
    "delay_adaptive": lambda tau, n: min(1.0, n / tau) if tau else 1.0,
    "drop_stale": lambda tau, n: float(tau < 16),
    "tail": lambda tau, n: 1 + (1 - 2 * Seen(n, (0, 1, 1, 5)).share_fresher(tau)),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_each_weight_is_its_papers_formula(name: str) -> None:
    for tau in range(40):
        for workers in (1, 4, 16):
            factor = WEIGHTS[name]()(tau, Seen(workers, (0, 1, 1, 5)))
            assert factor == pytest.approx(FORMULAS[name](tau, workers))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=50), st.floats(0, 1))
def test_tails_weights_have_a_mean_of_one_over_what_was_seen(taus: list[int], amplitude: float) -> None:
    rule = WEIGHTS["tail"](amplitude)
    seen = Seen(4, tuple(taus))
    assert sum(rule(tau, seen) for tau in taus) / len(taus) == pytest.approx(1)


def test_n_gradients_of_one_snapshot_sum_to_one_under_the_floor_and_to_more_without() -> None:
    seen = Seen(16)
    assert sum(WEIGHTS["floored"]()(tau, seen) for tau in range(16)) == pytest.approx(1)
    assert sum(WEIGHTS["inverse"]()(tau, seen) for tau in range(16)) == pytest.approx(3.38, abs=0.01)


@pytest.mark.parametrize(
    ("text", "rule"),
    [("polynomial:0.25", "Polynomial(exponent=0.25)"), ("hinge:3:2", "Hinge(slope=3.0, bound=2)")],
)
def test_a_weight_can_be_named_with_its_parameters(text: str, rule: str) -> None:
    assert repr(parse_weight(text)) == rule


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("polinomial", "weight must be one of constant, .*got 'polinomial'"),
        ("inverse:3", "weight inverse takes 0 parameters after its name, got 'inverse:3'"),
        ("hinge:x", r"weight hinge must have a number for slope .*, got 'x'"),
        ("drop_stale:1.5", r"weight drop_stale must have a whole number for bound .*, got '1\.5'"),
        ("exponential:-1", r"rate must be at least 0 .*, got -1\.0"),
    ],
)
def test_a_weight_that_is_none_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_weight(text)


def test_the_contract_is_stated_for_each_of_the_five_rules() -> None:
    for name in ("PullRule", "GateRule", "AggregateRule", "WeightRule", "SyncRule"):
        assert getattr(rules, name).__doc__


def test_importing_the_protocols_loads_neither_torch_nor_numpy() -> None:
    script = "import sys, wasp_local.protocol; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
