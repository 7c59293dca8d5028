"""MNIST's four files: read from a folder, checked, and fetched where asked for. No torch.

The one thing to know: a file is used only if it is what its name says, by magic number, size and checksum;
whatever is wrong with it is one sentence of `DataError`. Of several processes that find a file missing only
one fetches it: it holds a lock on a file in the folder meanwhile, which the kernel takes from it if it dies.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import http.client
import math
import os
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wasp_local.errors import DataError

__all__ = ["FILES", "MIRRORS", "File", "fetch_missing", "raw_folder", "read"]

MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
SECONDS_WITHOUT_ANSWER = 8.0
MAX_BYTES = 16 * 2**20  # of a packed file; the largest has 9.9 million
UBYTE = 0x08  # the idx format's code for unsigned bytes
AGAIN = "delete it and fetch it again with --download"


class File(NamedTuple):
    """One file in the idx format: a magic number, the shape, the bytes."""

    name: str
    md5: str  # of the file as unpacked
    shape: tuple[int, ...]

    @property
    def magic(self) -> bytes:
        """The first four bytes."""
        return bytes((0, 0, UBYTE, len(self.shape)))

    @property
    def header(self) -> int:
        """Bytes before the data."""
        return 4 + 4 * len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole."""
        return self.header + math.prod(self.shape)


FILES = {
    "train_images": File("train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb", (60000, 28, 28)),
    "train_labels": File("train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624", (60000,)),
    "test_images": File("t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea", (10000, 28, 28)),
    "test_labels": File("t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637", (10000,)),
}


def raw_folder(root: Path) -> Path:
    """Where torchvision keeps the files below `root`."""
    return root.expanduser() / "MNIST" / "raw"


def read(folder: Path, file: File) -> NDArray[np.uint8]:
    """Read one file, as it is or with .gz, and return its bytes in the shape it should have.

    Raises:
        DataError: it is missing, cannot be read or is damaged.
    """
    path, data = _found(folder, file)
    if data[:4] != file.magic:
        raise DataError(
            f"{path} must begin with {file.magic.hex(' ')}, got {data[:4].hex(' ') or 'nothing'}: {AGAIN}"
        )
    if len(data) != file.nbytes:
        raise DataError(f"{path} must have {file.nbytes:,} bytes unpacked, got {len(data):,}: {AGAIN}")
    if _md5(data) != file.md5:
        raise DataError(f"{path} must have the MD5 {file.md5} unpacked, got {_md5(data)}: {AGAIN}")
    return np.frombuffer(data, np.uint8, offset=file.header).reshape(file.shape)


def _found(folder: Path, file: File) -> tuple[Path, bytes]:
    """The file's path and its bytes, unpacked."""
    path, packed = folder / file.name, folder / f"{file.name}.gz"
    try:
        if path.exists():
            return path, path.read_bytes()
        path = packed
        return path, gzip.decompress(packed.read_bytes())
    except FileNotFoundError:
        raise DataError(
            f"mnist needs {file.name}, got no such file in {folder}: pass --data-root with the folder that "
            "holds MNIST/raw, or --download to fetch it"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path} must be a whole gzip file, got one that is damaged ({error}): {AGAIN}"
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def fetch_missing(
    folder: Path, mirrors: Sequence[str] = MIRRORS, files: Iterable[File] = tuple(FILES.values())
) -> None:
    """Fetch those of the files that `folder` hasn't, one request each unless a mirror fails.

    Raises:
        DataError: a file cannot be fetched or kept.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / ".download.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # waits while another process fetches
            for file in files:
                if not any((folder / name).exists() for name in (file.name, f"{file.name}.gz")):
                    _keep(_fetched(file, folder, mirrors), folder / file.name)
    except OSError as error:
        raise DataError(
            f"mnist cannot be kept in {folder} ({error.strerror}): pass another --data-root"
        ) from error


def _keep(data: bytes, target: Path) -> None:
    """Write the file so that it is there whole or not at all; the caller holds the folder's lock."""
    draft = target.with_name(f".{target.name}.part")
    try:
        draft.write_bytes(data)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def _fetched(file: File, folder: Path, mirrors: Sequence[str]) -> bytes:
    """The file's bytes, unpacked, from the first mirror that has the right ones."""
    reasons = []
    for mirror in mirrors:
        url = f"{mirror}{file.name}.gz"
        try:
            with urllib.request.urlopen(url, timeout=SECONDS_WITHOUT_ANSWER) as answer:
                data = gzip.decompress(answer.read(MAX_BYTES))
        except urllib.error.HTTPError as error:
            error.close()
            reasons.append(f"{url} answered {error.code} {error.reason}")
        except (gzip.BadGzipFile, EOFError, zlib.error):
            reasons.append(f"{url} sent something damaged")
        except (OSError, http.client.HTTPException) as error:
            reasons.append(f"{url} gave no answer: {getattr(error, 'reason', error)}")
        else:
            if _md5(data) == file.md5:
                return data
            reasons.append(f"{url} sent another file")
    raise DataError(
        f"{file.name} cannot be fetched ({'; '.join(reasons)}): check the network, or put the file, or its "
        f".gz, into {folder} by hand"
    )


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
