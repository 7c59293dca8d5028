"""What a worker is given arrives as it was: tensors and their sharing, code and its lines."""

from __future__ import annotations

import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from processes import fork, wait
from torch import nn

from wasp_local.workers import payload


def through(value: Any) -> Any:
    segment = payload.dump(value)
    try:
        return payload.load(segment.fd)
    finally:
        segment.close()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4),
        torch.randn(4, 6)[:, ::2],
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.zeros(0, 3),
        torch.tensor(2.5),
        torch.arange(5),
        torch.randn(3).bfloat16(),
        torch.randn(3, requires_grad=True),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}",
)
def test_a_tensor_arrives_with_its_values_and_layout(tensor: torch.Tensor) -> None:
    arrived = through(tensor)
    assert torch.equal(arrived, tensor)
    assert arrived.stride() == tensor.stride()
    assert (arrived.dtype, arrived.requires_grad) == (tensor.dtype, tensor.requires_grad)


def test_tensors_that_share_memory_still_do() -> None:
    base = torch.zeros(6)
    arrived = through({"whole": base, "part": base[2:4]})
    arrived["part"].fill_(1)
    assert arrived["whole"].tolist() == [0, 0, 1, 1, 0, 0]


def test_tied_parameters_are_still_one() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    arrived = through(model)
    assert arrived[0].weight is arrived[1].weight
    assert isinstance(arrived[0].weight, nn.Parameter)


def test_a_workers_changes_are_its_own() -> None:
    segment = payload.dump(torch.zeros(1000))

    def change() -> None:
        arrived = payload.load(segment.fd)
        arrived.fill_(1)
        assert arrived.sum() == 1000

    assert wait(fork(change)) == [0]
    assert payload.load(segment.fd).sum() == 0
    segment.close()


def test_a_large_tensor_lies_in_the_segment_once_and_not_in_the_stream() -> None:
    tensor = torch.zeros(2**20)
    segment = payload.dump([tensor, tensor, tensor.view(2, -1)])
    assert segment.nbytes < 1.1 * tensor.nbytes
    segment.close()


def test_a_function_keeps_its_file_and_lines() -> None:
    def fail() -> None:
        raise LookupError("here")  # this comment is in the traceback

    arrived = through(fail)
    assert arrived is not fail
    with pytest.raises(LookupError, match="here") as caught:
        arrived()
    assert "this comment is in the traceback" in "".join(traceback.format_exception(caught.value))


def test_a_function_that_speaks_of_classes_can_be_sent() -> None:
    def count(data: Any) -> Any:
        return torch.zeros(data.classes)

    assert through(count)(types.SimpleNamespace(classes=3)).shape == (3,)


@pytest.fixture
def unimportable() -> Any:
    """A module that a fresh process could not import."""
    module = types.ModuleType("nowhere_to_be_found")
    exec("class Held:\n    value = 7\ndef answer():\n    return Held.value", module.__dict__)
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_what_cannot_be_imported_travels_whole(unimportable: Any) -> None:
    segment = payload.dump((unimportable.answer, unimportable.Held))

    def load_elsewhere() -> None:
        del sys.modules[unimportable.__name__]
        answer, held = payload.load(segment.fd)
        assert (answer(), held.value) == (7, 7)

    assert wait(fork(load_elsewhere)) == [0]
    segment.close()


def test_cloudpickle_is_left_as_it_was(unimportable: Any) -> None:
    import cloudpickle

    through(unimportable.answer)
    assert cloudpickle.list_registry_pickle_by_value() == set()


@pytest.mark.parametrize("value", [lambda: 3, nn.Linear(2, 2)], ids=["lambda", "model"])
def test_there_is_no_reason_against_what_can_be_sent(value: Callable[..., Any]) -> None:
    assert payload.unpicklable_reason(value) is None


def test_the_reason_against_what_cannot_be_sent_is_told() -> None:
    import threading

    assert "cannot pickle '_thread.lock' object" in str(payload.unpicklable_reason(threading.Lock()))
