"""Bad input: one sentence that says what was wrong, the value got and what would be right, before any worker starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import psutil
import pytest
import torch
from runs import classes, perceptron
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import wasp_local as wl


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


def trainer(**told: Any) -> wl.Trainer:
    model = told.pop("model", None) or perceptron()
    optimizer = told.pop("optimizer", None) or SGD(model.parameters(), 0.1)
    return wl.Trainer(model, optimizer=optimizer, **{"quiet": True, "workers": 2, **told})


WRONG_SETTINGS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"workers": 0}, ValueError, r"workers must be at least 1 .*, got 0"),
    ({"workers": 2.5}, TypeError, r"workers must be a whole number.*, got 2\.5"),
    ({"workers": True}, TypeError, r"workers must be a whole number.*, got True"),
    ({"batch_size": 0}, ValueError, r"batch_size must be at least 1.*, got 0"),
    ({"epochs": 0}, ValueError, r"epochs must be at least 1.*, got 0"),
    (
        {"epochs": 1, "steps": 1},
        ValueError,
        r"only one of epochs, steps and samples .* got epochs=1 and steps=1",
    ),
    ({"seed": -1}, ValueError, r"seed must be at least 0.*, got -1"),
    ({"target_accuracy": 98}, ValueError, r"target_accuracy must be above 0 and at most 1.*, got 98"),
    ({"target_accuracy": float("nan")}, ValueError, r"target_accuracy must be a finite number.*, got nan"),
    (
        {"consistency": "strict"},
        ValueError,
        r"consistency must be one of locked, snapshot, hogwild.*'strict'",
    ),
    (
        {"protocol": "hogwild", "consistency": "locked"},
        ValueError,
        r"consistency must be 'hogwild' with protocol",
    ),
    ({"protocol": "wesp"}, ValueError, r"protocol must be one of .*wasp.*, got 'wesp'"),
    ({"protocol": 3}, TypeError, r"protocol must be a preset .*, got int"),
    (
        {"start_method": "thread"},
        ValueError,
        r"start_method must be one of forkserver, spawn, fork.*'thread'",
    ),
    (
        {"start_method": "fork", "threads": 2},
        ValueError,
        r"threads must be 1 with start_method 'fork', got 2",
    ),
    ({"loss": "mse"}, TypeError, r"loss must be callable, got str"),
    ({"callbacks": [3]}, TypeError, r"callbacks must be callable, got int"),
    ({"optimizer": "adam"}, TypeError, r"optimizer must be a torch\.optim\.Optimizer .*, got str"),
    ({"scheduler": 3}, TypeError, r"scheduler must be a torch\.optim\.lr_scheduler .*, got int"),
    ({"speed": 3}, TypeError, r"unexpected keyword argument 'speed'"),
]


@pytest.mark.parametrize(("told", "kind", "sentence"), WRONG_SETTINGS, ids=lambda value: str(value)[:40])
def test_a_wrong_setting_is_refused_at_once(
    told: dict[str, Any], kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        trainer(**told)


def test_a_forced_sync_before_every_worker_pushed_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"sync_every must be at least the number of workers \(8\), got 4: a forced"
    ):
        trainer(workers=8, protocol=wl.wasp(sync_every=4))


def test_a_learning_rate_that_is_no_number_is_refused() -> None:
    model = perceptron()
    optimizer = SGD(model.parameters(), 0.1)
    optimizer.param_groups[0]["lr"] = float("nan")
    with pytest.raises(ValueError, match=r"optimizer must have a finite lr .*, got nan in param group 0"):
        trainer(model=model, optimizer=optimizer)


def test_a_scheduler_over_another_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match="scheduler must be built over the optimizer that the run is given"):
        trainer(scheduler=StepLR(SGD(perceptron().parameters(), 0.1), 1))


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(3))


def on_meta() -> nn.Module:
    return nn.Linear(6, 3, device="meta")


def complex_numbers() -> nn.Module:
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    return model


def sparse() -> nn.Module:
    return nn.Sequential(nn.Embedding(4, 2, sparse=True))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lazy, "without a shape yet, '0.weight': run one batch through the model first"),
        (on_meta, "model must be on the CPU, got parameter 'weight' on meta"),
        (
            complex_numbers,
            "model must have parameters of a float dtype, got 'weight' of dtype torch.complex64",
        ),
        (sparse, "model must have embeddings with sparse=False, got sparse=True in '0'"),
    ],
)
def test_a_model_that_cannot_be_shared_is_refused(make: Any, sentence: str) -> None:
    model = make()
    with pytest.raises(ValueError, match=sentence):
        wl.Trainer(model, optimizer=lambda parameters: SGD(parameters, 0.1), workers=2)


def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got str"):
        wl.Trainer("resnet", optimizer=SGD(perceptron().parameters(), 0.1))  # type: ignore[arg-type]


DATA = classes()
WRONG_DATA: list[tuple[Any, type[Exception], str]] = [
    (
        (DATA[0], DATA[1][:5]),
        ValueError,
        r"train must have as many targets as inputs, got 96 inputs and 5 targets",
    ),
    ((torch.zeros(0, 6), torch.zeros(0)), ValueError, r"train must have at least one sample"),
    (
        DataLoader(TensorDataset(*DATA), batch_size=4),
        TypeError,
        r"train must be the data set itself, got a DataLoader",
    ),
    (Endless(), TypeError, r"train must have items by index"),
    ("mnist", TypeError, r"train must be a pair"),
    ([1, 2, 3], TypeError, r"train must have items \(input, target\)"),
    ((DATA[0][:5], DATA[1][:5]), ValueError, r"batch_size must be .*5.*got 64"),
]


@pytest.mark.parametrize(("data", "kind", "sentence"), WRONG_DATA, ids=lambda value: type(value).__name__)
def test_data_that_cannot_be_used_are_refused(data: Any, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        trainer().fit(data)
    assert psutil.Process().children() == []


def test_what_needs_a_test_set_says_so() -> None:
    with pytest.raises(ValueError, match=r"target_accuracy=0\.9 needs a test set"):
        trainer(target_accuracy=0.9).fit(classes())
    with pytest.raises(ValueError, match="ReduceLROnPlateau needs a test set"):
        trainer(scheduler=lambda optimizer: ReduceLROnPlateau(optimizer)).fit(classes())


def test_an_optimizer_over_another_model_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"optimizer must be built over model\.parameters\(\), got a tensor of shape"
    ):
        trainer(optimizer=SGD(perceptron().parameters(), 0.1)).fit(classes())


def test_a_model_with_nothing_to_train_is_refused() -> None:
    model = perceptron().requires_grad_(False)
    with pytest.raises(
        ValueError, match="optimizer must hold parameters of the model that require a gradient"
    ):
        trainer(model=model).fit(classes())


def test_an_output_folder_that_cannot_be_written_is_refused(tmp_path: Any) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match="out must be a folder that can be written to"):
        trainer(out=file).fit(classes())


def test_arrays_serve_as_well_as_tensors() -> None:
    inputs, targets = (np.asarray(each) for each in classes())
    assert trainer(steps=2, threads=1).fit((inputs, targets)).updates == 2


@pytest.mark.parametrize(("samples", "workers", "batch_size"), [(3, 4, 2), (33, 2, 16), (101, 3, 16)])
def test_data_smaller_than_a_round_of_batches_train(samples: int, workers: int, batch_size: int) -> None:
    result = trainer(workers=workers, threads=1, epochs=2, batch_size=batch_size).fit(classes(samples))
    assert result.samples == 2 * samples
