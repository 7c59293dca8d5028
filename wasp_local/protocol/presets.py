"""The protocols by name: each a function of its parameters that picks one of each rule.

The one thing to know: `PRESETS` is the registry; the command line makes its flags from the parameters here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, ParamSpec

from wasp_local.params import about, above, at_least, check_values, parameters
from wasp_local.protocol.aggregates import AllWorkers, Single, Softsync
from wasp_local.protocol.gates import Always, Bounded, Lockstep
from wasp_local.protocol.pulls import EveryStep, EverySteps, OnStore
from wasp_local.protocol.rules import Protocol, WeightRule
from wasp_local.protocol.syncs import ForcedSync
from wasp_local.protocol.weights import Constant, Floored, StalenessAware

__all__ = ["PRESETS", "asp", "bsp", "downpour", "hogwild", "sa_asgd", "softsync", "ssp", "wasp"]

SyncEvery = Annotated[int | None, at_least(1), about("pushes between two forced syncs")]
SyncSeconds = Annotated[float | None, above(0), about("seconds between two forced syncs")]
Weight = Annotated[WeightRule, about("how much a gradient of staleness tau counts")]

PRESETS: dict[str, Callable[..., Protocol]] = {}
Given = ParamSpec("Given")


def preset(build: Callable[Given, Protocol]) -> Callable[Given, Protocol]:
    """Enter a protocol into the registry under its function's name, and check what it is given."""

    @functools.wraps(build)
    def checked(*args: Given.args, **kwargs: Given.kwargs) -> Protocol:
        try:
            given = inspect.signature(build).bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{build.__name__}() {error}") from None
        check_values(parameters(build), given)
        return build(*args, **kwargs)

    PRESETS[build.__name__] = checked
    return checked


@preset
def wasp(
    sync_every: SyncEvery = 1024, sync_seconds: SyncSeconds = None, weight: Weight = Floored()
) -> Protocol:
    """Weighted asynchronous parallel: stale gradients count for less, and now and then all synchronise.

    Chen, Yan, Ye, Wu 2018. The paper's weight function is not public: this one is a reconstruction.
    """
    return Protocol("wasp", EveryStep(), Always(), Single(), weight, ForcedSync(sync_every, sync_seconds))


@preset
def bsp() -> Protocol:
    """Bulk synchronous parallel: the mean of one gradient a worker makes each update (Valiant 1990)."""
    return Protocol("bsp", EveryStep(), Lockstep(), AllWorkers(), Constant(), ForcedSync())


@preset
def asp(
    sync_every: SyncEvery = None, sync_seconds: SyncSeconds = None, weight: Weight = Constant()
) -> Protocol:
    """Asynchronous parallel: nobody waits, every gradient counts in full."""
    return Protocol("asp", EveryStep(), Always(), Single(), weight, ForcedSync(sync_every, sync_seconds))


@preset
def hogwild() -> Protocol:
    """Workers compute on and write to the store itself, without locks (Niu, Recht, Re, Wright 2011)."""
    return Protocol("hogwild", OnStore(), Always(), Single(), Constant(), ForcedSync())


@preset
def ssp(
    slack: Annotated[
        int, at_least(0), about("clocks a worker may be ahead of the slowest; s in the paper")
    ] = 3,
    sync_every: SyncEvery = None,
    sync_seconds: SyncSeconds = None,
    weight: Weight = Constant(),
) -> Protocol:
    """Stale synchronous parallel: no worker runs more than `slack` clocks ahead (Ho et al. 2013)."""
    return Protocol(
        "ssp", EveryStep(), Bounded(slack), Single(), weight, ForcedSync(sync_every, sync_seconds)
    )


@preset
def downpour(
    pull_every: Annotated[
        int, at_least(1), about("batches a worker computes between two pulls; n_fetch")
    ] = 5,
    sync_every: SyncEvery = None,
    sync_seconds: SyncSeconds = None,
    weight: Weight = Constant(),
) -> Protocol:
    """Workers pull every few steps and step their own copy in between (Downpour SGD; Dean et al. 2012)."""
    return Protocol(
        "downpour", EverySteps(pull_every), Always(), Single(), weight, ForcedSync(sync_every, sync_seconds)
    )


@preset
def softsync(
    updates_per_round: Annotated[
        int, at_least(1), about("updates made of one gradient a worker; 1: all make one; n in the paper")
    ] = 1,
    sync_every: SyncEvery = None,
    sync_seconds: SyncSeconds = None,
    weight: Weight = Constant(),
) -> Protocol:
    """n-softsync: each workers / updates_per_round gradients, as they come, make an update (Zhang et al. 2016)."""
    return Protocol(
        "softsync",
        EveryStep(),
        Always(),
        Softsync(updates_per_round),
        weight,
        ForcedSync(sync_every, sync_seconds),
    )


@preset
def sa_asgd(sync_every: SyncEvery = None, sync_seconds: SyncSeconds = None) -> Protocol:
    """Staleness-aware asynchronous SGD: weight 1 / max(1, tau) (Zhang, Gupta, Lian, Liu 2016)."""
    return Protocol(
        "sa_asgd", EveryStep(), Always(), Single(), StalenessAware(), ForcedSync(sync_every, sync_seconds)
    )
