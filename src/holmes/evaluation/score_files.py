"""Score matrices of other code (queries × videos), checked against a store.

    np.savez("scores.npz", scores=scores, queries=query_ids, videos=video_ids)

`.npy` holds the matrix alone, in the order of the store's split. `.npz` and `.h5` hold `scores`, and names in
`queries` and `videos` if the order is another. `.parquet` has a column `query` and a column for every video,
or the columns `query`, `video` and `score`.

Q queries, V videos
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from holmes.base.files import atomic_file, sha256_file
from holmes.data.store import Split, Store
from holmes.errors import HolmesError, missing_packages

ENDINGS = (".npy", ".npz", ".h5", ".hdf5", ".parquet")
LARGEST = 4 << 30  # bytes of a matrix: a small file can unpack to far more
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    OverflowError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
Matrix = NDArray[np.float64]  # scores that differ must not become equal
HOW = "save np.savez(FILE, scores=…, queries=ids, videos=ids)"


@dataclass(frozen=True)
class ScoreFile:
    """What a file says: scores, and the names of its rows and columns where it gives them."""

    path: Path
    scores: NDArray[Any]
    queries: list[str] | None = None
    videos: list[str] | None = None

    def aligned(self, store: Store, split: Split) -> Matrix:
        """The matrix in the order of a split; a missing query or video, or a score like NaN, is refused."""
        if self.scores.ndim != 2 or self.scores.dtype.kind not in "fiu":
            raise HolmesError(
                f"{self.path} holds {self.scores.dtype} of shape {self.scores.shape}, not a matrix of "
                "numbers, queries × videos."
            )
        rows = self._positions("queries", self.queries, [store.query_ids[q] for q in split.queries], 0, split)
        columns = self._positions("videos", self.videos, [store.video_ids[v] for v in split.videos], 1, split)
        with np.errstate(over="ignore"):
            matrix = np.asarray(self.scores[np.ix_(rows, columns)], np.float64)
        broken = np.argwhere(~np.isfinite(matrix))
        if len(broken):
            row, column = broken[0]
            query, video = store.query_ids[split.queries[row]], store.video_ids[split.videos[column]]
            raise HolmesError(
                f"{self.path} has {len(broken):,} scores that are not finite; the first is that of query "
                f"{query!r} and video {video!r}. Save a finite number for every pair."
            )
        return matrix

    def _positions(
        self, what: str, names: list[str] | None, wanted: Sequence[str], axis: int, split: Split
    ) -> NDArray[np.int64]:
        """Where the split's queries or videos stand in the file."""
        found = self.scores.shape[axis]
        if names is None:
            if found != len(wanted):
                raise HolmesError(
                    f"{self.path} has {found:,} {what}, the split '{split.name}' has {len(wanted):,}; "
                    f"name them in the file to choose among them ({HOW}), or name another split."
                )
            return np.arange(found)
        if len(names) != found:
            raise HolmesError(f"{self.path} names {len(names):,} {what} for {found:,} rows or columns.")
        position = {name: number for number, name in enumerate(names)}
        if len(position) < len(names):
            twice = next(name for number, name in enumerate(names) if position[name] != number)
            raise HolmesError(f"{self.path} has {what} twice, such as {twice!r}.")
        missing = [name for name in wanted if name not in position]
        if missing:
            others = sorted(position.keys() - set(wanted))
            raise HolmesError(
                f"{self.path} lacks {len(missing):,} of the {len(wanted):,} {what} of the split "
                f"'{split.name}', such as {missing[0]!r}"
                + (f"; it has others, such as {others[0]!r}." if others else ".")
            )
        return np.array([position[name] for name in wanted])

    @property
    def digest(self) -> str:
        return sha256_file(self.path)


def is_score_file(path: Path) -> bool:
    return path.suffix in ENDINGS and not path.is_dir()


def read_scores(path: Path) -> ScoreFile:
    """A score file of any of the known kinds; nothing in it is executed."""
    if path.suffix not in ENDINGS:
        raise HolmesError(f"{path}: scores are read from {', '.join(ENDINGS)}; {HOW}.")
    if not path.is_file():
        raise HolmesError(f"{path} does not exist.")
    readers = {".npy": _read_npy, ".npz": _read_npz, ".parquet": _read_parquet}
    try:
        return readers.get(path.suffix, _read_hdf5)(path)
    except UNREADABLE as error:
        why = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise HolmesError(f"{path} cannot be read as scores: {why}.") from None


def save_scores(path: Path, scores_QV: NDArray[Any], store: Store, split: Split) -> None:
    """Write an `.npz` that `read_scores` takes."""
    if path.suffix != ".npz":
        raise HolmesError(f"{path}: scores are written as .npz.")
    with atomic_file(path) as file:
        np.savez_compressed(
            file,
            scores=np.asarray(scores_QV, np.float32),
            queries=np.array([store.query_ids[query] for query in split.queries]),
            videos=np.array([store.video_ids[video] for video in split.videos]),
        )


def _read_npy(path: Path) -> ScoreFile:
    try:
        return ScoreFile(path, np.load(path, allow_pickle=False, mmap_mode="r"))
    except ValueError:  # NumPy's own message advises to unpickle the file
        raise ValueError("it is not a NumPy file of numbers") from None


def _read_npz(path: Path) -> ScoreFile:
    with zipfile.ZipFile(path) as archive:
        _check_size(sum(entry.file_size for entry in archive.infolist()))
    with np.load(path, allow_pickle=False) as arrays:
        key = "scores" if "scores" in arrays.files else _only(arrays.files)
        found = {name: _entry(arrays, name) for name in {key, "queries", "videos"} & {*arrays.files}}
        return ScoreFile(path, found[key], *(_names(found, name) for name in ("queries", "videos")))


def _entry(arrays: Any, name: str) -> NDArray[Any]:
    try:
        found: NDArray[Any] = arrays[name]
    except ValueError:  # NumPy names an option of its own
        raise ValueError(
            f"'{name}' is not a whole array of numbers or text; save names as np.array(names, str)"
        ) from None
    return found


def _read_hdf5(path: Path) -> ScoreFile:
    with h5py.File(path, "r") as file:
        arrays = {name: file[name] for name in file if _is_own_dataset(file, name)}
        key = "scores" if "scores" in arrays else _only([n for n in arrays if arrays[n].ndim == 2])
        for name in {key, "queries", "videos"} & arrays.keys():
            chunk = math.prod(arrays[name].chunks or ()) * arrays[name].dtype.itemsize
            _check_size(max(arrays[name].nbytes, chunk))
        return ScoreFile(path, arrays[key][()], *(_names(arrays, name) for name in ("queries", "videos")))


def _is_own_dataset(file: h5py.File, name: str) -> bool:
    """Whether it lies in the file itself: HDF5 can also point to other files."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        return False
    item = file[name]
    return isinstance(item, h5py.Dataset) and not item.is_virtual and not item.external


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise ValueError(f"it would take {size / 2**30:,.1f} GiB, more than the {LARGEST >> 30} GiB allowed")


def _only(names: Sequence[str]) -> str:
    if len(names) != 1:
        raise ValueError(f"it has no 'scores', but {', '.join(sorted(names)) or 'nothing'}")
    return names[0]


def _names(arrays: Any, key: str) -> list[str] | None:
    """Names of rows or columns, from text of any kind."""
    if key not in arrays:
        return None
    values = np.asarray(arrays[key])
    return [name.decode() if isinstance(name, bytes) else str(name) for name in values.ravel().tolist()]


def _read_parquet(path: Path) -> ScoreFile:
    try:
        from pyarrow import parquet
    except ImportError:
        raise missing_packages(f"{path} is a Parquet file, which", "pyarrow") from None
    try:
        kinds = {field.name: str(field.type) for field in parquet.read_schema(path)}
        texts = [name for name in ("query", "video") if kinds.get(name) in ("string", "large_string")]
        file = parquet.ParquetFile(path, read_dictionary=texts)
        _check_size(8 * file.metadata.num_rows * file.metadata.num_columns)
        table = file.read()
    except Exception as error:  # Arrow's errors are of many kinds
        raise ValueError(str(error)) from None
    columns = table.column_names
    if "query" not in columns:
        raise ValueError(f"it has no column 'query', but {', '.join(columns[:5])}")
    queries, row = _coded(table["query"])
    if set(columns) == {"query", "video", "score"}:
        return _pivoted(path, queries, row, *_coded(table["video"]), table["score"].to_numpy())
    videos = [name for name in columns if name != "query"]
    scores = np.empty((len(row), len(videos)))
    for position, name in enumerate(videos):
        scores[:, position] = table[name].to_numpy()
    return ScoreFile(path, scores, [queries[number] for number in row.tolist()], videos)


def _coded(column: Any) -> tuple[list[str], NDArray[np.int64]]:
    """A column as its different names and a number for each row; a long name that repeats is kept once."""
    coded = column.unify_dictionaries().combine_chunks().dictionary_encode()
    return [str(name) for name in coded.dictionary.to_pylist()], coded.indices.to_numpy().astype(np.int64)


def _pivoted(
    path: Path,
    queries: list[str],
    row: NDArray[np.int64],
    videos: list[str],
    column: NDArray[np.int64],
    score: NDArray[Any],
) -> ScoreFile:
    """One row per pair, as a matrix; a pair that is missing or named twice is refused."""
    pairs = len(queries) * len(videos)
    if len(row) != pairs or len(np.unique(row * len(videos) + column)) != pairs:
        raise ValueError(
            f"it has {len(row):,} rows, not one for each of {len(queries):,} queries × {len(videos):,} videos"
        )
    scores = np.empty((len(queries), len(videos)))
    scores[row, column] = score
    return ScoreFile(path, scores, queries, videos)


def read_also_fits(path: Path, store: Store) -> dict[int, list[int]]:
    """Query → further videos that fit it, from JSON that names both as the store does."""
    try:
        given = json.loads(path.read_text())
    except FileNotFoundError:
        raise HolmesError(f"{path} does not exist.") from None
    except (OSError, ValueError) as error:
        raise HolmesError(f"{path} is not JSON: {error}.") from None
    if not isinstance(given, dict) or not all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in given.values()
    ):
        raise HolmesError(f'{path} must map queries to lists of videos, such as {{"query": ["video"]}}.')
    query_of = {name: number for number, name in enumerate(store.query_ids)}
    video_of = {name: number for number, name in enumerate(store.video_ids)}
    for known, names in ((query_of, given), (video_of, {name for some in given.values() for name in some})):
        unknown_names = sorted(set(names) - set(known))
        if unknown_names:
            raise HolmesError(f"{path} names {unknown_names[0]!r}, which {store.path} does not have.")
    return {query_of[query]: [video_of[name] for name in names] for query, names in given.items()}
