"""What happens in a run, as plain types: the words of the design, and nothing that acts.

The one thing to know: an event is recorded in the order in which it took effect, so a run can be told again
from its events alone. Everything that reports on a run reads these types and needs no other module of ours.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

WorkerId = NewType("WorkerId", int)  # 0 .. workers - 1
Version = NewType("Version", int)  # how many updates a shard has had
Clock = NewType("Clock", int)  # how many pushes a worker has finished
Tau = NewType("Tau", int)  # staleness: version at the push minus version at the pull
BatchId = NewType("BatchId", int)  # batches of a run are numbered 0, 1, ... over all epochs
ShardId = NewType("ShardId", int)

__all__ = [
    "BatchId",
    "Claim",
    "Clock",
    "Evaluation",
    "Progress",
    "Pull",
    "Push",
    "Restart",
    "ShardId",
    "Sync",
    "Tau",
    "Version",
    "WorkerId",
    "WorkerReport",
]


class Claim(NamedTuple):
    """A worker took a batch; nobody else will get it."""

    worker: WorkerId
    batch: BatchId


class Pull(NamedTuple):
    """A worker copied the store's parameters; `versions` has one entry a shard."""

    worker: WorkerId
    versions: tuple[Version, ...]


class Push(NamedTuple):
    """A worker's gradient took effect; `tau` is the largest over the shards, `weight` the factor it got there."""

    worker: WorkerId
    batch: BatchId
    tau: Tau
    weight: float


class Sync(NamedTuple):
    """All workers stood still and pulled the same versions; `pushes` had been applied by then."""

    number: int
    pushes: int


class Restart(NamedTuple):
    """A worker was started again in place of one that died."""

    worker: WorkerId


class Progress(NamedTuple):
    """How far a run is, read from counters while it goes on."""

    seconds: float  # since all workers could start
    samples: int  # trained on so far, by all workers
    samples_total: int  # when the run is whole
    updates: int  # of the store so far
    epoch: float  # passes over the training data so far
    loss: (
        float | None
    )  # mean training loss over the samples since the previous Progress; None before the first push
    accuracy: float | None  # test accuracy at the latest evaluation, 0..1
    staleness: float  # mean tau of all pushes so far
    samples_per_second: float  # since the previous Progress


class Evaluation(NamedTuple):
    """The test set seen by the parameters of one forced sync."""

    seconds: float
    samples: int
    updates: int
    epoch: float
    loss: float  # mean over the test samples
    accuracy: float | None  # 0..1; None where output and target are not a classification


class WorkerReport(NamedTuple):
    """What one worker did and where its time went, in seconds."""

    worker: WorkerId
    pid: int
    cores: tuple[int, ...]  # the cores it may run on, as the kernel has them
    threads: int  # compute threads
    pushes: int
    samples: int
    data: float
    pull: float
    compute: float
    push: float
    wait: float
    evaluate: float = 0.0  # its share of the test set, in forced syncs
