"""torch's fused optimizer kernels, called without an optimizer object.

The one thing to know: a worker never builds a `torch.optim.Optimizer`. Building the first one in a process imports
torch's compiler, a second of start-up for every worker, and its `step` spends three times as long in Python as the
kernel needs. What is passed here is what `torch.optim` itself passes, so the bits are the same as with `fused=True`;
`tests/store/test_kernels.py` holds every option against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer

__all__ = ["KERNELS", "Kernel", "State"]

Tensors = Sequence[torch.Tensor]
State = dict[str, list[torch.Tensor]]


class Kernel(Protocol):
    """One fused update of several parameters."""

    def __call__(
        self,
        params: Tensors,
        gradients: Tensors,
        state: State,
        settings: Mapping[str, Any],
        scale: torch.Tensor | None,
        first: bool,
    ) -> None:
        """Update in place.

        Args:
            params: the parameters.
            gradients: one each; divided in place by `scale` where that is given.
            state: for each name one tensor a parameter.
            settings: the hyperparameters of the param group.
            scale: what the gradients are to be divided by, a float32 scalar.
            first: whether this is the first update of these parameters.
        """


# torch's stubs ask for tuples and lists where its operators take any sequence.
_fused_sgd: Any = torch._fused_sgd_


def _sgd(
    params: Tensors,
    gradients: Tensors,
    state: State,
    settings: Mapping[str, Any],
    scale: torch.Tensor | None,
    first: bool,
) -> None:
    _fused_sgd(
        params,
        gradients,
        state.get("momentum_buffer", []),
        weight_decay=settings["weight_decay"],
        momentum=settings["momentum"],
        lr=settings["lr"],
        dampening=settings["dampening"],
        nesterov=settings["nesterov"],
        maximize=settings["maximize"],
        is_first_step=first and settings["momentum"] != 0,
        grad_scale=scale,
        found_inf=None,
    )


def _adam_like(function: Any) -> Kernel:
    def step(
        params: Tensors,
        gradients: Tensors,
        state: State,
        settings: Mapping[str, Any],
        scale: torch.Tensor | None,
        first: bool,
    ) -> None:
        beta1, beta2 = settings["betas"]
        torch._foreach_add_(state["step"], 1)
        function(
            params,
            gradients,
            state["exp_avg"],
            state["exp_avg_sq"],
            state.get("max_exp_avg_sq", []),
            state["step"],
            amsgrad=settings["amsgrad"],
            lr=settings["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=settings["weight_decay"],
            eps=settings["eps"],
            maximize=settings["maximize"],
            grad_scale=scale,
            found_inf=None,
        )

    return step


class Fused(NamedTuple):
    """A kernel, and whether a staleness weight scales its step rather than the gradient."""

    kernel: Kernel
    scales_step: bool


# A factor on the gradient cancels out of Adam's step, so there the weight scales the step itself.
KERNELS: dict[type[Optimizer], Fused] = {
    SGD: Fused(_sgd, scales_step=False),
    Adam: Fused(_adam_like(torch._fused_adam_), scales_step=True),
    AdamW: Fused(_adam_like(torch._fused_adamw_), scales_step=True),
}
