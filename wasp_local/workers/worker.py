"""What a `train_fn` gets: batches to train on and a `step` that pushes a gradient.

The one thing to know: `Trainer` uses this very object with a `train_fn` of its own, so that there is one way from
a batch to a push.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from wasp_local.data.plan import BatchPlan
from wasp_local.data.seeds import batch_seed
from wasp_local.data.tensors import LiveData, TensorData, decode
from wasp_local.workers.control_block import Spent
from wasp_local.workers.driver import Driver, Span

__all__ = ["Worker"]


class Worker:
    """One worker of a run, as the user's `train_fn(worker)` sees it.

    Attributes:
        id: this worker's number, 0 .. workers - 1.
        workers: how many there are.
        model: this worker's replica of the model, in training mode; its parameters follow the store.
        seed: the run's seed.
    """

    def __init__(self, driver: Driver, model: torch.nn.Module, seed: int) -> None:
        self.id = driver.worker
        self.workers = driver.workers
        self.model = model
        self.seed = seed
        self._driver = driver
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._batches_before = 0

    def batches(
        self,
        data: Any,
        *,
        batch_size: int = 64,
        epochs: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the batches that this worker gets; each batch of an epoch goes to exactly one worker.

        Every worker must call this with the same arguments, and as often. The order is set by the run's seed, the
        same for any number of workers. Call `step` once for each batch; one that is not stepped is skipped.

        Args:
            data: a pair (inputs, targets) of tensors or arrays, or a map-style dataset of such items.
            batch_size: samples a batch.
            epochs: passes over the data.
            shuffle: a new order each epoch; False keeps the data's own.
            drop_last: leave out an epoch's last batch if it is smaller.

        Raises:
            TypeError, ValueError: the data or numbers cannot be used.
        """
        decoded = decode(data)
        plan = BatchPlan.for_epochs(
            samples=len(decoded),
            batch_size=batch_size,
            epochs=epochs,
            seed=self.seed,
            shuffle=shuffle,
            drop_last=drop_last,
        )
        span = Span(self._batches_before, plan, held=False)
        self._batches_before = span.end
        return self.follow(span, decoded)

    def follow(self, span: Span, data: TensorData | LiveData) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the batches of a planned span; `batches` and the trainer both come here."""
        generator = torch.default_generator
        for batch in self._driver.batches(span):
            seed = batch_seed(self.seed, batch)
            generator.manual_seed(seed)
            fetched = data.batch(span.plan.indices(batch - span.first), seed)
            for parameter in self._parameters:
                parameter.grad = None
            self._driver.lap(Spent.DATA)
            yield fetched

    def step(self, loss: torch.Tensor) -> None:
        """Compute the gradient of `loss`, a scalar, and push it to the parameter store.

        Raises:
            RuntimeError: called without a batch, or twice for one.
        """
        self._driver.require_batch()
        loss.backward()  # type: ignore[no-untyped-call]
        self._driver.finish_batch(loss.item())
