"""Feature files of the field behind one interface: id → rows (frames of a video, tokens of a caption)."""

from __future__ import annotations

import ast
import json
import math
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from holmes.base.files import read_file
from holmes.errors import HolmesError

Array = NDArray[Any]
LARGEST_ITEM = 1 << 30  # bytes of one video or caption; 36 hours at two rows of 1024 per second
LARGEST_CHUNK = 64 << 20  # bytes of a chunk of a small item; a chunk is read as a whole
MOST_DIGITS = 15  # of a number in shape.txt
BIGFILE = ("feature.bin", "shape.txt", "id.txt", "video2frames.txt")
ELSEWHERE = "leads to another place or file, which is not followed; copy its rows into this file."


class Features(Protocol):
    """An open feature set. `path` is the file that error messages name."""

    path: Path

    def shape(self, name: str) -> tuple[int, int] | None:
        """Rows and width, or None where there is no such id."""

    def rows(self, name: str) -> Array: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def open_features(path: Path) -> Features:
    """A folder with a BigFile or a `feature.hdf5`, or an HDF5 file."""
    if path.is_dir():
        return HDF5Features(path / "feature.hdf5") if (path / "feature.hdf5").is_file() else BigFile(path)
    return HDF5Features(path)


class HDF5Features:
    """One dataset (rows × width) per id; a dataset of one dimension is a single row.

    Only what lies in the file itself is read: HDF5 can also point to other files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise HolmesError(f"{path} is not a regular file.")
        try:
            self.file = h5py.File(path, "r")
        except FileNotFoundError:
            raise HolmesError(f"{path} does not exist.") from None
        except OSError as error:
            raise HolmesError(f"{path} is not a readable HDF5 file ({error}); get it again.") from None

    def shape(self, name: str) -> tuple[int, int] | None:
        item = self._item(name)
        if item is None:
            return None
        if not isinstance(item, h5py.Dataset) or item.ndim not in (1, 2) or item.dtype.kind != "f":
            raise HolmesError(
                f"{self.path}: '{name}' is not a table of floats (rows × width); extract it again."
            )
        if item.is_virtual or item.external:
            raise HolmesError(f"{self.path}: '{name}' {ELSEWHERE}")
        if item.size * item.dtype.itemsize > LARGEST_ITEM:
            raise HolmesError(
                f"{self.path}: '{name}' declares {' × '.join(map(str, item.shape))} numbers, more than "
                f"the {LARGEST_ITEM >> 20} MiB that one item may have; extract it again."
            )
        most = max(item.nbytes, LARGEST_CHUNK)
        if item.chunks is not None and (chunk := math.prod(item.chunks) * item.dtype.itemsize) > most:
            raise HolmesError(
                f"{self.path}: '{name}' is stored in chunks of {chunk >> 20} MiB, more than the "
                f"{most >> 20} MiB that a reader may take for it; extract it again."
            )
        return (1, item.shape[0]) if item.ndim == 1 else item.shape

    def _item(self, name: str) -> Any:
        """What has this name, found without following any link; None where nothing has."""
        try:
            at = self.file
            for part in name.split("/"):
                links = at.id.links  # `in` and `[]` would follow whatever is there
                if not links.exists(part.encode()):
                    return None
                if links.get_info(part.encode()).type != h5py.h5l.TYPE_HARD:
                    raise HolmesError(f"{self.path}: '{name}' {ELSEWHERE}")
                at = at[part]
            return at
        except (KeyError, ValueError, TypeError, AttributeError, OSError, RuntimeError) as error:
            raise self._unreadable(name, error) from None

    def rows(self, name: str) -> Array:
        try:
            return np.atleast_2d(self._item(name)[()])
        except (OSError, ValueError, TypeError, RuntimeError, MemoryError) as error:
            raise self._unreadable(name, error) from None

    def _unreadable(self, name: str, error: Exception) -> HolmesError:
        why = " ".join(str(error).split())[:120]
        return HolmesError(f"{self.path}: '{name}' cannot be read ({why}); get the file again.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


class BigFile:
    """`feature.bin` (float32, row after row), `shape.txt`, `id.txt` and `video2frames.txt`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "feature.bin"
        for name in BIGFILE:
            if not (folder / name).is_file():
                raise HolmesError(
                    f"{folder / name} does not exist; a BigFile needs it: get the folder again."
                )
        count, self.width = read_shape(folder / "shape.txt")
        size, expected = self.path.stat().st_size, 4 * count * self.width
        if size != expected:
            state = "is truncated" if size < expected else "is too long"
            raise HolmesError(
                f"{self.path} {state}: it has {size} bytes, but shape.txt says {count} × {self.width} × 4, "
                f"{expected} bytes; get feature.bin or shape.txt again."
            )
        ids = read_file(folder / "id.txt").decode("iso-8859-1").split()
        if len(ids) != count:
            raise HolmesError(
                f"{folder / 'id.txt'} has {len(ids)} ids and shape.txt says {count}; get it again."
            )
        self.frames = read_video2frames(folder / "video2frames.txt")
        self.row_of = {name: row for row, name in enumerate(ids)}
        self.file = open(self.path, "rb")  # noqa: SIM115 (closed on exit)

    def shape(self, name: str) -> tuple[int, int] | None:
        return (len(self.frames[name]), self.width) if name in self.frames else None

    def rows(self, name: str) -> Array:
        try:
            numbers = np.array([self.row_of[frame] for frame in self.frames[name]])
        except KeyError as error:
            raise HolmesError(
                f"{self.path.parent / 'id.txt'} lacks frame {error} of video '{name}'; get the folder again."
            ) from None
        runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)  # usually one
        return np.concatenate([self._read(int(run[0]), len(run)) for run in runs])

    def _read(self, first: int, count: int) -> Array:
        """Read the rows plainly: a mapped file would count as our memory."""
        self.file.seek(4 * self.width * first)
        return np.fromfile(self.file, "<f4", count * self.width).reshape(count, self.width)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


def read_shape(path: Path) -> tuple[int, int]:
    words = read_file(path).decode("iso-8859-1").split()
    if len(words) != 2 or not all(
        word.isdecimal() and len(word) <= MOST_DIGITS and int(word) > 0 for word in words
    ):
        raise HolmesError(f"{path} says '{' '.join(words)[:60]}' instead of 'rows width'; get it again.")
    return int(words[0]), int(words[1])


def read_video2frames(path: Path) -> dict[str, list[str]]:
    """A Python dict literal, read as data: nothing in it is ever run."""
    text = read_file(path).decode("iso-8859-1")
    try:
        value = as_json(text)
        value = ast.literal_eval(text) if value is None else value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, dict) or not all(
        isinstance(video, str)
        and isinstance(frames, list)
        and all(isinstance(frame, str) for frame in frames)
        for video, frames in value.items()
    ):
        raise HolmesError(f"{path} is not a plain literal {{'video': ['frame', …], …}}; get it again.")
    return value


def as_json(text: str) -> Any:
    """A literal of plain names in single quotes, which is JSON but for its quotes; None for any other.

    So the field writes it. Python's own parser takes 40 times as long, 16 s for ActivityNet.
    """
    if '"' in text or "\\" in text:
        return None
    with suppress(ValueError):
        return json.loads(text.replace("'", '"'))
    return None
