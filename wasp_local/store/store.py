"""The parameter store: the one shared copy of parameters and optimizer state, in shards with versions and locks.

The one thing to know: a push holds a shard's lock for the fused update alone and a pull for one copy; nothing
else ever runs under it but the few arithmetic steps that turn a staleness into a weight. It knows nothing of
protocols or workers: whoever pushes says what a staleness weighs and what the push commits.

word         | written by           | read by     | order relied on                  | after a kill it means
lock         | holder               | all         | robust: freed by the kernel      | its shard may be half-updated
version      | holder of the lock   | all         | stored after the update is whole | updates that the shard had whole
counts[p]    | pusher p (hogwild)   | all         | stored after the update          | pushes of p that took effect

Consistency, chosen for a run:
- locked: each shard's lock is held for its copy or its update, so a pull sees whole updates of each shard;
- snapshot: one lock for all shards, so a pull sees one version of the whole model;
- hogwild: no lock at all; a pull may see part of an update, and two updates at once may lose part of one.

This code assumes: all pushes visit the shards in the same order, and the staleness of a push is read once, at the
first shard, so that a push has one staleness, one weight, and is dropped whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from wasp_local.errors import BrokenInvariant
from wasp_local.shm.arena import Arena
from wasp_local.shm.mutex import RobustMutex
from wasp_local.shm.segment import Segment
from wasp_local.store.layout import ShardPlan
from wasp_local.store.optimizer import Gradients, OptimizerRecipe, ShardMemory, ShardOptimizer
from wasp_local.store.schedule import Schedule, SchedulePlan

__all__ = ["ParameterStore", "ShardBytes", "StorePlan", "plan_store"]

StillWanted = Callable[[], None]


class ShardBytes(NamedTuple):
    """Where one shard lies in the segment."""

    lock: int
    version: int
    started: int
    params: int
    state: tuple[tuple[str, int], ...]
    scalars: tuple[tuple[str, int], ...]


class StorePlan(NamedTuple):
    """The store's layout, plain enough to be sent to another process."""

    shards: tuple[ShardPlan, ...]
    places: tuple[ShardBytes, ...]
    recipe: OptimizerRecipe
    schedule: SchedulePlan
    consistency: str
    counts: int
    pushers: int


def plan_store(
    arena: Arena,
    shards: Sequence[ShardPlan],
    recipe: OptimizerRecipe,
    schedule: SchedulePlan,
    consistency: str,
    pushers: int,
) -> StorePlan:
    """Reserve the store's bytes."""
    places = tuple(_plan_shard(arena, shard, recipe) for shard in shards)
    counts = arena.take(8 * pushers)
    return StorePlan(tuple(shards), places, recipe, schedule, consistency, counts, pushers)


def _plan_shard(arena: Arena, shard: ShardPlan, recipe: OptimizerRecipe) -> ShardBytes:
    schema = recipe.schema(shard.group, shard.dtype)
    return ShardBytes(
        lock=arena.take(RobustMutex.SIZE),
        version=arena.take(8),
        started=arena.take(8 * len(shard.slots)),
        params=arena.take(shard.nbytes),
        state=tuple((name, arena.take(shard.nbytes)) for name in schema.elementwise),
        scalars=tuple((name, arena.take(4 * len(shard.slots))) for name in schema.scalars),
    )


class ParameterStore:
    """The store as one process sees it.

    Args:
        segment: the shared memory.
        plan: what lies where.
        still_wanted: called while waiting for a lock; raises to give up.
    """

    def __init__(self, segment: Segment, plan: StorePlan, still_wanted: StillWanted) -> None:
        self.plan = plan
        self._still_wanted = still_wanted
        self._locks = [RobustMutex(segment, place.lock) for place in plan.places]
        self._versions = [segment.words(place.version, 1) for place in plan.places]
        self._counts = segment.words(plan.counts, plan.pushers)
        self.memories = tuple(
            _shard_memory(segment, shard, place)
            for shard, place in zip(plan.shards, plan.places, strict=True)
        )
        self._optimizers: list[ShardOptimizer] | None = None
        self.schedule = Schedule(segment, plan.schedule)
        self._hogwild = plan.consistency == "hogwild"
        self._snapshot = plan.consistency == "snapshot"

    def initialise(self) -> None:
        """Make the locks; once, by the process that made the segment, before any other attaches."""
        for lock in self._locks:
            lock.initialise()

    @property
    def params(self) -> tuple[torch.Tensor, ...]:
        """Each shard's flat parameters, in shared memory."""
        return tuple(memory.params for memory in self.memories)

    def version(self) -> int:
        """How many updates the model has had: at the first shard, or in Hogwild summed over who pushed."""
        return sum(self._counts) if self._hogwild else self._versions[0][0]

    def versions(self) -> tuple[int, ...]:
        """Each shard's version, read without a lock."""
        if self._hogwild:
            return (self.version(),) * len(self._versions)
        return tuple(version[0] for version in self._versions)

    def pull(self, into: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """Copy every shard into the tensors of a replica and return the versions they had."""
        if self._hogwild:
            versions = self.versions()
            for target, source in zip(into, self.params, strict=True):
                target.copy_(source)
            return versions
        versions = ()
        with self._walk() as walk:
            for shard, target in enumerate(into):
                walk.step_to(shard)
                target.copy_(self.memories[shard].params)
                versions += (self._versions[shard][0],)
        return versions

    def push(
        self,
        gradient: Sequence[Gradients],
        pulled: int,
        weigh: Callable[[int], float],
        commit: Callable[[int, float], None],
        pusher: int,
        refresh: Sequence[torch.Tensor] | None = None,
    ) -> tuple[int, ...]:
        """Apply one gradient to every shard, and pull on the way if asked to.

        Args:
            gradient: for each shard its parameters' gradients; scaled in place by the weight.
            pulled: the first shard's version when the parameters of this gradient were pulled.
            weigh: staleness to weight; called once, with the first shard held. 0 drops the gradient.
            commit: called once with staleness and weight when all of the update is in place, with the last shard
                still held; what it writes is what makes the push have happened.
            pusher: who pushes, 0 .. pushers - 1.
            refresh: the pusher's replica, to be pulled shard by shard while each is held and warm in the cache;
                the same as a pull right after this push, at the price of the copy alone.

        Returns:
            The versions that `refresh` now has, empty without it.
        """
        versions: tuple[int, ...] = ()
        with self._walk() as walk:
            walk.step_to(0)
            tau = self.version() - pulled
            weight = weigh(tau)
            for shard, memory in enumerate(self.memories):
                walk.step_to(shard)
                if weight > 0:
                    self._update(shard, gradient[shard], weight)
                walk.keep_going()
                if refresh is not None:
                    refresh[shard].copy_(memory.params)
                    versions += (self._versions[shard][0],)
            if self._hogwild and weight > 0:
                self._counts[pusher] += 1
            commit(tau, weight)
        return versions

    def _update(self, shard: int, gradients: Gradients, weight: float) -> None:
        version = self._versions[shard]
        plan = self.plan.shards[shard]
        settings = self.schedule.at(self.version() if self._hogwild else version[0], plan.group)
        self._optimizer(shard).step(gradients, weight, settings)
        version[0] += 1

    def _optimizer(self, shard: int) -> ShardOptimizer:
        if self._optimizers is None:
            self._optimizers = [
                ShardOptimizer(self.plan.recipe, plan, memory)
                for plan, memory in zip(self.plan.shards, self.memories, strict=True)
            ]
        return self._optimizers[shard]

    def _walk(self) -> _Walk:
        if self._hogwild:
            return _Walk([], self._still_wanted)
        return _Walk(self._locks[:1] if self._snapshot else self._locks, self._still_wanted)


class _Walk:
    """Goes over the shards in order, holding what guards each: its lock, one lock for all, or nothing."""

    def __init__(self, locks: Sequence[RobustMutex], still_wanted: StillWanted) -> None:
        self._locks = locks
        self._still_wanted = still_wanted
        self._held = -1

    def __enter__(self) -> _Walk:
        return self

    def step_to(self, shard: int) -> None:
        if shard == self._held or shard >= len(self._locks):
            return
        self._release()
        if self._locks[shard].acquire(self._still_wanted):
            self._locks[shard].release()
            raise BrokenInvariant(
                f"a worker died while it updated shard {shard} of the parameter store, which may be half-updated"
            )
        self._held = shard

    def keep_going(self) -> None:
        """From here on nothing may give up: half a push is worse than none."""
        self._still_wanted = _always_wanted

    def __exit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        if self._held >= 0:
            self._locks[self._held].release()
            self._held = -1


def _always_wanted() -> None:
    """A lock whose holder is stopped is waited for; one that has died is told of at once."""


def _shard_memory(segment: Segment, shard: ShardPlan, place: ShardBytes) -> ShardMemory:
    return ShardMemory(
        params=segment.tensor(place.params, shard.elements, shard.dtype),
        state={name: segment.tensor(at, shard.elements, shard.dtype) for name, at in place.state},
        scalars={name: segment.tensor(at, len(shard.slots), torch.float32) for name, at in place.scalars},
        started=segment.words(place.started, len(shard.slots)),
    )
