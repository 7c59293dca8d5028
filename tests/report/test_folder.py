"""The folder of a run and the files that are whole or absent."""

from __future__ import annotations

import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from wasp_local.report import folder
from wasp_local.report.folder import create_run_folder, write_json


def test_runs_that_start_in_the_same_second_get_folders_of_their_own(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = list(
            pool.map(lambda _: create_run_folder(tmp_path / "runs", "lenet5-wasp", now=0.0), range(40))
        )
    assert len(set(made)) == 40
    assert all(each.is_dir() for each in made)


def test_the_folder_is_named_by_time_and_label_and_is_its_owners_alone(tmp_path):
    made = create_run_folder(tmp_path, "lenet5-wasp", now=1_750_000_000.0)
    assert re.fullmatch(r"2025-06-1\d_\d\d-\d\d-\d\d_lenet5-wasp", made.name)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_a_label_that_suits_no_file_name_is_made_to(tmp_path):
    made = create_run_folder(tmp_path, "../<lambda>/x y")
    assert made.parent == tmp_path
    assert made.name.endswith("_.._lambda_x_y")


def test_a_parent_that_is_a_file_is_refused_with_its_name(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(
        ValueError, match=r"out must be a folder that can be written to, got '.*taken': is a file"
    ):
        create_run_folder(tmp_path / "taken", "run")


def test_a_parent_below_a_file_is_refused_with_the_reason(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ValueError, match=r"got '.*taken/below': not a directory"):
        create_run_folder(tmp_path / "taken" / "below", "run")


def test_a_parent_that_may_not_be_written_is_refused(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)  # a mode would not stop root
    with pytest.raises(ValueError, match=r"out must be a folder that can be written to.*permission denied"):
        create_run_folder(tmp_path, "run")


def test_json_is_replaced_whole(tmp_path):
    path = tmp_path / "config.json"
    write_json(path, {"workers": 1})
    write_json(path, {"workers": 2})
    assert json.loads(path.read_text()) == {"workers": 2}
    assert [each.name for each in tmp_path.iterdir()] == ["config.json"]


def test_a_write_that_fails_leaves_the_old_text_and_no_draft(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    write_json(path, {"workers": 1})

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"workers": 2})
    assert json.loads(path.read_text()) == {"workers": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["config.json"]
