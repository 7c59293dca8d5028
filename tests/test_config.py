"""What a run is told: wrong values are refused in one sentence, and what was left open is settled."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
import torch

import wasp_local as wl
from wasp_local.config import DEFAULT_EPOCHS, DEFAULT_LR, OptimizerConfig, RunConfig


def told(**settings: Any) -> RunConfig:
    return RunConfig(**{"workers": 2, **settings})


@pytest.mark.parametrize(
    ("settings", "kind", "sentence"),
    [
        ({"workers": 0}, ValueError, r"workers must be at least 1 \(processes .*\), got 0"),
        ({"workers": 2.0}, TypeError, r"workers must be a whole number \(.*\), got 2\.0"),
        ({"workers": True}, TypeError, "workers must be a whole number .*, got True"),
        ({"protocol": "wasp"}, TypeError, "protocol must be a Protocol .*, got 'wasp'"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1 .*, got 0"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1 .*, got 0"),
        ({"steps": -1}, ValueError, "steps must be at least 1 .*, got -1"),
        ({"samples": 1.5}, TypeError, r"samples must be a whole number or None .*, got 1\.5"),
        ({"seed": -1}, ValueError, "seed must be at least 0 and at most 4294967295 .*, got -1"),
        ({"target_accuracy": 98}, ValueError, "target_accuracy must be above 0 and at most 1 .*, got 98"),
        ({"target_accuracy": math.nan}, ValueError, "target_accuracy must be a finite number .*, got nan"),
        ({"threads": 0}, ValueError, "threads must be at least 1 .*, got 0"),
        (
            {"consistency": "strict"},
            ValueError,
            "consistency must be one of locked, snapshot, hogwild .*'strict'",
        ),
        (
            {"start_method": "thread"},
            ValueError,
            "start_method must be one of forkserver, spawn, fork .*'thread'",
        ),
        ({"pin": 1}, TypeError, "pin must be True or False .*, got 1"),
        ({"out": 7}, TypeError, "out must be a Path or None .*, got 7"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_the_value_and_what_would_be_right(settings, kind, sentence):
    with pytest.raises(kind, match=f"^{sentence}$") as refused:
        told(**settings)
    assert "\n" not in str(refused.value)


def test_only_one_length_may_be_given():
    with pytest.raises(
        ValueError, match=r"only one of epochs, steps and samples .* got epochs=3 and samples=10"
    ):
        told(epochs=3, samples=10)


def test_without_a_length_a_run_has_the_usual_epochs():
    assert told().epochs == DEFAULT_EPOCHS
    assert told(steps=7).epochs is None
    assert told(samples=7).epochs is None


def test_a_protocol_that_asks_for_more_syncs_than_workers_can_follow_is_refused():
    with pytest.raises(ValueError, match=r"sync_every must be at least the number of workers \(8\), got 4"):
        told(workers=8, protocol=wl.wasp(sync_every=4))


def test_the_consistency_is_the_protocols_own_unless_given():
    assert told().consistency == "locked"
    assert told(consistency="snapshot").consistency == "snapshot"
    assert told(protocol=wl.hogwild()).consistency == "hogwild"
    assert told(protocol=wl.asp(), consistency="hogwild").consistency == "hogwild"


@pytest.mark.parametrize("consistency", ["locked", "snapshot"])
def test_hogwild_has_no_pull_to_guard(consistency):
    with pytest.raises(ValueError, match="consistency must be 'hogwild' with protocol hogwild"):
        told(protocol=wl.hogwild(), consistency=consistency)


def test_a_forked_worker_has_one_thread():
    assert told(start_method="fork").threads == 1
    assert told(start_method="fork", threads=1).threads == 1
    with pytest.raises(ValueError, match="threads must be 1 with start_method 'fork', got 2"):
        told(start_method="fork", threads=2)


def test_a_folder_may_be_given_as_text():
    assert told(out="runs").out == Path("runs")


def test_a_config_stays_as_it_was_checked():
    with pytest.raises(FrozenInstanceError, match="workers"):
        told().workers = 0  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(told(out="runs"))) == told(out="runs")


def test_a_config_as_json_rebuilds_the_run():
    values = json.loads(json.dumps(told(out="runs", target_accuracy=0.9).as_dict()))
    assert values["protocol"] == repr(wl.wasp())
    assert told(**{**values, "protocol": wl.wasp()}) == told(out="runs", target_accuracy=0.9)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lr": math.nan}, "lr must be a finite number .*, got nan"),
        ({"lr": 0.0}, r"lr must be above 0 .*, got 0\.0"),
        ({"momentum": 1.0}, r"momentum must be at least 0 and below 1 .*, got 1\.0"),
        ({"weight_decay": -0.1}, r"weight_decay must be at least 0 .*, got -0\.1"),
        ({"optimizer": "lbfgs"}, "optimizer must be one of sgd, adam, adamw .*, got 'lbfgs'"),
        (
            {"optimizer": "adam", "momentum": 0.9},
            "momentum is a parameter of optimizer sgd, got optimizer adam",
        ),
        ({"optimizer": "adamw", "nesterov": True}, "nesterov is a parameter of optimizer sgd, got .* adamw"),
        ({"nesterov": True, "momentum": 0.0}, r"nesterov needs a momentum above 0, got 0\.0"),
    ],
)
def test_a_wrong_optimizer_is_refused(settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        OptimizerConfig(**settings)


@pytest.mark.parametrize(
    ("name", "kind"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_an_optimizer_is_built_by_name_with_its_own_defaults(name, kind):
    built = OptimizerConfig(optimizer=name).build([torch.nn.Parameter(torch.zeros(1))])
    assert type(built) is kind
    assert built.defaults["lr"] == DEFAULT_LR[name]
    assert built.defaults["weight_decay"] == (0.01 if name == "adamw" else 0.0)


def test_an_optimizer_is_built_as_it_was_told():
    told = OptimizerConfig(lr=0.3, momentum=0.8, nesterov=True, weight_decay=0.02)
    built = told.build([torch.nn.Parameter(torch.zeros(1))])
    assert {name: built.defaults[name] for name in ("lr", "momentum", "nesterov", "weight_decay")} == {
        "lr": 0.3,
        "momentum": 0.8,
        "nesterov": True,
        "weight_decay": 0.02,
    }
    assert told.as_dict()["momentum"] == 0.8
