"""Data sets by name: the digits that are in the package, and the whole of MNIST from its files.

The one thing to know: images stay bytes, and are normalised as a batch is taken; the split of the digits into
train and test is fixed, and `digits.txt` beside them says which and where they come from.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from wasp_local.data import mnist
from wasp_local.data.tensors import Normalise, TensorData

__all__ = ["DATASETS", "Loaded", "load"]

DATASETS = ("digits", "mnist")
PIXELS = Normalise(mean=0.1307, std=0.3081)  # of MNIST's training images
PARTS = tuple(mnist.FILES)  # train_images, train_labels, test_images, test_labels


class Loaded(NamedTuple):
    """A data set."""

    name: str
    train: TensorData
    test: TensorData
    classes: int
    input_shape: tuple[int, ...]  # (channels, height, width)


def load(name: str, root: Path | str | None = None, download: bool = False) -> Loaded:
    """Return the data set of this name.

    Args:
        name: "digits" (in the package) or "mnist".
        root: for mnist the folder in which torchvision keeps it: the files are in `root`/MNIST/raw.
        download: fetch those files of mnist that are not there.

    Raises:
        DataError: a file is missing, damaged or cannot be fetched.
        ValueError: there is no such data set, or the arguments are not for it.
    """
    if name == "digits":
        if root is not None or download:
            raise ValueError(
                "dataset digits is in the package, got a root or download for it: leave them out"
            )
        return _digits()
    if name == "mnist":
        if root is None:
            raise ValueError("dataset mnist needs root, the folder that holds MNIST/raw, got None")
        return _mnist(mnist.raw_folder(Path(root)), download)
    raise ValueError(f"dataset must be one of {', '.join(DATASETS)}, got {name!r}")


def _digits() -> Loaded:
    with (
        resources.files("wasp_local.data").joinpath("digits.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        return _loaded("digits", arrays.__getitem__)


def _mnist(folder: Path, download: bool) -> Loaded:
    if download:
        mnist.fetch_missing(folder)
    return _loaded("mnist", lambda part: mnist.read(folder, mnist.FILES[part]))


def _loaded(name: str, array_of: Callable[[str], NDArray[np.uint8]]) -> Loaded:
    """The data set whose four parts `array_of` returns."""
    train_images, train_labels, test_images, test_labels = map(array_of, PARTS)
    return Loaded(
        name,
        _labelled(train_images, train_labels),
        _labelled(test_images, test_labels),
        classes=10,
        input_shape=(1, *train_images.shape[1:]),
    )


def _labelled(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> TensorData:
    return TensorData(
        torch.from_numpy(images.copy()).unsqueeze(1), torch.from_numpy(labels.astype(np.int64)), PIXELS
    )
