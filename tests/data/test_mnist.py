"""MNIST's files: a damaged or missing one is one sentence, and each is fetched once."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from wasp_local.data import mnist
from wasp_local.data.mnist import File
from wasp_local.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 4, 4), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1, 5], dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    """The array in the idx format."""
    shape = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes((0, 0, 8, array.ndim)) + shape + array.tobytes()


def file_of(name: str, array: np.ndarray) -> File:
    return File(name, hashlib.md5(idx(array)).hexdigest(), array.shape)


IMAGES_FILE = file_of("small-images", PIXELS)
LABELS_FILE = file_of("small-labels", LABELS)
FILES = (IMAGES_FILE, LABELS_FILE)
CONTENT = {"small-images": idx(PIXELS), "small-labels": idx(LABELS)}


class Mirror:
    """A server on this machine that counts what it is asked for, and may be told to answer badly."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.answers = {f"/{name}.gz": gzip.compress(data) for name, data in CONTENT.items()}
        self.status = 200
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.asked[self.path] += 1
                self.send_response(mirror.status)
                self.end_headers()
                if mirror.status == 200:
                    self.wfile.write(mirror.answers[self.path])

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    mirror = Mirror()
    thread = threading.Thread(target=mirror.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield mirror
    mirror.server.shutdown()
    thread.join()
    mirror.server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with both files as they should be."""
    for name, data in CONTENT.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_a_file_is_read_as_it_is_or_packed(folder):
    np.testing.assert_array_equal(mnist.read(folder, IMAGES_FILE), PIXELS)
    (folder / "small-labels.gz").write_bytes(gzip.compress(CONTENT["small-labels"]))
    (folder / "small-labels").unlink()
    np.testing.assert_array_equal(mnist.read(folder, LABELS_FILE), LABELS)


def swap(folder: Path) -> None:
    shutil.copy(folder / "small-labels", folder / "small-images")


def shuffle_labels(folder: Path) -> None:
    (folder / "small-labels").write_bytes(idx(LABELS[::-1]))


def truncate(folder: Path) -> None:
    (folder / "small-images").write_bytes(CONTENT["small-images"][:-1])


def truncate_packed(folder: Path) -> None:
    (folder / "small-images").unlink()
    (folder / "small-images.gz").write_bytes(gzip.compress(CONTENT["small-images"])[:-20])


def spoil_packed(folder: Path) -> None:
    (folder / "small-images").unlink()
    (folder / "small-images.gz").write_bytes(b"<html>not found</html>")


def spoil_middle_of_packed(folder: Path) -> None:
    (folder / "small-images").unlink()
    packed = bytearray(gzip.compress(CONTENT["small-images"]))
    packed[10] ^= 0b110  # the kind of the first block
    (folder / "small-images.gz").write_bytes(packed)


def empty(folder: Path) -> None:
    (folder / "small-images").write_bytes(b"")


def remove(folder: Path) -> None:
    (folder / "small-images").unlink()


def make_a_folder_of_it(folder: Path) -> None:
    (folder / "small-images").unlink()
    (folder / "small-images").mkdir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (swap, r"small-images must begin with 00 00 08 03, got 00 00 08 01: delete it and fetch it again"),
        (shuffle_labels, r"small-labels must have the MD5 \w{32} unpacked, got \w{32}: delete it"),
        (truncate, r"small-images must have 96 bytes unpacked, got 95: delete it"),
        (
            truncate_packed,
            r"small-images.gz must be a whole gzip file, got one that is damaged .*: delete it",
        ),
        (spoil_packed, r"small-images.gz must be a whole gzip file, got one that is damaged .*: delete it"),
        (spoil_middle_of_packed, r"small-images.gz must be a whole gzip file, got .* damaged .*: delete it"),
        (empty, r"small-images must begin with 00 00 08 03, got nothing: delete it"),
        (remove, r"^mnist needs small-images, got no such file in .*: pass --data-root .* or --download"),
        (make_a_folder_of_it, r"small-images cannot be read: Is a directory$"),
    ],
)
def test_a_missing_or_damaged_file_is_one_sentence(folder, damage, message):
    damage(folder)
    with pytest.raises(DataError, match=message) as caught:
        [mnist.read(folder, file) for file in FILES]
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_fetched_once_and_kept_as_it_should_be(mirror, tmp_path):
    folder = tmp_path / "MNIST" / "raw"
    for _ in range(2):
        mnist.fetch_missing(folder, [mirror.url], FILES)
    assert mirror.asked == {"/small-images.gz": 1, "/small-labels.gz": 1}
    assert {name: (folder / name).read_bytes() for name in CONTENT} == CONTENT
    assert sorted(path.name for path in folder.iterdir()) == [".download.lock", *sorted(CONTENT)]


def test_a_file_that_is_there_is_not_fetched(mirror, folder):
    (folder / "small-labels").unlink()
    mnist.fetch_missing(folder, [mirror.url], FILES)
    assert mirror.asked == {"/small-labels.gz": 1}


def test_four_processes_with_an_empty_folder_send_one_request_a_file(mirror, tmp_path):
    program = (
        "import sys; from pathlib import Path; from wasp_local.data.mnist import *; "
        "print('ready', flush=True); sys.stdin.read(); "
        f"fetch_missing(Path({str(tmp_path)!r}), [{mirror.url!r}], {FILES!r})"
    )
    command = [sys.executable, "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(4)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 4
    for process in processes:
        process.stdin.close()  # which lets all four go on
        process.stdout.close()
    assert [process.wait() for process in processes] == [0] * 4
    assert mirror.asked == {"/small-images.gz": 1, "/small-labels.gz": 1}


def test_the_next_mirror_is_asked_where_one_fails(mirror, tmp_path):
    mnist.fetch_missing(tmp_path, ["http://127.0.0.1:9/", mirror.url], FILES)
    np.testing.assert_array_equal(mnist.read(tmp_path, IMAGES_FILE), PIXELS)


@pytest.mark.parametrize(
    ("status", "sent", "reason"),
    [
        (503, b"", "answered 503 Service Unavailable"),
        (403, b"", "answered 403 Forbidden"),
        (200, b"<html>moved</html>", "sent something damaged"),
        (200, gzip.compress(CONTENT["small-images"])[:-9], "sent something damaged"),
        (200, gzip.compress(b"another file"), "sent another file"),
    ],
)
def test_a_bad_answer_is_one_sentence_and_nothing_is_kept(mirror, tmp_path, status, sent, reason):
    mirror.status, mirror.answers["/small-images.gz"] = status, sent
    with pytest.raises(
        DataError, match=rf"^small-images cannot be fetched \(.*{reason}\): check the network"
    ):
        mnist.fetch_missing(tmp_path, [mirror.url], FILES)
    assert [path.name for path in tmp_path.iterdir()] == [".download.lock"]


def test_no_network_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"cannot be fetched \(.* gave no answer: .*refused\): check"):
        mnist.fetch_missing(tmp_path, ["http://127.0.0.1:9/"], FILES)


def test_a_server_that_says_nothing_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "SECONDS_WITHOUT_ANSWER", 0.05)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:  # accepts, never serves
        url = f"http://127.0.0.1:{silent.server_port}/"
        with pytest.raises(DataError, match=r"gave no answer: .*timed out"):
            mnist.fetch_missing(tmp_path, [url], FILES)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        DataError, match=r"^mnist cannot be kept in .*Not a directory\): pass another --data-root"
    ):
        mnist.fetch_missing(tmp_path / "file" / "MNIST", [], FILES)
