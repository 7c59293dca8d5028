"""The flags of the commands, made from the parameters' declarations.

The one thing to know: a flag that was not typed is not in what `parse_args` returns, so that a default stands in one
place only, where the parameter is declared (`config.py`, and the presets in `protocol/presets.py`). The exceptions,
which no declaration has, are the constants below.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import wasp_local
from wasp_local.config import (
    DEFAULT_EPOCHS,
    DEFAULT_LR,
    DEFAULT_MOMENTUM,
    DEFAULT_WEIGHT_DECAY,
    LENGTHS,
    OptimizerConfig,
    RunConfig,
)
from wasp_local.params import REQUIRED, Parameter, parameters
from wasp_local.protocol import PRESETS, WEIGHTS, parse_weight

__all__ = ["DEFAULT_DATA_ROOT", "WRONG", "among", "command_line", "flag", "protocol_parameters"]

WRONG = 2  # exit code where what was typed was wrong

# What the command without flags runs; the numbers of its optimizer and its length are in config.py.
DEFAULT_MODEL = "lenet5"
DEFAULT_DATASET = "digits"
DEFAULT_PROTOCOL = "wasp"
DEFAULT_DATA_ROOT = Path("data")
DEFAULT_OUT = Path("runs")

OF_WORKERS = ("workers", "threads", "pin", "start_method", "consistency")
OF_BATCHES = ("batch_size", "shuffle", "drop_last", "seed")
OF_OUTPUT = ("out", "quiet")

# What holds where a flag is not typed and the declaration's own default does not say it.
DEFAULTS = {
    "workers": "the usable cores",
    "threads": "usable cores / workers",
    "consistency": "hogwild for protocol hogwild, else locked",
    "epochs": f"{DEFAULT_EPOCHS}, if neither --steps nor --samples is given",
    "target_accuracy": "go on to the end",
    "out": str(DEFAULT_OUT),
    "lr": ", ".join(f"{lr} for {name}" for name, lr in DEFAULT_LR.items()),
    "momentum": str(DEFAULT_MOMENTUM["sgd"]),
    "weight_decay": ", ".join(f"{decay} for {name}" for name, decay in DEFAULT_WEIGHT_DECAY.items()),
}


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the whole command."""
    parser = Parser(
        prog="wasp-local",
        description="Train a PyTorch model with many processes that share one copy of its parameters.",
        epilog="`wasp-local train` needs no flags: it trains LeNet-5 on digits that are in the package.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"wasp-local {wasp_local.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    train = commands.add_parser(
        "train",
        help="train a model",
        description="Train a model; without flags, LeNet-5 on digits that are in the package.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    add_train_flags(train)
    return parser


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one sentence, without the page of usage before it."""

    def error(self, message: str) -> NoReturn:
        """Print the sentence and where to read more, and leave."""
        self.exit(WRONG, f"wasp-local: {message} ({self.prog} --help says more)\n")


def protocol_parameters() -> dict[str, dict[str, Parameter]]:
    """Return for each parameter of a protocol which presets take it, and how each declares it."""
    takers: dict[str, dict[str, Parameter]] = {}
    for preset, build in PRESETS.items():
        for name, parameter in parameters(build).items():
            takers.setdefault(name, {})[preset] = parameter
    return takers


def add_train_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `train`."""
    told, optimizer = parameters(RunConfig), parameters(OptimizerConfig)
    add_data_flags(parser.add_argument_group("what is trained"))
    add_flags(parser.add_argument_group("workers"), told, OF_WORKERS)
    add_protocol_flags(parser.add_argument_group("protocol (when workers pull, wait, push and synchronise)"))
    add_flags(parser.add_argument_group("optimizer"), optimizer, optimizer)
    length = parser.add_argument_group("length (one of --epochs, --steps and --samples)")
    add_flags(length.add_mutually_exclusive_group(), told, LENGTHS)
    add_flags(length, told, ["target_accuracy"])
    add_flags(parser.add_argument_group("batches"), told, OF_BATCHES)
    add_flags(parser.add_argument_group("output"), told, OF_OUTPUT)
    parser.set_defaults(out=DEFAULT_OUT)


def add_data_flags(group: argparse._ArgumentGroup) -> None:
    """Add what names the model and its data."""
    group.add_argument(
        "--model",
        metavar="NAME",
        default=DEFAULT_MODEL,
        help=f"lenet5, or a classification model of torchvision (default: {DEFAULT_MODEL})",
    )
    group.add_argument(
        "--dataset",
        choices=["digits", "mnist"],
        default=DEFAULT_DATASET,
        help=f"digits: 5,000 of MNIST, in the package; mnist: the whole of it (default: {DEFAULT_DATASET})",
    )
    group.add_argument(
        "--data-root",
        metavar="DIR",
        type=Path,
        default=None,
        help=f"folder in which torchvision keeps mnist, as MNIST/raw (default: {DEFAULT_DATA_ROOT})",
    )
    group.add_argument(
        "--download", action="store_true", default=False, help="fetch those files of mnist that are missing"
    )


def add_protocol_flags(group: argparse._ArgumentGroup) -> None:
    """Add `--protocol` and a flag for each parameter that some preset takes, saying which."""
    group.add_argument(
        "--protocol",
        metavar="NAME",
        choices=list(PRESETS),
        default=DEFAULT_PROTOCOL,
        help=f"one of {', '.join(PRESETS)} (default: {DEFAULT_PROTOCOL})",
    )
    for takers in protocol_parameters().values():
        presets_of: dict[str, list[str]] = {}
        for preset, parameter in takers.items():
            presets_of.setdefault(default_of(parameter) or "none", []).append(preset)
        defaults = ", ".join(f"{default} for {among(names)}" for default, names in presets_of.items())
        add_flag(group, next(iter(takers.values())), defaults)


def add_flags(
    group: argparse._ActionsContainer, declared: Mapping[str, Parameter], names: Iterable[str]
) -> None:
    """Add the flags of these parameters."""
    for name in names:
        add_flag(group, declared[name], DEFAULTS.get(name, default_of(declared[name])))


def add_flag(group: argparse._ActionsContainer, parameter: Parameter, default: str) -> None:
    """Add one parameter's flag; that of a yes or no turns its default round."""
    if parameter.type is bool:
        no = parameter.default is True
        group.add_argument(
            flag(f"no_{parameter.name}" if no else parameter.name),
            dest=parameter.name,
            action="store_false" if no else "store_true",
            help=f"do not {parameter.help}" if no else parameter.help,
        )
        return
    reading = WEIGHT if parameter.name == "weight" else READINGS[parameter.type]
    notes = [f"one of {', '.join(WEIGHTS)}"] if reading is WEIGHT else []
    notes += [" and ".join(bound.words for bound in parameter.bounds)] if parameter.bounds else []
    notes += [f"default: {default}"] if default else []
    group.add_argument(
        flag(parameter.name),
        dest=parameter.name,
        metavar=reading.metavar,
        type=reading.read,
        help=parameter.help + (f" ({'; '.join(notes)})" if notes else ""),
    )


def default_of(parameter: Parameter) -> str:
    """Return a default as it would be typed; nothing where there is none."""
    if parameter.default is REQUIRED or parameter.default is None:
        return ""
    return next(
        (name for name, kind in WEIGHTS.items() if type(parameter.default) is kind), str(parameter.default)
    )


class Reading(NamedTuple):
    """How a flag's value is read: the word for it in the help, and the function."""

    metavar: str
    read: Callable[[str], Any]


def read_as(kind: Callable[[str], Any], wanted: str) -> Callable[[str], Any]:
    """Return a reader that says what is wanted where it cannot read."""

    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}") from None

    return read


def read_weight(text: str) -> Any:
    """Return the staleness weight of this name."""
    try:
        return parse_weight(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None


READINGS = {
    int: Reading("N", read_as(int, "a whole number")),
    float: Reading("X", read_as(float, "a number")),
    str: Reading("NAME", str),
    Path: Reading("DIR", Path),
}
WEIGHT = Reading("NAME[:NUMBER...]", read_weight)


def flag(name: str) -> str:
    """Return a parameter's flag."""
    return f"--{name.replace('_', '-')}"


def among(names: Iterable[str]) -> str:
    """Return names as a list in a sentence."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
