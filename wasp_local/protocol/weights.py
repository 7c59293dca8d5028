"""Staleness weights: how much a late gradient counts.

Each is a function of tau, the number of updates between pull and push (>= 0), and returns the factor by which the
push is scaled. `docs/protocols.md` has their papers and when to use which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from wasp_local.params import about, above, at_least, at_most, check_fields, parameters
from wasp_local.protocol.rules import WeightRule, WeightView

__all__ = [
    "WEIGHTS",
    "Constant",
    "DelayAdaptive",
    "DropStale",
    "Exponential",
    "Floored",
    "Hinge",
    "Inverse",
    "Polynomial",
    "StalenessAware",
    "Tail",
    "parse_weight",
]


@dataclass(frozen=True)
class Constant:
    """1: every gradient counts alike (ASP, SSP)."""

    def __call__(self, tau: int, view: WeightView) -> float:
        return 1.0


@dataclass(frozen=True)
class Inverse:
    """1 / (1 + tau), the plain reconstruction of WASP's weight (Chen, Yan, Ye, Wu 2018 publish none)."""

    def __call__(self, tau: int, view: WeightView) -> float:
        return 1 / (1 + tau)


@dataclass(frozen=True)
class Floored:
    """1 / max(N, 1 + tau), N the number of workers: WASP's weight without the burst after a forced sync."""

    def __call__(self, tau: int, view: WeightView) -> float:
        return 1 / max(view.workers, 1 + tau)


@dataclass(frozen=True)
class StalenessAware:
    """1 / max(1, tau): staleness-aware asynchronous SGD (Zhang, Gupta, Lian, Liu 2016)."""

    def __call__(self, tau: int, view: WeightView) -> float:
        return 1 / max(1, tau)


@dataclass(frozen=True)
class Polynomial:
    """(1 + tau) ** -exponent, FedAsync's polynomial rule (Xie, Koyejo, Gupta 2019, section 5)."""

    exponent: Annotated[float, at_least(0), about("how fast the weight falls with tau; a in the paper")] = 0.5

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, tau: int, view: WeightView) -> float:
        return float((1 + tau) ** -self.exponent)


@dataclass(frozen=True)
class Hinge:
    """1 if tau <= bound else 1 / (slope * (tau - bound) + 1), FedAsync's hinge rule (Xie, Koyejo, Gupta 2019)."""

    slope: Annotated[float, above(0), about("how fast the weight falls beyond the bound; a in the paper")] = (
        10.0
    )
    bound: Annotated[int, at_least(0), about("staleness up to which a gradient counts in full; b")] = 4

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, tau: int, view: WeightView) -> float:
        return 1.0 if tau <= self.bound else 1 / (self.slope * (tau - self.bound) + 1)


@dataclass(frozen=True)
class Exponential:
    """exp(-rate * tau)."""

    rate: Annotated[float, at_least(0), about("how fast the weight falls with tau; beta")] = 0.1

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, tau: int, view: WeightView) -> float:
        return math.exp(-self.rate * tau)


@dataclass(frozen=True)
class DelayAdaptive:
    """M / max(M, tau), M the number of workers (Mishchenko, Bach, Even, Woodworth 2022)."""

    def __call__(self, tau: int, view: WeightView) -> float:
        return view.workers / max(view.workers, tau)


@dataclass(frozen=True)
class DropStale:
    """0 if tau >= bound else 1: too stale a gradient is thrown away (Ringmaster; Maranjyan et al. 2025)."""

    bound: Annotated[
        int, at_least(1), about("staleness from which a gradient is dropped; R in the paper")
    ] = 16

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, tau: int, view: WeightView) -> float:
        return 0.0 if tau >= self.bound else 1.0


@dataclass(frozen=True)
class Tail:
    """1 + amplitude * (1 - 2 F(tau)), F the distribution of staleness so far (TAIL-tau; Backstrom et al. 2022).

    F counts the pushes as stale as tau by half, so that the weights' mean is 1 and one worker's weight is 1.
    """

    amplitude: Annotated[float, at_least(0), at_most(1), about("how far the weight strays from 1; A")] = 1.0

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, tau: int, view: WeightView) -> float:
        return 1 + self.amplitude * (1 - 2 * view.share_fresher(tau))


WEIGHTS: dict[str, type] = {
    "constant": Constant,
    "inverse": Inverse,
    "floored": Floored,
    "staleness_aware": StalenessAware,
    "polynomial": Polynomial,
    "hinge": Hinge,
    "exponential": Exponential,
    "delay_adaptive": DelayAdaptive,
    "drop_stale": DropStale,
    "tail": Tail,
}


def parse_weight(text: str) -> WeightRule:
    """A weight from a name and its parameters in order, such as "polynomial:0.5" or "hinge:10:4".

    Raises:
        ValueError: the name is unknown, there are too many parameters, or one is no number or out of bounds.
    """
    name, *given = text.split(":")
    if name not in WEIGHTS:
        raise ValueError(f"weight must be one of {', '.join(WEIGHTS)}, got {name!r}")
    declared = list(parameters(WEIGHTS[name]).values())
    if len(given) > len(declared):
        raise ValueError(f"weight {name} takes {len(declared)} parameters after its name, got {text!r}")
    values = {}
    for parameter, word in zip(declared, given, strict=False):
        try:
            values[parameter.name] = parameter.type(word)
        except ValueError:
            wanted = "a whole number" if parameter.type is int else "a number"
            raise ValueError(
                f"weight {name} must have {wanted} for {parameter.name} ({parameter.help}), got {word!r}"
            ) from None
    rule: WeightRule = WEIGHTS[name](**values)
    return rule
