"""What a run is told: frozen values, each parameter declared once and checked when the value is built.

The one thing to know: a wrong value raises `ValueError` or `TypeError` here, in one sentence, before any worker
starts and before torch is loaded. The same declarations give the command line its flags and help.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from wasp_local.params import about, above, at_least, at_most, below, check_fields, one_of
from wasp_local.protocol import Protocol
from wasp_local.protocol.presets import wasp

if TYPE_CHECKING:
    import torch

__all__ = ["CONSISTENCIES", "LENGTHS", "START_METHODS", "OptimizerConfig", "RunConfig"]

CONSISTENCIES = ("locked", "snapshot", "hogwild")
START_METHODS = ("forkserver", "spawn", "fork")
LENGTHS = ("epochs", "steps", "samples")  # how long a run may be told to go on, each in its own unit

# Chosen so that the command without arguments, LeNet-5 on the embedded digits, is a good run.
DEFAULT_EPOCHS = 10
DEFAULT_BATCH_SIZE = 64
DEFAULT_LR = {"sgd": 0.1, "adam": 0.001, "adamw": 0.001}
DEFAULT_MOMENTUM = {"sgd": 0.5, "adam": None, "adamw": None}
DEFAULT_WEIGHT_DECAY = {"sgd": 0.0, "adam": 0.0, "adamw": 0.01}


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything a run is told. Once built, `consistency` and one of `epochs`, `steps` and `samples` are set."""

    workers: Annotated[int, at_least(1), about("processes that compute gradients")]
    protocol: Annotated[Protocol, about("when workers pull, wait, push and synchronise")] = field(
        default_factory=wasp
    )
    consistency: Annotated[
        str | None,
        one_of(*CONSISTENCIES),
        about(
            "what a pull may see: whole updates of each shard (locked), one version of the whole model (snapshot), "
            "or halves of updates (hogwild)"
        ),
    ] = None
    batch_size: Annotated[int, at_least(1), about("samples of one gradient")] = DEFAULT_BATCH_SIZE
    epochs: Annotated[int | None, at_least(1), about("passes over the training data")] = None
    steps: Annotated[
        int | None, at_least(1), about("updates of the parameters, whichever worker makes them")
    ] = None
    samples: Annotated[int | None, at_least(1), about("samples to train on in all")] = None
    seed: Annotated[
        int, at_least(0), at_most(2**32 - 1), about("sets the first parameters and the order of the samples")
    ] = 0
    target_accuracy: Annotated[
        float | None, above(0), at_most(1), about("end the run when the test accuracy, 0 to 1, reaches this")
    ] = None
    threads: Annotated[int | None, at_least(1), about("compute threads of each worker")] = None
    pin: Annotated[bool, about("keep each worker on cores of its own")] = True
    start_method: Annotated[str, one_of(*START_METHODS), about("how Python starts a worker")] = "forkserver"
    drop_last: Annotated[bool, about("leave out the last batch of an epoch if it is smaller")] = False
    shuffle: Annotated[bool, about("take the samples of each epoch in another order")] = True
    out: Annotated[Path | None, about("folder below which the run gets a folder of its own")] = None
    quiet: Annotated[bool, about("print nothing but errors")] = False

    def __post_init__(self) -> None:
        if isinstance(self.out, str | PathLike):
            object.__setattr__(self, "out", Path(self.out))
        check_fields(self)
        self._settle_length()
        self._settle_consistency()
        self._settle_threads()
        self.protocol.check_workers(self.workers)

    def _settle_length(self) -> None:
        given = {name: getattr(self, name) for name in LENGTHS if getattr(self, name) is not None}
        if len(given) > 1:
            listed = " and ".join(f"{name}={value}" for name, value in given.items())
            raise ValueError(f"only one of epochs, steps and samples can say how long a run is, got {listed}")
        if not given:
            object.__setattr__(self, "epochs", DEFAULT_EPOCHS)

    def _settle_consistency(self) -> None:
        on_store = self.protocol.pull.on_store
        if self.consistency is None:
            object.__setattr__(self, "consistency", "hogwild" if on_store else "locked")
        elif on_store and self.consistency != "hogwild":
            raise ValueError(
                f"consistency must be 'hogwild' with protocol {self.protocol.name}, got {self.consistency!r}: "
                "its workers compute on the store itself, so there is no pull that a lock could guard"
            )

    def _settle_threads(self) -> None:
        if self.start_method == "fork" and self.threads is None:
            object.__setattr__(self, "threads", 1)
        elif self.start_method == "fork" and self.threads != 1:
            raise ValueError(
                f"threads must be 1 with start_method 'fork', got {self.threads}: the compute threads of this "
                "process do not survive a fork, and a worker would wait for them for ever"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the parameters as plain values; the protocol as the text that rebuilds it."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["protocol"] = repr(self.protocol)
        values["out"] = None if self.out is None else str(self.out)
        return values


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """An optimizer by name, for those who type it; in Python give `Trainer` the optimizer itself."""

    optimizer: Annotated[str, one_of(*DEFAULT_LR), about("what turns a gradient into an update")] = "sgd"
    lr: Annotated[float | None, above(0), about("learning rate")] = None
    momentum: Annotated[float | None, at_least(0), below(1), about("momentum of sgd")] = None
    nesterov: Annotated[bool, about("look ahead along the momentum of sgd")] = False
    weight_decay: Annotated[
        float | None, at_least(0), about("how much each update shrinks the parameters")
    ] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.optimizer != "sgd":
            for name, given in (("momentum", self.momentum is not None), ("nesterov", self.nesterov)):
                if given:
                    raise ValueError(
                        f"{name} is a parameter of optimizer sgd, got optimizer {self.optimizer}"
                    )
        for name, default in (
            ("lr", DEFAULT_LR),
            ("momentum", DEFAULT_MOMENTUM),
            ("weight_decay", DEFAULT_WEIGHT_DECAY),
        ):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default[self.optimizer])
        if self.nesterov and not self.momentum:
            raise ValueError(f"nesterov needs a momentum above 0, got {self.momentum}")

    def as_dict(self) -> dict[str, Any]:
        """Return the parameters as plain values; those that the optimizer has not are None."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def build(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimizer over `parameters`."""
        import torch

        given: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay}
        if self.optimizer == "adam":
            return torch.optim.Adam(parameters, **given)
        if self.optimizer == "adamw":
            return torch.optim.AdamW(parameters, **given)
        return torch.optim.SGD(parameters, **given, momentum=self.momentum or 0.0, nesterov=self.nesterov)
