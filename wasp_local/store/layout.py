"""What lies where in the parameter store: parameters grouped into shards, each one flat run of elements.

The one thing to know: every parameter starts on a 64-byte boundary and is padded to a multiple of 64 bytes with
zeros. A fused optimizer kernel then never meets a tail that it would compute with other instructions than the
rest, so one call over a whole shard gives the same bits as torch's loop over the single parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from wasp_local.shm.arena import CACHE_LINE

__all__ = ["SHARD_BYTES", "ShardPlan", "Slot", "plan_shards", "view_slot"]

# A push costs some 50 us of Python a shard whatever its size, a pull holds a shard's lock for its whole copy:
# at 16 MiB (some 3 ms to push) the first is 2 % and the second short beside a step of a model that large.
SHARD_BYTES = 16 * 2**20


class Slot(NamedTuple):
    """One parameter's place in its shard; all counts are in elements."""

    name: str
    offset: int
    numel: int
    padded: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class ShardPlan(NamedTuple):
    """A contiguous run of whole parameters of one dtype and one param group."""

    group: int
    dtype: torch.dtype
    slots: tuple[Slot, ...]
    elements: int

    @property
    def nbytes(self) -> int:
        """Bytes of the shard's parameters, padding included."""
        return self.elements * self.dtype.itemsize


def plan_shards(
    groups: Sequence[Iterable[tuple[str, torch.Tensor]]], shard_bytes: int = SHARD_BYTES
) -> tuple[ShardPlan, ...]:
    """Lay the named parameters of each param group into shards, in the groups' own order.

    Args:
        groups: for each param group of the optimizer, its (name, parameter) pairs.
        shard_bytes: a shard is closed before it would grow beyond this; a larger parameter gets one of its own.
    """
    shards: list[ShardPlan] = []
    for group, members in enumerate(groups):
        by_dtype: dict[torch.dtype, list[tuple[str, torch.Tensor]]] = {}
        for name, parameter in members:
            by_dtype.setdefault(parameter.dtype, []).append((name, parameter))
        for dtype, named in by_dtype.items():
            shards.extend(_fill_shards(group, dtype, named, shard_bytes))
    return tuple(shards)


def _fill_shards(
    group: int, dtype: torch.dtype, named: list[tuple[str, torch.Tensor]], shard_bytes: int
) -> list[ShardPlan]:
    per_line = CACHE_LINE // dtype.itemsize
    shards: list[ShardPlan] = []
    slots: list[Slot] = []
    offset = 0
    for name, parameter in named:
        padded = max(1, -(-parameter.numel() // per_line)) * per_line
        if slots and (offset + padded) * dtype.itemsize > shard_bytes:
            shards.append(ShardPlan(group, dtype, tuple(slots), offset))
            slots, offset = [], 0
        slots.append(
            Slot(name, offset, parameter.numel(), padded, tuple(parameter.shape), _dense_stride(parameter))
        )
        offset += padded
    if slots:
        shards.append(ShardPlan(group, dtype, tuple(slots), offset))
    return shards


def _dense_stride(parameter: torch.Tensor) -> tuple[int, ...]:
    """The parameter's own order of elements (channels-last, say), without gaps or overlaps."""
    return tuple(torch.empty_like(parameter, device="meta").stride())


def view_slot(flat: torch.Tensor, slot: Slot) -> torch.Tensor:
    """The parameter's own shape and stride over its elements of the shard's flat tensor; no copy."""
    return flat[slot.offset : slot.offset + slot.numel].as_strided(
        slot.shape, slot.stride, flat.storage_offset() + slot.offset
    )
