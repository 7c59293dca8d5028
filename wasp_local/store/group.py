"""Several gradients to one update: workers lay theirs side by side, the one that completes the group applies it.

The one thing to know: the gradients are summed in the order of their batches, not of their arrival, so that a
group of the same batches gives the same bits whoever computed them and whenever they came.

word     | written by         | read by     | order relied on               | after a kill it means
lock     | holder             | all         | robust: freed by the kernel   | the counts may be one behind
RESERVED | holder of the lock | depositors  | -                             | places given out
READY    | holder of the lock | depositors  | after the place is filled     | places filled
SIZE     | holder of the lock | depositors  | with RESERVED = READY = 0     | how many make the group
place k  | who reserved it    | who applies | filled before READY counts it | a gradient, whole if counted

A group is full from the last deposit until it has been applied; whoever wants to deposit meanwhile waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from wasp_local.errors import BrokenInvariant
from wasp_local.shm.arena import Arena
from wasp_local.shm.bell import Bell
from wasp_local.shm.mutex import RobustMutex
from wasp_local.shm.segment import Segment
from wasp_local.store.layout import ShardPlan, view_slot
from wasp_local.store.optimizer import Gradients

__all__ = ["Deposit", "GradientGroup", "GroupPlan", "plan_group", "reduce_group"]

_RESERVED, _READY, _SIZE = 0, 1, 2


Gradient = Sequence[Gradients]  # of one batch: for each shard its parameters' gradients


class GroupPlan(NamedTuple):
    """Where the places of a group lie."""

    lock: int
    words: int
    notes: int
    gradients: tuple[tuple[int, ...], ...]  # [place][shard]
    covered: tuple[tuple[int, ...], ...]  # [place][shard]
    shards: tuple[ShardPlan, ...]
    capacity: int


class Deposit(NamedTuple):
    """What stands beside a deposited gradient."""

    batch: int
    samples: int  # 0: the batch was skipped and has no gradient
    pulled: int  # version its parameters had


def plan_group(arena: Arena, shards: Sequence[ShardPlan], capacity: int) -> GroupPlan:
    """Reserve room for `capacity` gradients."""
    return GroupPlan(
        lock=arena.take(RobustMutex.SIZE),
        words=arena.take(3 * 8),
        notes=arena.take(capacity * len(Deposit._fields) * 8),
        gradients=tuple(tuple(arena.take(shard.nbytes) for shard in shards) for _ in range(capacity)),
        covered=tuple(tuple(arena.take(8 * len(shard.slots)) for shard in shards) for _ in range(capacity)),
        shards=tuple(shards),
        capacity=capacity,
    )


class GradientGroup:
    """The group as one process sees it.

    Args:
        segment: the shared memory.
        plan: what lies where.
        bell: rung when a group has been applied.
        still_wanted: called while waiting; raises to give up.
        apply: applies a full group, given its notes and gradients; called by one worker at a time.
        next_size: how many gradients the group after this one takes; called when one has been applied.
    """

    def __init__(
        self,
        segment: Segment,
        plan: GroupPlan,
        bell: Bell,
        still_wanted: Callable[[], None],
        apply: Callable[[Sequence[Deposit], Sequence[Gradient]], None],
        next_size: Callable[[], int],
    ) -> None:
        self._lock = RobustMutex(segment, plan.lock)
        self._words = segment.words(plan.words, 3)
        self._notes = segment.words(plan.notes, plan.capacity * len(Deposit._fields))
        self._places = [_place(segment, plan, index) for index in range(plan.capacity)]
        self._bell = bell
        self._still_wanted = still_wanted
        self._apply = apply
        self._next_size = next_size

    def initialise(self) -> None:
        """Make the lock; once, by the process that made the segment."""
        self._lock.initialise()

    def open(self, size: int) -> None:
        """Say how many gradients the present, empty group takes."""
        self._words[_SIZE] = size
        self._bell.fence()
        self._bell.ring()

    def deposit(self, gradient: Gradient, note: Deposit, commit: Callable[[], None]) -> None:
        """Add a gradient to the group; the deposit that completes the group applies it.

        Args:
            gradient: copied.
            note: what stands beside it.
            commit: called once when the gradient counts as pushed.
        """
        place = self._reserve()
        _fill(self._places[place], gradient)
        width = len(Deposit._fields)
        for index, number in enumerate(note):
            self._notes[place * width + index] = number
        self._acquire()
        try:
            self._words[_READY] += 1
            commit()
            full = self._words[_READY] == self._words[_SIZE]
        finally:
            self._lock.release()
        if full:
            self._apply_and_empty()

    def flush(self) -> None:
        """Apply what is there though the group is not full; only while nobody deposits (in a forced sync).

        A full group is being applied by whoever completed it: that is waited for, not done again.
        """
        while True:
            self._acquire()
            try:
                ready = self._words[_READY]
                if ready and ready < self._words[_SIZE]:
                    self._words[_SIZE] = ready
                    self._apply_and_empty(locked=True)
                    return
            finally:
                self._lock.release()
            if not ready:
                return
            self._bell.wait(self._not_full, self._still_wanted)

    def _not_full(self) -> bool:
        """Nobody is applying the group; empty is not full even where the next one takes nothing (the run's end)."""
        ready = self._words[_READY]
        return ready == 0 or ready < self._words[_SIZE]

    def _reserve(self) -> int:
        while True:
            self._acquire()
            try:
                place = self._words[_RESERVED]
                if place < self._words[_SIZE]:
                    self._words[_RESERVED] = place + 1
                    return place
            finally:
                self._lock.release()
            self._bell.wait(lambda: self._words[_RESERVED] < self._words[_SIZE], self._still_wanted)

    def _apply_and_empty(self, locked: bool = False) -> None:
        count = self._words[_READY]
        width = len(Deposit._fields)
        notes = [Deposit(*self._notes[place * width : (place + 1) * width]) for place in range(count)]
        self._apply(notes, [_gradient(place) for place in self._places[:count]])
        if not locked:
            self._acquire()
        try:
            self._words[_READY] = 0
            self._words[_SIZE] = self._next_size()
            self._words[_RESERVED] = 0
        finally:
            if not locked:
                self._lock.release()
        self._bell.ring()

    def _acquire(self) -> None:
        if self._lock.acquire(self._still_wanted):
            self._lock.release()
            raise BrokenInvariant(
                "a worker died while it added its gradient to a group, which may be one short"
            )


class _Place(NamedTuple):
    views: tuple[tuple[torch.Tensor, ...], ...]  # [shard][slot]
    covered: tuple[memoryview, ...]  # [shard][slot]


def _place(segment: Segment, plan: GroupPlan, index: int) -> _Place:
    views, covered = [], []
    for at, flags_at, shard in zip(plan.gradients[index], plan.covered[index], plan.shards, strict=True):
        flat = segment.tensor(at, shard.elements, shard.dtype)
        views.append(tuple(view_slot(flat, slot) for slot in shard.slots))
        covered.append(segment.words(flags_at, len(shard.slots)))
    return _Place(tuple(views), tuple(covered))


@torch.no_grad()
def _fill(place: _Place, gradient: Gradient) -> None:
    for views, covered, gradients in zip(place.views, place.covered, gradient, strict=True):
        for index, each in enumerate(gradients):
            covered[index] = each is not None
            if each is not None:
                views[index].copy_(each)


def _gradient(place: _Place) -> Gradient:
    return [
        [view if there else None for view, there in zip(views, covered, strict=True)]
        for views, covered in zip(place.views, place.covered, strict=True)
    ]


def reduce_group(
    notes: Sequence[Deposit], gradients: Sequence[Gradient], weights: Sequence[float]
) -> tuple[Gradient, float]:
    """The mean of a group's gradients, weighted by samples and staleness weight, and the mean weight.

    Their product is sum(samples * weight * gradient) / sum(samples), summed in the order of the batches. A
    parameter is covered if any gradient covers it, those that don't counting as zero, as in one large batch.
    """
    order = sorted(range(len(notes)), key=lambda index: notes[index].batch)
    shares = [notes[index].samples * weights[index] for index in order]
    total = sum(shares)
    if total == 0:
        return gradients[0], 0.0
    if len(order) == 1:
        return gradients[0], weights[0]
    mean = [
        [
            _weighted_sum(
                [gradients[index][shard][slot] for index in order], [each / total for each in shares]
            )
            for slot in range(len(gradients[0][shard]))
        ]
        for shard in range(len(gradients[0]))
    ]
    return mean, total / sum(note.samples for note in notes)


def _weighted_sum(members: Sequence[torch.Tensor | None], factors: Sequence[float]) -> torch.Tensor | None:
    total = None
    for member, factor in zip(members, factors, strict=True):
        if member is not None:
            total = member * factor if total is None else total.add_(member, alpha=factor)
    return total
