"""What a user may give as data, what it becomes, and the batches taken from it."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from wasp_local.data.tensors import LiveData, Normalise, TensorData, decode

INPUTS = torch.arange(40, dtype=torch.float32).reshape(10, 4)
TARGETS = torch.arange(10)
ROWS = np.array([7, 0, 7])


class Items(Dataset):
    """A map-style data set that computes its items, and counts how often it is read."""

    def __init__(self, item, length=10):
        self.item = item
        self.length = length
        self.reads = 0

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.reads += 1
        return self.item(index)


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(INPUTS[0], 0)])


def assert_holds(data, inputs=INPUTS, targets=TARGETS):
    assert isinstance(data, TensorData)
    torch.testing.assert_close(data.inputs, inputs, rtol=0, atol=0)
    torch.testing.assert_close(data.targets, targets, rtol=0, atol=0)


@pytest.mark.parametrize(
    "given",
    [
        (INPUTS, TARGETS),
        [INPUTS, TARGETS],
        (INPUTS.numpy(), TARGETS.numpy()),
        (INPUTS, TARGETS.numpy()),
        TensorDataset(INPUTS, TARGETS),
        Items(lambda index: (INPUTS[index], TARGETS[index])),
        Items(lambda index: (INPUTS[index].numpy(), index)),
        [(INPUTS[index], index) for index in range(10)],
        TensorData(INPUTS, TARGETS),
    ],
    ids=[
        "tensors",
        "list",
        "arrays",
        "mixed",
        "TensorDataset",
        "items",
        "array items",
        "list of items",
        "decoded",
    ],
)
def test_the_same_data_in_any_form_becomes_the_same_tensors(given):
    assert_holds(decode(given))


def test_tensors_and_arrays_are_not_copied():
    data = decode((INPUTS, TARGETS.numpy()))
    assert data.inputs.data_ptr() == INPUTS.data_ptr()
    assert data.targets.data_ptr() == TARGETS.data_ptr()


def test_an_array_that_torch_cannot_share_is_copied():
    backwards, frozen = INPUTS.numpy()[::-1], TARGETS.numpy().copy()
    frozen.flags.writeable = False
    assert_holds(decode((backwards, frozen)), INPUTS.flip(0))


def test_items_are_decoded_once():
    items = Items(lambda index: (INPUTS[index % 10], index), length=1000)
    data = decode(items)
    reads = items.reads
    data.batch(ROWS)
    assert reads == items.reads < 1000 + 2 * 64 + 2
    assert data.targets.tolist() == list(range(1000))


def test_nan_in_an_item_is_not_taken_for_chance():
    assert isinstance(decode(Items(lambda index: (torch.tensor(float("nan")), index))), TensorData)


@pytest.mark.parametrize(
    "draw",
    [random.random, np.random.rand, lambda: torch.rand(())],
    ids=["random", "numpy", "torch"],
)
def test_random_items_are_read_anew_for_each_batch_and_set_by_its_seed(draw):
    data = decode(Items(lambda index: (torch.tensor(float(draw())), index), length=100))
    assert isinstance(data, LiveData)
    inputs, targets = data.batch(ROWS, seed=1)
    assert targets.tolist() == ROWS.tolist()
    torch.testing.assert_close(data.batch(ROWS, seed=1)[0], inputs, rtol=0, atol=0)
    assert not torch.equal(data.batch(ROWS, seed=2)[0], inputs)


def test_rare_chance_is_seen_in_a_small_data_set():
    """Three items that are flipped now and then: reading each twice once would often see no flip."""
    for seed in range(20):
        random.seed(seed)
        flipped = Items(lambda index: (torch.tensor([1.0, 2.0]).roll(random.randrange(2)), index), length=3)
        assert isinstance(decode(flipped), LiveData)


def test_decoding_leaves_the_generators_as_they_were():
    def state():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = state()
    decode(Items(lambda index: (torch.rand(2) + random.random() + np.random.rand(), index)))
    assert state() == before


def test_a_batch_has_the_rows_asked_for_and_is_a_copy():
    inputs, targets = TensorData(INPUTS, TARGETS).batch(ROWS)
    assert targets.tolist() == [7, 0, 7]
    torch.testing.assert_close(inputs, INPUTS[[7, 0, 7]], rtol=0, atol=0)
    inputs.zero_()
    assert INPUTS[7].sum() > 0


def test_bytes_are_normalised_as_a_batch_is_taken():
    pixels = torch.arange(256, dtype=torch.uint8).reshape(4, 1, 8, 8)
    inputs, _ = TensorData(pixels, torch.arange(4), Normalise(0.1307, 0.3081)).batch(np.array([3, 1]))
    assert inputs.dtype == torch.float32
    torch.testing.assert_close(inputs, (pixels[[3, 1]] / 255 - 0.1307) / 0.3081, rtol=1e-6, atol=1e-6)


def test_decoded_data_pickles():
    data = pickle.loads(pickle.dumps(TensorData(INPUTS, TARGETS, Normalise(0.5, 0.25))))
    assert_holds(data)
    assert data.normalise == Normalise(0.5, 0.25)
    assert repr(data) == "<10 samples of 4, float32>"


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ((INPUTS, TARGETS[:9]), ValueError, "^train must have as many .* got 10 inputs and 9 targets$"),
        (
            (INPUTS[:0], TARGETS[:0]),
            ValueError,
            r"^train must have at least one sample, got inputs .*\(0, 4\)$",
        ),
        ((INPUTS.to("meta"), TARGETS), ValueError, r"^train must be on the CPU, got inputs on meta"),
        (INPUTS, TypeError, "^train must be a pair .* got Tensor$"),
        (([1, 2], [3, 4]), TypeError, "^train must be a pair .* got tuple$"),
        ({"inputs": INPUTS}, TypeError, "^train must be a pair .* got dict$"),
        (iter([]), TypeError, "^train must be a pair .* got list_iterator$"),
        (None, TypeError, "^train must be a pair .* got NoneType$"),
        (Stream(), TypeError, r"^train must have items by index, .* Stream: pass list\(train\)"),
        (DataLoader([(INPUTS[0], 0)], batch_size=5), TypeError, "DataLoader: pass .* batch_size=5$"),
        ([], ValueError, "^train must have at least one sample, got an empty list$"),
        (
            Items(lambda index: index),
            TypeError,
            r"^train must have items \(input, target\), got .* int from Items$",
        ),
        (
            Items(lambda index: (INPUTS[0, : index % 3], 0)),
            TypeError,
            "^train must have items .* equal shapes",
        ),
        (
            Items(lambda index: (INPUTS[0, : 1 + index // 256], 0), 512),
            TypeError,
            r"^train must have .* items 256 to 511 are torch.float32 of shape \(2,\), those before .* \(1,\)$",
        ),
        (
            Items(lambda index: ("text", index)),
            TypeError,
            r"^train must have items of tensors, .* got \(str, int\)$",
        ),
        (Items(lambda index: (None, index)), TypeError, "^train must have items of tensors, .*NoneType"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_in_one_sentence(wrong, error, message):
    with pytest.raises(error, match=message):
        decode(wrong, "train")
