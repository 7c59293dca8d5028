"""The commands, and how they answer.

The one thing to know: what can be refused is refused before torch is loaded, which takes seconds; so nothing at the
top of this file imports it, and `train` builds the run's configuration first.

Exit codes: 0 the run ended as it was told to, 1 it failed, 2 what was typed was wrong, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wasp_local.cli.flags import DEFAULT_DATA_ROOT, WRONG, among, command_line, flag, protocol_parameters
from wasp_local.config import OptimizerConfig, RunConfig
from wasp_local.errors import DataError, RunError, WorkerFailed
from wasp_local.params import parameters
from wasp_local.protocol import PRESETS, Protocol
from wasp_local.workers.topology import usable_cores

if TYPE_CHECKING:
    from wasp_local.report.summary import Result

__all__ = ["main"]

DONE, FAILED, INTERRUPTED = 0, 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or those of the process, and return its exit code."""
    try:
        return train(command_line().parse_args(argv))
    except SystemExit as answered:  # argparse has printed help, or what was wrong
        return answered.code if isinstance(answered.code, int) else DONE
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED


def train(typed: argparse.Namespace) -> int:
    """Carry out `wasp-local train`."""
    try:
        settings = {"workers": usable_cores().count, **given(typed, parameters(RunConfig))}
        config = RunConfig(**{**settings, "protocol": protocol_of(typed)})
        optimizer = OptimizerConfig(**given(typed, parameters(OptimizerConfig)))
        root = data_root(typed)
        result = run(typed, root, config, optimizer)
    except (ValueError, DataError) as wrong:
        complain(str(wrong))
        return WRONG
    except (RunError, OSError) as failure:
        complain(str(failure))
        if isinstance(failure, WorkerFailed) and failure.traceback_text:
            print(failure.traceback_text.rstrip(), file=sys.stderr)
        return FAILED
    if not config.quiet:
        show(f"\n{result}")
    return DONE


def run(
    typed: argparse.Namespace, root: Path | None, config: RunConfig, optimizer: OptimizerConfig
) -> Result:
    """Train and return the result. From here on torch is loaded."""
    import torch

    from wasp_local import models
    from wasp_local.data import datasets
    from wasp_local.trainer import Trainer

    loaded = datasets.load(typed.dataset, root, typed.download)
    torch.manual_seed(config.seed)  # of the first parameters
    model = models.build(typed.model, loaded.classes, loaded.input_shape[0])
    told = {name: getattr(config, name) for name in parameters(RunConfig)}
    trainer = Trainer(model, optimizer=optimizer.build(model.parameters()), **told)
    return trainer.fit(loaded.train, loaded.test)


def given(typed: argparse.Namespace, declared: Iterable[str]) -> dict[str, Any]:
    """Return those of the declared parameters that were typed."""
    return {name: getattr(typed, name) for name in declared if hasattr(typed, name)}


def protocol_of(typed: argparse.Namespace) -> Protocol:
    """Return the protocol that was typed, refusing a parameter that it does not take."""
    takes = parameters(PRESETS[typed.protocol])
    takers = protocol_parameters()
    values = given(typed, takers)
    for name in values:
        if name not in takes:
            own = f"takes {among(flag(each) for each in takes)}" if takes else "takes no parameter"
            raise ValueError(f"{flag(name)} is for {among(takers[name])}; protocol {typed.protocol} {own}")
    return PRESETS[typed.protocol](**values)


def data_root(typed: argparse.Namespace) -> Path | None:
    """Return the folder of a data set that is not in the package, refusing one for a data set that is."""
    if typed.dataset == "mnist":
        return DEFAULT_DATA_ROOT if typed.data_root is None else Path(typed.data_root)
    for name, value in (("data_root", typed.data_root), ("download", typed.download)):
        if value:
            raise ValueError(f"{flag(name)} is for dataset mnist; dataset {typed.dataset} is in the package")
    return None


def complain(sentence: str) -> None:
    """Say on standard error what was wrong, on one line."""
    print(f"wasp-local: {' '.join(sentence.split())}", file=sys.stderr)


def show(page: str) -> None:
    """Print to standard output; a reader that has gone away, such as `head`, is no mistake."""
    try:
        print(page, flush=True)
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # else Python complains when it exits
        os.close(nowhere)
