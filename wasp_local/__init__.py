"""Train a PyTorch model by many processes that share one copy of its parameters and never wait without need.

The one thing to know: `import wasp_local` loads nothing; each public name loads its own module when it is
first used, so that neither a help text nor the pure rules of a protocol wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wasp_local.config import RunConfig as RunConfig
    from wasp_local.errors import BrokenInvariant as BrokenInvariant
    from wasp_local.errors import DataError as DataError
    from wasp_local.errors import RunError as RunError
    from wasp_local.errors import Shortage as Shortage
    from wasp_local.errors import WorkerFailed as WorkerFailed
    from wasp_local.fit import Moment as Moment
    from wasp_local.protocol.presets import asp as asp
    from wasp_local.protocol.presets import bsp as bsp
    from wasp_local.protocol.presets import downpour as downpour
    from wasp_local.protocol.presets import hogwild as hogwild
    from wasp_local.protocol.presets import sa_asgd as sa_asgd
    from wasp_local.protocol.presets import softsync as softsync
    from wasp_local.protocol.presets import ssp as ssp
    from wasp_local.protocol.presets import wasp as wasp
    from wasp_local.protocol.weights import Constant as Constant
    from wasp_local.protocol.weights import DelayAdaptive as DelayAdaptive
    from wasp_local.protocol.weights import DropStale as DropStale
    from wasp_local.protocol.weights import Exponential as Exponential
    from wasp_local.protocol.weights import Floored as Floored
    from wasp_local.protocol.weights import Hinge as Hinge
    from wasp_local.protocol.weights import Inverse as Inverse
    from wasp_local.protocol.weights import Polynomial as Polynomial
    from wasp_local.protocol.weights import StalenessAware as StalenessAware
    from wasp_local.protocol.weights import Tail as Tail
    from wasp_local.report.summary import Result as Result
    from wasp_local.trainer import Trainer as Trainer
    from wasp_local.trainer import launch as launch

__version__ = "0.1.0"

_MODULE_OF = {
    "BrokenInvariant": "wasp_local.errors",
    "Constant": "wasp_local.protocol.weights",
    "DataError": "wasp_local.errors",
    "DelayAdaptive": "wasp_local.protocol.weights",
    "DropStale": "wasp_local.protocol.weights",
    "Exponential": "wasp_local.protocol.weights",
    "Floored": "wasp_local.protocol.weights",
    "Hinge": "wasp_local.protocol.weights",
    "Inverse": "wasp_local.protocol.weights",
    "Moment": "wasp_local.fit",
    "Polynomial": "wasp_local.protocol.weights",
    "Result": "wasp_local.report.summary",
    "RunConfig": "wasp_local.config",
    "RunError": "wasp_local.errors",
    "Shortage": "wasp_local.errors",
    "StalenessAware": "wasp_local.protocol.weights",
    "Tail": "wasp_local.protocol.weights",
    "Trainer": "wasp_local.trainer",
    "WorkerFailed": "wasp_local.errors",
    "asp": "wasp_local.protocol.presets",
    "bsp": "wasp_local.protocol.presets",
    "downpour": "wasp_local.protocol.presets",
    "hogwild": "wasp_local.protocol.presets",
    "launch": "wasp_local.trainer",
    "sa_asgd": "wasp_local.protocol.presets",
    "softsync": "wasp_local.protocol.presets",
    "ssp": "wasp_local.protocol.presets",
    "wasp": "wasp_local.protocol.presets",
}

__all__ = [
    "BrokenInvariant",
    "Constant",
    "DataError",
    "DelayAdaptive",
    "DropStale",
    "Exponential",
    "Floored",
    "Hinge",
    "Inverse",
    "Moment",
    "Polynomial",
    "Result",
    "RunConfig",
    "RunError",
    "Shortage",
    "StalenessAware",
    "Tail",
    "Trainer",
    "WorkerFailed",
    "__version__",
    "asp",
    "bsp",
    "downpour",
    "hogwild",
    "launch",
    "sa_asgd",
    "softsync",
    "ssp",
    "wasp",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'wasp_local' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
