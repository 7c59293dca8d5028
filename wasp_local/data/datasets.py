"""Data sets by name: the digits that are in the package, and MNIST from its original files.

The one thing to know: a file is read only if it is what its name says, by size, magic number and, where it is
complete, checksum. Whatever is wrong with it is one sentence.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import math
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from wasp_local.data.tensors import Normalise, TensorData
from wasp_local.errors import DataError

__all__ = ["DATASETS", "MIRRORS", "Loaded", "load"]

DATASETS = ("digits", "mnist")
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
SECONDS_WITHOUT_ANSWER = 20.0
MNIST_PIXELS = Normalise(mean=0.1307, std=0.3081)


class Loaded(NamedTuple):
    """A data set."""

    name: str
    train: TensorData
    test: TensorData
    classes: int
    input_shape: tuple[int, ...]  # (channels, height, width)


class _File(NamedTuple):
    name: str
    md5: str  # of the file as unpacked
    shape: tuple[int, ...]


_MNIST = {
    "train_images": _File(
        "train-images-idx3-ubyte",
        "6bbc9ace898e44ae57da46a324031adb",
        (60000, 28, 28),
    ),
    "train_labels": _File(
        "train-labels-idx1-ubyte",
        "a25bea736e30d166cdddb491f175f624",
        (60000,),
    ),
    "test_images": _File(
        "t10k-images-idx3-ubyte",
        "2646ac647ad5339dbf082846283269ea",
        (10000, 28, 28),
    ),
    "test_labels": _File(
        "t10k-labels-idx1-ubyte",
        "27ae3e4e09519cfbb04c329615203637",
        (10000,),
    ),
}


def load(name: str, root: Path | None = None, download: bool = False) -> Loaded:
    """Return the data set of this name.

    Args:
        name: "digits" (in the package) or "mnist".
        root: for mnist the folder in which torchvision keeps it: the files are in `root`/MNIST/raw.
        download: fetch those files of mnist that are not there.

    Raises:
        DataError: a file is missing, damaged or cannot be fetched.
        ValueError: there is no such data set.
    """
    if name == "digits":
        return _digits()
    if name == "mnist":
        return _mnist(Path("data") if root is None else Path(root), download)
    raise ValueError(f"dataset must be one of {', '.join(DATASETS)}, got {name!r}")


def _digits() -> Loaded:
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as arrays:
        return _loaded("digits", {part: arrays[part] for part in _MNIST})


def _mnist(root: Path, download: bool) -> Loaded:
    folder = root.expanduser() / "MNIST" / "raw"
    if download:
        _fetch_missing(folder)
    return _loaded("mnist", {part: _read(folder, file) for part, file in _MNIST.items()})


def _loaded(name: str, arrays: dict[str, NDArray[np.uint8]]) -> Loaded:
    def part(which: str) -> TensorData:
        images = torch.from_numpy(np.array(arrays[f"{which}_images"]))
        labels = torch.from_numpy(arrays[f"{which}_labels"].astype(np.int64))
        return TensorData(images.unsqueeze(1), labels, MNIST_PIXELS)

    return Loaded(name, part("train"), part("test"), classes=10, input_shape=(1, 28, 28))


def _read(folder: Path, file: _File) -> NDArray[np.uint8]:
    """One file of MNIST, unpacked or packed, checked."""
    path, packed = folder / file.name, folder / f"{file.name}.gz"
    try:
        if path.exists():
            data = path.read_bytes()
        else:
            path, data = packed, gzip.decompress(packed.read_bytes())
    except FileNotFoundError:
        raise DataError(
            f"mnist needs {file.name} in {folder}, and it is not there: pass --data-root with the folder that holds "
            "MNIST/raw, or --download to fetch it"
        ) from None
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path} cannot be read ({error}): delete it and fetch it again with --download") from error
    header = 4 + 4 * len(file.shape)
    expected = header + math.prod(file.shape)
    if len(data) != expected:
        raise DataError(
            f"{path} is damaged: it has {len(data):,} bytes unpacked, and {expected:,} would be right: "
            "delete it and fetch it again with --download"
        )
    if hashlib.md5(data, usedforsecurity=False).hexdigest() != file.md5:
        raise DataError(
            f"{path} is not MNIST's {file.name}: its checksum differs: delete it and fetch it again with --download"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(file.shape)


def _fetch_missing(folder: Path) -> None:
    """Fetch what is not there; of several processes only one does, the others wait for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / ".download.lock", "w")  # noqa: SIM115  closed below
    except OSError as error:
        raise DataError(f"mnist cannot be kept in {folder} ({error.strerror}): pass another --data-root") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for file in _MNIST.values():
            if not (folder / file.name).exists() and not (folder / f"{file.name}.gz").exists():
                _fetch(file, folder / f"{file.name}.gz")


def _md5_unpacked(data: bytes) -> str:
    try:
        return hashlib.md5(gzip.decompress(data), usedforsecurity=False).hexdigest()
    except (OSError, EOFError):
        return ""


def _fetch(file: _File, target: Path) -> None:
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    reasons = []
    try:
        for mirror in MIRRORS:
            try:
                with urllib.request.urlopen(mirror + target.name, timeout=SECONDS_WITHOUT_ANSWER) as answer:
                    data = answer.read()
            except (OSError, urllib.error.URLError) as error:
                reasons.append(f"{mirror}: {getattr(error, 'reason', error)}")
                continue
            if _md5_unpacked(data) == file.md5:
                draft.write_bytes(data)
                os.replace(draft, target)
                return
            reasons.append(f"{mirror}: what came is not the file (its checksum differs)")
    finally:
        draft.unlink(missing_ok=True)
    raise DataError(
        f"{target.name} could not be fetched ({'; '.join(reasons)}): check the network, or put the file into "
        f"{target.parent} by hand"
    )
