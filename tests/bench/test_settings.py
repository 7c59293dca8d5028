"""What a benchmark is told, and where it looks for MNIST."""

from __future__ import annotations

import argparse

import pytest
from settings import Settings, add_options, find_mnist


def settings_from(*argv):
    parser = argparse.ArgumentParser()
    add_options(parser, rounds=3, samples=1280)
    return Settings.of(parser.parse_args(argv))


@pytest.fixture
def mnist(tmp_path):
    (tmp_path / "mnist" / "MNIST" / "raw").mkdir(parents=True)
    return tmp_path


def test_both_processes_of_a_rival_get_whole_batches_and_equally_many():
    with pytest.raises(SystemExit, match=r"--samples must be a multiple of 128.*got 1000"):
        settings_from("--samples=1000")


def test_no_rounds_are_no_measurement():
    with pytest.raises(SystemExit, match=r"--rounds must be at least 1, got 0"):
        settings_from("--rounds=0")


def test_mnist_is_found_in_the_folder_given_and_below_it(mnist):
    assert find_mnist(mnist) == find_mnist(mnist / "mnist") == mnist / "mnist"


def test_mnist_is_found_where_the_environment_says(mnist, monkeypatch):
    monkeypatch.setenv("WASP_LOCAL_DATA", str(mnist))
    assert settings_from().data == "MNIST, 60,000 images"


def test_a_folder_without_mnist_is_told(tmp_path):
    with pytest.raises(SystemExit, match=r"the data folder must hold MNIST/raw, got .*"):
        settings_from(f"--data-root={tmp_path}")


def test_a_tiny_run_says_that_it_does_not_train_on_mnist(mnist):
    settings = settings_from("--tiny", f"--data-root={mnist}")
    assert (settings.rounds, settings.data_root) == (1, None)
    assert "embedded digits" in settings.data
