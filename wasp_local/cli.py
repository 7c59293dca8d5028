"""The command `wasp-local`.

The one thing to know: what can be refused is refused before torch is loaded, which takes seconds; so nothing at the
top of this file imports it, and `train` builds the run's configuration first.

Exit codes: 0 the run ended as it was told to, 1 it failed, 2 what was typed was wrong, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import wasp_local
from wasp_local.config import LENGTHS, OptimizerConfig, RunConfig
from wasp_local.errors import DataError, RunError, WorkerFailed
from wasp_local.params import Parameter, parameters
from wasp_local.protocol import Protocol
from wasp_local.protocol.presets import PRESETS
from wasp_local.workers.topology import usable_cores

if TYPE_CHECKING:
    from wasp_local.data.datasets import Loaded
    from wasp_local.report.summary import Result

__all__ = ["main"]

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130

# What the command without arguments runs; the numbers of its optimizer and length are in wasp_local/config.py.
DEFAULT_MODEL = "lenet5"
DEFAULT_DATASET = "digits"
DEFAULT_PROTOCOL = "wasp"
DEFAULT_OUT = Path("runs")
DEFAULT_DATA_ROOT = Path("data")

RUN = parameters(RunConfig)
OPTIMIZER = parameters(OptimizerConfig)
OF_PROTOCOLS: dict[str, dict[str, Parameter]] = {}  # parameter: preset: how that preset declares it
for _preset, _build in PRESETS.items():
    for _name, _parameter in parameters(_build).items():
        OF_PROTOCOLS.setdefault(_name, {})[_preset] = _parameter


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or those of the process, and return its exit code."""
    try:
        typed = command_line().parse_args(argv)
        return train(typed)
    except SystemExit as answered:  # argparse has printed help, or what was wrong
        return answered.code if isinstance(answered.code, int) else DONE
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED


def train(typed: argparse.Namespace) -> int:
    """Carry out `wasp-local train`."""
    try:
        protocol = protocol_of(typed)
        config = RunConfig(protocol=protocol, **{"workers": usable_cores().count, **given(typed, RUN)})
        optimizer = OptimizerConfig(**given(typed, OPTIMIZER))
        result = run(typed, config, optimizer)
    except (ValueError, DataError) as wrong:
        complain(wrong)
        return WRONG
    except RunError as failure:
        complain(failure)
        if isinstance(failure, WorkerFailed) and failure.traceback_text not in str(failure):
            print(failure.traceback_text, file=sys.stderr)
        return FAILED
    if not config.quiet:
        print(f"\n{result}")
    return DONE


def run(typed: argparse.Namespace, config: RunConfig, optimizer: OptimizerConfig) -> Result:
    """Train and return the result. From here on torch is loaded."""
    import torch

    from wasp_local import models
    from wasp_local.data import datasets
    from wasp_local.trainer import Trainer

    loaded = datasets.load(typed.dataset, data_root(typed), typed.download)
    torch.manual_seed(config.seed)
    model = models.build(typed.model, loaded.classes, loaded.input_shape[0])
    trainer = Trainer(
        model,
        optimizer=optimizer.build(model.parameters()),
        protocol=config.protocol,
        **{name: getattr(config, name) for name in (*OF_WORKERS, *OF_LENGTH, *OF_OUTPUT)},
    )
    return trainer.fit(loaded.train, loaded.test)


def protocol_of(typed: argparse.Namespace) -> Protocol:
    """Return the protocol that was typed, refusing a parameter that it does not take."""
    values = {name: getattr(typed, name) for name in OF_PROTOCOLS if hasattr(typed, name)}
    for name in values:
        takers = OF_PROTOCOLS[name]
        if typed.protocol not in takers:
            raise ValueError(
                f"{flag(name)} is not for protocol {typed.protocol}: {among(takers)} would take it, "
                f"and {typed.protocol} takes {among(map(flag, parameters(PRESETS[typed.protocol])))}"
            )
    return PRESETS[typed.protocol](**values)


def data_root(typed: argparse.Namespace) -> Path | None:
    """Return the folder of a data set that is not in the package, refusing one for a data set that is."""
    if typed.dataset == "mnist":
        return typed.data_root or DEFAULT_DATA_ROOT
    for name in ("data_root", "download"):
        if getattr(typed, name):
            raise ValueError(f"{flag(name)} is not for dataset {typed.dataset}, which is in the package")
    return None


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the whole command."""
    parser = Parser(
        prog="wasp-local",
        description="Train a PyTorch model with many processes that share one copy of its parameters.",
        epilog="`wasp-local train` needs no arguments: it trains LeNet-5 on digits that are in the package.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"wasp-local {wasp_local.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    train_parser = commands.add_parser(
        "train",
        help="train a model",
        description="Train a model. Every flag has a default; see each.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    add_train_flags(train_parser)
    return parser


def add_train_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `train`, those of a parameter made from its declaration."""
    what = parser.add_argument_group("what is trained")
    what.add_argument(
        "--model",
        metavar="NAME",
        default=DEFAULT_MODEL,
        help=f"lenet5, or a classification model of torchvision such as resnet18 (default: {DEFAULT_MODEL})",
    )
    what.add_argument(
        "--dataset",
        choices=["digits", "mnist"],
        default=DEFAULT_DATASET,
        help=f"digits: 5,000 of MNIST's, in the package; mnist: all of them (default: {DEFAULT_DATASET})",
    )
    what.add_argument(
        "--data-root",
        metavar="DIR",
        type=Path,
        default=None,
        help=f"folder that holds mnist as torchvision lays it out (default: {DEFAULT_DATA_ROOT})",
    )
    what.add_argument(
        "--download", action="store_true", default=False, help="fetch mnist if it is not in that folder yet"
    )
    add_flags(parser.add_argument_group("workers"), RUN, OF_WORKERS)
    add_protocol_flags(parser.add_argument_group("protocol"))
    add_flags(parser.add_argument_group("optimizer"), OPTIMIZER, tuple(OPTIMIZER))
    length = parser.add_argument_group("length")
    add_flags(length.add_mutually_exclusive_group(), RUN, LENGTHS)
    add_flags(length, RUN, tuple(name for name in OF_LENGTH if name not in LENGTHS))
    add_flags(parser.add_argument_group("output"), RUN, OF_OUTPUT)


def add_protocol_flags(group: argparse._ArgumentGroup) -> None:
    """Add `--protocol` and a flag for each parameter that one preset or more takes."""
    group.add_argument(
        "--protocol",
        choices=list(PRESETS),
        default=DEFAULT_PROTOCOL,
        help=f"{', '.join(PRESETS)} (default: {DEFAULT_PROTOCOL})",
        metavar="NAME",
    )
    for name, takers in OF_PROTOCOLS.items():
        add_flag(group, next(iter(takers.values())), of_protocols(takers))


def of_protocols(takers: Mapping[str, Parameter]) -> str:
    """Return which protocols take a parameter and what it is where it is not given."""
    preset_of: dict[str, list[str]] = {}
    for preset, parameter in takers.items():
        preset_of.setdefault(default_of(parameter), []).append(preset)
    if len(takers) == len(PRESETS) and len(preset_of) == 1:
        return f"any protocol; default: {next(iter(preset_of))}"
    return "; ".join(f"{among(presets)}: default {default}" for default, presets in preset_of.items())


def add_flags(group: argparse._ActionsContainer, declared: Mapping[str, Parameter], names: Sequence[str]) -> None:
    """Add the flags of these parameters."""
    for name in names:
        add_flag(group, declared[name], f"default: {DEFAULT_TEXTS.get(name) or default_of(declared[name])}")


def add_flag(group: argparse._ActionsContainer, parameter: Parameter, note: str) -> None:
    """Add one parameter's flag; a yes or no has a flag that turns its default round."""
    text = parameter.help
    if parameter.default is True:
        group.add_argument(f"--no-{dashed(parameter.name)}", dest=parameter.name, action="store_false", help=f"do not {text}")
    elif parameter.default is False:
        group.add_argument(flag(parameter.name), dest=parameter.name, action="store_true", help=text)
    else:
        metavar, read = KINDS[parameter.name] if parameter.name in KINDS else KINDS_OF_TYPE[parameter.kind]
        group.add_argument(flag(parameter.name), dest=parameter.name, metavar=metavar, type=read, help=f"{text} ({note})")
