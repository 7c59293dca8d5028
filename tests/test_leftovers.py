"""The check around every test fails a test that leaves something behind, and says what."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

TESTS_THAT_LEAK = '''
"""Each test leaves behind what its name says; all of it goes when this process ends."""

import atexit, mmap, os, subprocess, sys, tempfile, threading
from pathlib import Path

import leftovers
import torch

KEPT = []


def start(*command):
    KEPT.append(subprocess.Popen(command, stdin=subprocess.PIPE))  # which ends when this process does
    return KEPT[-1]


def test_child():
    start("cat")


def test_zombie():
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    KEPT.append(child)


def test_orphan():
    start(sys.executable, "-c", "import subprocess; subprocess.Popen(['cat'], stdin=0)").wait()


def test_descriptor():
    KEPT.append(open(__file__))


def test_memfd_mapping():
    number = os.memfd_create("left")
    os.ftruncate(number, 4096)
    KEPT.append(mmap.mmap(number, 4096, prot=mmap.PROT_READ))
    os.close(number)


def test_anonymous_mapping():
    KEPT.append(mmap.mmap(-1, 4096))


def test_shm_name():
    name = Path(f"/dev/shm/wasp_local_test_{os.getpid()}")
    name.touch()
    atexit.register(name.unlink)


def test_python_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def test_native_thread():
    torch.set_num_threads(leftovers.MOST_COMPUTE_THREADS + 4)
    torch.ones(512, 512) @ torch.ones(512, 512)
    torch.ones(1_000_000).add_(1)


def test_file_in_cwd():
    Path("left.txt").touch()


def test_temporary_file():
    number, _ = tempfile.mkstemp()
    os.close(number)


def test_nothing():
    with open(__file__), tempfile.TemporaryDirectory():
        subprocess.run(["true"], check=True)


def test_what_is_on_its_way_out():
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    threading.Thread(target=child.communicate).start()


def test_unable_to_look():
    leftovers.PROC = Path("/nowhere")
'''

LEFT = {
    "child": "process: ",
    "zombie": "(Z) true",
    "orphan": "process: ",
    "descriptor": "descriptor: ",
    "memfd_mapping": "memfd:left",
    "anonymous_mapping": "shared mapping: ",
    "shm_name": "name in /dev/shm: wasp_local_test_",
    "python_thread": "Python thread: ",
    "native_thread": "native thread: ",
    "file_in_cwd": "file: cwd/left.txt",
    "temporary_file": "file: tmp/tmp",
    "unable_to_look": "/nowhere",
}
CLEAN = ("nothing", "what_is_on_its_way_out")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the check said of each test above, by the test's name; "" where it passed."""
    folder = tmp_path_factory.mktemp("leaking")
    (folder / "test_leaks.py").write_text(TESTS_THAT_LEAK)
    report = folder / "report.xml"
    options = (
        "-q",
        "-p",
        "leftovers",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
        f"--rootdir={folder}",
    )
    run = "import sys, leftovers, pytest; leftovers.PATIENCE = 0.2; sys.exit(pytest.main())"
    told = subprocess.run(
        [sys.executable, "-c", run, *options, str(folder)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 1, told.stdout + told.stderr
    said: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.attrib["name"].removeprefix("test_")
        said[name] = said.get(name, "") + "".join(map("".join, (error.itertext() for error in case)))
    return said


@pytest.mark.parametrize("name", LEFT)
def test_a_test_that_leaves_something_fails_and_the_message_names_it(outcomes, name):
    assert LEFT[name] in outcomes[name]


@pytest.mark.parametrize("name", CLEAN)
def test_a_test_that_leaves_nothing_passes(outcomes, name):
    assert outcomes[name] == ""


def test_every_leak_was_tried(outcomes):
    assert sorted(outcomes) == sorted([*LEFT, *CLEAN])
