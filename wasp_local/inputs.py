"""What a user gives to `Trainer` and `launch`, checked and made into what a run needs.

The one thing to know: everything here happens before a worker starts, and a mistake is one sentence of
`TypeError` or `ValueError` that names the argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from wasp_local.protocol import Protocol
from wasp_local.protocol.presets import PRESETS, wasp
from wasp_local.workers import payload

__all__ = ["as_protocol", "built_optimizer", "built_scheduler", "check_sendable", "checked_model"]


def checked_model(model: Any) -> torch.nn.Module:
    """The model, if it can be trained here.

    Raises:
        TypeError, ValueError: it is no module, or has parameters that cannot be shared.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            raise ValueError(
                f"model has a parameter without a shape yet, {name!r}: run one batch through the model first"
            )
        if parameter.device.type != "cpu":
            raise ValueError(
                f"model must be on the CPU, got parameter {name!r} on {parameter.device}: call model.cpu()"
            )
        if not parameter.is_floating_point():
            raise ValueError(
                f"model must have parameters of a float dtype, got {name!r} of dtype {parameter.dtype}"
            )
    for name, module in model.named_modules():
        if getattr(module, "sparse", False) and isinstance(
            module, torch.nn.Embedding | torch.nn.EmbeddingBag
        ):
            raise ValueError(f"model must have embeddings with sparse=False, got sparse=True in {name!r}")
    return model


def built_optimizer(optimizer: Any, model: torch.nn.Module) -> Optimizer:
    """The user's optimizer, or what the user's callable makes of `model.parameters()`."""
    made = optimizer
    if not isinstance(optimizer, Optimizer) and callable(optimizer):
        made = optimizer(model.parameters())
    if not isinstance(made, Optimizer):
        raise TypeError(
            "optimizer must be a torch.optim.Optimizer over model.parameters() or a function that builds one "
            f"from them, got {type(made).__name__}"
        )
    for index, group in enumerate(made.param_groups):
        if not 0 <= float(group["lr"]) < float("inf"):
            raise ValueError(
                f"optimizer must have a finite lr of at least 0, got {float(group['lr'])} in param group {index}"
            )
    return made


def built_scheduler(scheduler: Any, optimizer: Optimizer) -> LRScheduler | None:
    """The user's learning-rate scheduler over this optimizer, or what the user's callable makes of it."""
    if scheduler is None:
        return None
    made = scheduler
    if not isinstance(scheduler, LRScheduler) and callable(scheduler):
        made = scheduler(optimizer)
    if not isinstance(made, LRScheduler):
        raise TypeError(
            "scheduler must be a torch.optim.lr_scheduler over the optimizer or a function that builds one "
            f"from it, got {type(made).__name__}"
        )
    if made.optimizer is not optimizer:
        raise ValueError(
            "scheduler must be built over the optimizer that the run is given, got one over another"
        )
    return made


def as_protocol(protocol: Any) -> Protocol:
    """A protocol, a preset's name, or None for `wasp()`."""
    if protocol is None:
        return wasp()
    if isinstance(protocol, str):
        if protocol not in PRESETS:
            raise ValueError(f"protocol must be one of {', '.join(PRESETS)}, got {protocol!r}")
        return PRESETS[protocol]()
    if not isinstance(protocol, Protocol):
        raise TypeError(
            f"protocol must be a preset such as wasp(sync_every=256) or its name, got {type(protocol).__name__}"
        )
    return protocol


def check_sendable(arguments: Mapping[str, Any], error: Exception) -> Exception:
    """Which of the arguments made pickling fail with `error`, as an error to raise."""
    for name, value in arguments.items():
        reason = payload.unpicklable_reason(value)
        if reason is not None:
            return TypeError(f"{name} cannot be sent to a worker process: {reason}")
    return error
