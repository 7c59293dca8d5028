from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from wasp_local.store.layout import plan_shards, view_slot

SHAPES = st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), min_size=1, max_size=8)


@given(SHAPES, st.integers(64, 4096))
def test_every_parameter_has_elements_of_its_own_on_a_cache_line_of_its_own(
    shapes: list[tuple[int, ...]], shard_bytes: int
) -> None:
    named = [(str(index), torch.zeros(shape)) for index, shape in enumerate(shapes)]
    shards = plan_shards([named], shard_bytes)
    assert [slot.name for shard in shards for slot in shard.slots] == [name for name, _ in named]
    for shard in shards:
        end = 0
        for slot in shard.slots:
            assert slot.offset * 4 % 64 == 0
            assert slot.offset >= end
            end = slot.offset + slot.numel
        assert end <= shard.elements


@given(SHAPES)
def test_a_view_has_the_parameters_shape_and_writes_through(shapes: list[tuple[int, ...]]) -> None:
    (shard,) = plan_shards([[(str(index), torch.zeros(shape)) for index, shape in enumerate(shapes)]])
    flat = torch.zeros(shard.elements)
    for value, slot in enumerate(shard.slots, start=1):
        view = view_slot(flat, slot)
        assert tuple(view.shape) == slot.shape
        view.fill_(value)
    assert flat.sum() == sum(value * slot.numel for value, slot in enumerate(shard.slots, start=1))


def test_a_shard_holds_one_dtype_of_one_param_group() -> None:
    one, half = torch.zeros(3), torch.zeros(3, dtype=torch.float16)
    shards = plan_shards([[("a", one), ("b", half)], [("c", one.clone())]])
    assert [(shard.group, shard.dtype, len(shard.slots)) for shard in shards] == [
        (0, torch.float32, 1),
        (0, torch.float16, 1),
        (1, torch.float32, 1),
    ]


def test_a_parameter_larger_than_a_shard_gets_one_of_its_own() -> None:
    named = [("small", torch.zeros(4)), ("large", torch.zeros(1000)), ("last", torch.zeros(4))]
    assert [[slot.name for slot in shard.slots] for shard in plan_shards([named], 256)] == [
        ["small"],
        ["large"],
        ["last"],
    ]


def test_channels_last_keeps_its_order_of_elements() -> None:
    weight = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    (shard,) = plan_shards([[("weight", weight)]])
    view = view_slot(torch.zeros(shard.elements), shard.slots[0])
    assert view.stride() == weight.stride()


def test_a_view_with_gaps_becomes_dense() -> None:
    (shard,) = plan_shards([[("weight", torch.randn(6, 8)[:, ::2])]])
    assert view_slot(torch.zeros(shard.elements), shard.slots[0]).is_contiguous()
