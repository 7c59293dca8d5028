"""Models by name."""

from __future__ import annotations

import pytest
import torch

from wasp_local.models import build, lenet5


def test_lenet5_is_lenet5():
    model = lenet5()
    assert sum(parameter.numel() for parameter in model.parameters()) == 61_706
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_a_model_has_the_classes_and_channels_asked_for():
    assert build("lenet5", classes=7, channels=3)(torch.zeros(2, 3, 28, 28)).shape == (2, 7)


def test_torchvisions_models_are_built_by_name_with_new_weights():
    model = build("squeezenet1_1", classes=5, channels=3)
    assert model.eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 5)


def test_the_seed_of_torch_sets_the_first_weights():
    weights = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        weights.append(build("lenet5", classes=10, channels=1)[0].weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("name", "channels", "message"),
    [
        ("lenet", 1, r"^model must be lenet5 or .* got 'lenet', did you mean lenet5 or"),
        ("resnet5", 3, r"^model must be .* got 'resnet5', did you mean resnet50 or"),
        ("no such thing", 3, r"^model must be .* got 'no such thing'$"),
        ("fcn_resnet50", 3, r"^model must be lenet5 or a classification model"),
        ("resnet18", 1, r"^model resnet18 takes images of 3 channels, got data with 1: use lenet5$"),
    ],
)
def test_what_is_no_model_for_the_data_is_refused_in_one_sentence(name, channels, message):
    with pytest.raises(ValueError, match=message):
        build(name, classes=10, channels=channels)
