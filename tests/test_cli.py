"""The command line: what it takes comes from the declarations, and what is wrong gets one sentence at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wasp_local as wl
from wasp_local.cli import commands, flags, main
from wasp_local.cli.flags import command_line
from wasp_local.config import OptimizerConfig, RunConfig
from wasp_local.errors import DataError, RunError, Shortage, WorkerFailed
from wasp_local.params import parameters
from wasp_local.protocol import PRESETS

WRONG = {  # what is typed after `train`: what the sentence says
    "--workers 0": r"workers must be at least 1 .*, got 0",
    "--workers two": r"argument --workers: must be a whole number, got 'two' .*",
    "--workers 8 --sync-every 4": r"sync_every must be at least the number of workers \(8\), got 4: .*",
    "--lr nan": r"lr must be a finite number .*, got nan",
    "--lr -1": r"lr must be above 0 .*, got -1\.0",
    "--lr fast": r"argument --lr: must be a number, got 'fast' .*",
    "--batch-size 0": r"batch_size must be at least 1 .*, got 0",
    "--target-accuracy 98": r"target_accuracy must be above 0 and at most 1 .*, got 98\.0",
    "--seed -1": r"seed must be at least 0 .*, got -1",
    "--epochs 3 --steps 10": r"argument --steps: not allowed with argument --epochs .*",
    "--optimizer lbfgs": r"optimizer must be one of sgd, adam, adamw .*, got 'lbfgs'",
    "--optimizer adam --momentum 0.9": r"momentum is a parameter of optimizer sgd, got optimizer adam",
    "--protocol wsap": r"argument --protocol: invalid choice: 'wsap' \(choose from .*wasp.*\) .*",
    "--protocol hogwild --consistency locked": r"consistency must be 'hogwild' with protocol hogwild, .*",
    "--slack 3": r"--slack is for ssp; protocol wasp takes --sync-every, --sync-seconds and --weight",
    "--protocol bsp --sync-every 64": r"--sync-every is for wasp, .*; protocol bsp takes no parameter",
    "--weight heavy": r"argument --weight: weight must be one of constant, .*, got 'heavy' .*",
    "--weight polynomial:-1": r"argument --weight: exponent must be at least 0 .*, got -1\.0 .*",
    "--dataset imagenet": r"argument --dataset: invalid choice: 'imagenet' .*",
    "--data-root .": r"--data-root is for dataset mnist; dataset digits is in the package",
    "--download": r"--download is for dataset mnist; dataset digits is in the package",
    "--sync 9 --epochs 1": r"unrecognized arguments: --sync 9 .*",  # no flag is guessed from its beginning
}


def typed(text: str) -> Any:
    return command_line().parse_args(["train", *text.split()])


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run `train` with these words; return the one line that it answers."""
    assert main(["train", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err.rstrip("\n")


def train_help() -> str:
    """The page of `wasp-local train --help`, on one long line a flag."""
    parser = command_line()
    (commands_,) = (each for each in parser._actions if each.dest == "==SUPPRESS==" and each.choices)
    assert isinstance(commands_.choices, dict)
    return str(commands_.choices["train"].format_help())


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_gets_one_sentence_and_code_2(words, capsys):
    assert re.fullmatch(f"wasp-local: {WRONG[words]}", refused(capsys, *words.split()))


def test_no_command_is_answered_with_where_to_read_more(capsys):
    assert main([]) == 2
    assert capsys.readouterr().err == (
        "wasp-local: the following arguments are required: COMMAND (wasp-local --help says more)\n"
    )


def test_an_unknown_model_is_refused_with_what_was_meant(capsys):
    said = refused(capsys, "--model", "lenet6", "--quiet", "--out", "never-made")
    assert re.search("model must be .*, got 'lenet6', did you mean lenet5", said)
    assert not Path("never-made").exists()


def test_a_folder_that_cannot_be_written_is_refused(capsys, tmp_path):
    (tmp_path / "taken").write_text("")
    said = refused(capsys, "--workers", "1", "--quiet", "--out", str(tmp_path / "taken"))
    assert "out must be a folder that can be written to" in said


def test_a_batch_larger_than_the_data_is_refused(capsys, tmp_path):
    said = refused(capsys, "--workers", "1", "--quiet", "--batch-size", "5000", "--out", str(tmp_path))
    assert re.search("batch_size must be .*4,?000.*5,?000", said)


def test_missing_data_is_refused_with_where_it_was_sought(capsys, tmp_path):
    said = refused(capsys, "--dataset", "mnist", "--data-root", str(tmp_path))
    assert str(tmp_path) in said


def test_help_and_what_is_wrong_load_neither_torch_nor_numpy():
    answered = ["--help", "--version", "", "train --help", *(f"train {words}" for words in WRONG)]
    program = (
        "import contextlib, io, json, sys\n"
        "from wasp_local.cli import main\n"
        "seen = []\n"
        f"for words in {answered}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        "        code = main(words.split())\n"
        "    seen.append([words, code, sorted({'torch', 'numpy'} & set(sys.modules))])\n"
        "print(json.dumps(seen))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    for words, code, loaded in json.loads(done.stdout):
        assert (words, loaded) == (words, [])
        assert code == (0 if words.endswith(("--help", "--version")) else 2), words


def test_without_flags_nothing_is_told_but_where_files_go():
    namespace = vars(typed(""))
    assert {name: value for name, value in namespace.items() if value is not None} == {
        "model": "lenet5",
        "dataset": "digits",
        "download": False,
        "protocol": "wasp",
        "out": Path("runs"),
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_every_parameter_of_every_preset_has_a_flag_and_reaches_it(preset):
    values = {int: "7", float: "0.5"}
    words = [f"--protocol {preset}"]
    for name, parameter in parameters(PRESETS[preset]).items():
        words.append(f"{flags.flag(name)} {'hinge:2:3' if name == 'weight' else values[parameter.type]}")
    built = commands.protocol_of(typed(" ".join(words)))
    given = {
        name: wl.Hinge(2.0, 3) if name == "weight" else parameter.type(values[parameter.type])
        for name, parameter in parameters(PRESETS[preset]).items()
    }
    assert built == PRESETS[preset](**given)


@pytest.mark.parametrize("name", flags.protocol_parameters())
def test_a_parameter_of_several_presets_is_one_and_the_same(name):
    """So that one flag with one help text can stand for them all; only the default may differ."""
    declared = [
        (each.type, each.optional, [bound.words for bound in each.bounds], each.help)
        for each in flags.protocol_parameters()[name].values()
    ]
    assert all(each == declared[0] for each in declared)


@pytest.mark.parametrize("declared", [RunConfig, OptimizerConfig])
def test_every_parameter_of_a_run_has_a_flag_and_a_line_of_help(declared):
    page = " ".join(train_help().split())
    for name, parameter in parameters(declared).items():
        assert re.search(rf"--(no-)?{name.replace('_', '-')}\b", page), name
        assert name == "protocol" or parameter.help in page, name


def test_what_is_typed_reaches_the_run():
    words = (
        "--workers 3 --threads 2 --no-pin --batch-size 32 --steps 9 --seed 5 --drop-last --no-shuffle --quiet"
    )
    told = commands.given(typed(words), parameters(RunConfig))
    assert RunConfig(**{**told, "protocol": wl.bsp()}) == RunConfig(
        workers=3,
        protocol=wl.bsp(),
        threads=2,
        pin=False,
        batch_size=32,
        steps=9,
        seed=5,
        drop_last=True,
        shuffle=False,
        quiet=True,
        out=Path("runs"),
    )


def test_help_says_which_protocol_takes_a_parameter_and_what_it_is_otherwise():
    page = " ".join(train_help().split())
    assert (
        "--slack N clocks a worker may be ahead of the slowest; s in the paper (at least 0; default: 3 for ssp)"
        in page
    )
    assert re.search(
        r"--sync-every N pushes between two forced syncs \(at least 1; default: 1024 for wasp, none for", page
    )
    assert "default: floored for wasp, constant for" in page


def test_help_has_no_none_and_no_class_in_it():
    assert not re.search(r"None|<|object at|\w+\(\)", train_help())


class Fails:
    """A `run` that fails as it is told, instead of training."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, *_: object) -> None:
        raise self.error


TRACEBACK = (
    "Traceback (most recent call last):\n  File 'mine.py', line 3\nZeroDivisionError: division by zero\n"
)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ValueError("batch_size must be\nat most 4000"), 2, "wasp-local: batch_size must be at most 4000\n"),
        (DataError("t10k is damaged"), 2, "wasp-local: t10k is damaged\n"),
        (RunError("no worker came"), 1, "wasp-local: no worker came\n"),
        (Shortage("needs 9 bytes, 3 are free"), 1, "wasp-local: needs 9 bytes, 3 are free\n"),
        (OSError(28, "No space left on device"), 1, "wasp-local: [Errno 28] No space left on device\n"),
        (
            WorkerFailed("worker 1 failed", worker=1, pid=9, step=3, traceback_text=TRACEBACK),
            1,
            f"wasp-local: worker 1 failed\n{TRACEBACK}",
        ),
        (
            WorkerFailed("worker 1 was killed", worker=1, pid=9, step=3),
            1,
            "wasp-local: worker 1 was killed\n",
        ),
        (KeyboardInterrupt(), 130, "wasp-local: interrupted\n"),
    ],
)
def test_a_failure_has_its_code_and_its_sentence(error, code, said, monkeypatch, capsys):
    monkeypatch.setattr(commands, "run", Fails(error))
    assert main(["train"]) == code
    assert capsys.readouterr() == ("", said)


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(commands, "run", Fails(TypeError("unexpected")))
    with pytest.raises(TypeError, match="unexpected"):
        main(["train"])


def test_a_reader_that_went_away_is_no_mistake():
    program = "from wasp_local.cli.commands import show; show('x' * 100_000); show('y')"
    writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.close()
    _, err = writer.communicate()
    assert (writer.returncode, err) == (0, b"")
