"""Models by name: LeNet-5 here, the rest of image classification from torchvision."""

from __future__ import annotations

import difflib

from torch import nn

__all__ = ["LeNet5", "build", "lenet5"]


class LeNet5(nn.Sequential):
    """What `lenet5` builds; a name for reports."""


def lenet5(classes: int = 10, channels: int = 1) -> nn.Module:
    """LeNet-5 (LeCun, Bottou, Bengio, Haffner 1998) with max pooling and ReLU, for images of 28 x 28.

    With one channel and ten classes it has 61,706 parameters.
    """
    return LeNet5(
        nn.Conv2d(channels, 6, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def build(name: str, classes: int, channels: int) -> nn.Module:
    """The model of this name.

    Args:
        name: "lenet5", or a classification model of torchvision such as "resnet18".
        classes: how many outputs it has.
        channels: of its input; torchvision's models take 3.

    Raises:
        ValueError: there is no such model, or it does not take so many channels.
    """
    if name == "lenet5":
        return lenet5(classes, channels)
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        near = difflib.get_close_matches(name, ["lenet5", *known], n=3)
        hint = f", did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"model must be lenet5 or a classification model of torchvision, got {name!r}{hint}")
    if channels != 3:
        raise ValueError(f"model {name} takes images of 3 channels, got data with {channels}: use lenet5")
    model: nn.Module = models.get_model(name, weights=None, num_classes=classes)
    return model
