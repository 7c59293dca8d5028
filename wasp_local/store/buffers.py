"""A model's buffers (running statistics and the like): each worker's own between syncs, one for all at a sync.

The one thing to know: buffers have no gradients, so pushes don't carry them. In a forced sync each worker lays
its buffers down, the coordinator makes the common ones, and all workers take those up. Float buffers become the
mean over the workers; integer ones (BatchNorm's `num_batches_tracked`) grow by what all workers counted.

memory | written by                 | read by     | order relied on                 | after a kill it means
own[i] | worker i, task GATHER      | coordinator | whole before done[i] says so    | last that worker i laid down
common | coordinator, between tasks | workers     | whole before task PULL is asked | buffers of the last sync
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from wasp_local.shm.arena import Arena
from wasp_local.shm.segment import Segment

__all__ = ["BufferPlan", "SharedBuffers", "plan_buffers"]


class BufferPlan(NamedTuple):
    """Names, dtypes and sizes of the buffers, and the offsets of the common and of each worker's copy."""

    names: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    shapes: tuple[tuple[int, ...], ...]
    common: tuple[int, ...]
    own: tuple[tuple[int, ...], ...]  # [worker][buffer]


def plan_buffers(arena: Arena, model: torch.nn.Module, workers: int) -> BufferPlan:
    """Reserve room for the model's non-empty buffers, once for all and once a worker."""
    named = [(name, buffer) for name, buffer in model.named_buffers() if buffer.numel()]

    def reserve() -> tuple[int, ...]:
        return tuple(arena.take(buffer.numel() * buffer.element_size()) for _, buffer in named)

    return BufferPlan(
        tuple(name for name, _ in named),
        tuple(buffer.dtype for _, buffer in named),
        tuple(tuple(buffer.shape) for _, buffer in named),
        reserve(),
        tuple(reserve() for _ in range(workers)),
    )


class SharedBuffers:
    """The buffers as one process sees them."""

    def __init__(self, segment: Segment, plan: BufferPlan, model: torch.nn.Module) -> None:
        self._segment = segment
        self._plan = plan
        self._model = model
        self._common = self._tensors(plan.common)
        self._counts_from = self._copies()

    def __bool__(self) -> bool:
        return bool(self._plan.names)

    def initialise(self) -> None:
        """Coordinator, before the workers start: the model's own buffers are the common ones."""
        self._copy(self._model_buffers(), self._common)

    def lay_down(self, worker: int) -> None:
        """A worker's buffers, for the coordinator to join: of integer ones what they grew since taken up."""
        own = self._tensors(self._plan.own[worker])
        self._copy(self._model_buffers(), own)
        for tensor, start in zip(own, self._counts_from, strict=True):
            if _counts(tensor):
                tensor.sub_(start)

    @torch.no_grad()
    def take_up(self, keep_growth: bool = False) -> None:
        """Make the common buffers the model's.

        Args:
            keep_growth: what integer buffers grew here was not laid down yet and stays on top; for a worker that
                was away during a sync.
        """
        mine = self._model_buffers()
        growths = [
            buffer - start for buffer, start in zip(mine, self._counts_from, strict=True) if _counts(buffer)
        ]
        self._copy(self._common, mine)
        self._counts_from = self._copies()
        if keep_growth:
            counted = [buffer for buffer in mine if _counts(buffer)]
            for buffer, growth in zip(counted, growths, strict=True):
                buffer.add_(growth)

    @torch.no_grad()
    def join(self, workers: Sequence[int]) -> None:
        """Coordinator: make common buffers of those that `workers` laid down."""
        owned = [self._tensors(self._plan.own[worker]) for worker in workers]
        for index, common in enumerate(self._common):
            members = [tensors[index] for tensors in owned]
            if _counts(common):
                common.add_(torch.stack(members).sum(0))
            elif common.dtype != torch.bool:
                common.copy_(members[0] if len(members) == 1 else torch.stack(members).mean(0))

    def _copies(self) -> list[torch.Tensor]:
        return [buffer.detach().clone() for buffer in self._model_buffers()]

    def _model_buffers(self) -> list[torch.Tensor]:
        # looked up anew each time: a module may replace a buffer rather than write into it
        named = dict(self._model.named_buffers())
        return [named[name] for name in self._plan.names]

    def _tensors(self, offsets: Sequence[int]) -> list[torch.Tensor]:
        plan = self._plan
        return [
            self._segment.tensor(at, torch.Size(shape).numel(), dtype).view(shape)
            for at, shape, dtype in zip(offsets, plan.shapes, plan.dtypes, strict=True)
        ]

    @staticmethod
    @torch.no_grad()
    def _copy(sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> None:
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)


def _counts(buffer: torch.Tensor) -> bool:
    return not (buffer.is_floating_point() or buffer.is_complex() or buffer.dtype == torch.bool)
