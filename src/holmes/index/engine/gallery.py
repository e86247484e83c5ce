"""The embeddings of an index in memory: mapped from disk, or resident on a GPU.

The unit of search is a part: a short video is one part, a long video has several.

S parts of videos, P rows of a part, D width
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.errors import HolmesError
from holmes.index.storage.checksums import checksums
from holmes.index.storage.segments import Slab, mapping_of, rows_do_not_match
from holmes.index.storage.store import IndexStore

SHARE_OF_FREE_MEMORY = 0.8  # of a GPU's memory that embeddings may fill
AROUND_ROW = 64 << 10  # most bytes that the system maps to read one row
VERIFIED_AT_ONCE = 64 << 20  # bytes of rows whose checksums are computed together
MOST_RESIDENT = 256 << 20  # bytes of float16 rows that may stay mapped after a search


@dataclass
class MappedRows:
    """Files of float16 rows that stay on the disk. Each search reads a few rows, mostly different ones."""

    files: tuple[mmap.mmap, ...] = ()
    touched: int = 0  # bytes that may have been mapped since the last release

    def release(self) -> None:
        """Unmap the rows once many are mapped. Not after every search: mapping them again takes time."""
        if self.touched > MOST_RESIDENT:
            self.touched = 0
            for file in self.files:
                file.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True)
class GallerySlab:
    """The gallery's parts from `first` on, some with equally many rows."""

    first: int
    codes_SPD: Tensor  # int8, to be scanned
    numbers_S3: Tensor  # of the codes
    rows_SPD: Tensor  # float16, to be scored exactly; in host memory where a GPU has too little
    sums_SP: Tensor | None = None  # checksums of rows that are still to be verified, where the rows are


@dataclass(frozen=True)
class Gallery:
    """Every part of an index's videos, removed ones included, numbered slab by slab.

    A video's parts are neighbours, in order of time.
    """

    slabs: tuple[GallerySlab, ...]
    clips: int
    positions_S2: NDArray[np.int64]  # the segment of each part's video and its position there
    video_S: Tensor  # a number for each part's video
    key_S: Tensor  # orders equal scores the same way in every index; one per video
    live_S: Tensor  # false where a video has been removed
    device: torch.device
    mapped_rows: MappedRows = field(default_factory=MappedRows)

    def __len__(self) -> int:
        return len(self.positions_S2)

    @cached_property
    def live(self) -> int:
        """How many parts have not been removed."""
        return int(self.live_S.sum())

    @cached_property
    def videos(self) -> int:
        """How many videos there are, removed ones included."""
        return int(self.video_S.max()) + 1

    @cached_property
    def in_parts(self) -> bool:
        """Whether any video that has not been removed has more than one part."""
        return bool(((self.video_S[1:] == self.video_S[:-1]) & self.live_S[1:]).any())

    @cached_property
    def usual_error_3(self) -> Tensor:
        """The mean ρ of the parts' frames, that of their clips, and 1, as `Probes.error_Q3` weighs them."""
        error_S2 = torch.cat([slab.numbers_S3[:, 1:] for slab in self.slabs])
        return torch.cat([error_S2.mean(0), torch.ones_like(error_S2[0, :1])])


def open_gallery(store: IndexStore, device: torch.device) -> Gallery:
    """On a CPU nothing is read; on a GPU slabs of equal height are joined, copied there piece by piece."""
    slabs = [(number, slab) for number, segment in enumerate(store.segments) for slab in segment.slabs]
    slabs.sort(key=lambda numbered: _height(numbered[1]))
    described = [_describe(store, number, slab) for number, slab in slabs]
    nothing = _Described(np.zeros((0, 2), np.int64), *(np.zeros(0, np.int64),) * 2, np.zeros(0, bool))
    whole = _Described(*(np.concatenate(arrays) for arrays in zip(nothing, *described, strict=True)))
    rows_fit = device.type != "cpu" and _rows_fit(store, device)
    groups = [list(group) for _, group in groupby((slab for _, slab in slabs), _height)]
    if not rows_fit:  # the rows stay in mapped files, one slab each
        groups = [[slab] for _, slab in slabs]
    if rows_fit:  # verified now, because every search reads all rows
        for _, slab in slabs:
            verify_rows(store, slab, device)
    firsts = np.cumsum([0, *(sum(len(slab.rows_SPD) for slab in group) for group in groups)]).tolist()
    return Gallery(
        tuple(
            GallerySlab(
                first,
                _joined([slab.codes_SPD for slab in group], device),
                _joined([slab.numbers_S3 for slab in group], device),
                _joined([slab.rows_SPD for slab in group], device if rows_fit else torch.device("cpu")),
                None if rows_fit or group[0].sums_SP is None else torch.from_numpy(group[0].sums_SP),
            )
            for first, group in zip(firsts, groups, strict=False)
        ),
        store.manifest.clips,
        whole.positions_S2,
        torch.from_numpy(whole.video_S).to(device),
        torch.from_numpy(whole.key_S).to(device),
        torch.from_numpy(whole.live_S).to(device),
        device,
        MappedRows(() if rows_fit else tuple(mapping_of(segment.rows_ND) for segment in store.segments)),
    )


def verify_rows(store: IndexStore, slab: Slab, device: torch.device) -> None:
    """Refuse rows that do not match their checksums; a GPU computes these, some parts at a time."""
    if slab.sums_SP is None:
        return
    step = max(1, VERIFIED_AT_ONCE // slab.rows_SPD[:1].nbytes)
    for at in range(0, len(slab.rows_SPD), step):
        rows_SPD, sums_SP = (
            torch.from_numpy(array[at : at + step]).to(device) for array in (slab.rows_SPD, slab.sums_SP)
        )
        if not torch.equal(checksums(rows_SPD.flatten(0, 1)), sums_SP.flatten()):
            raise HolmesError(rows_do_not_match(store.path))


def _height(slab: Slab) -> int:
    return int(slab.rows_SPD.shape[1])


class _Described(NamedTuple):
    """What a gallery knows of some parts."""

    positions_S2: NDArray[np.int64]
    video_S: NDArray[np.int64]
    key_S: NDArray[np.int64]
    live_S: NDArray[np.bool_]


def _describe(store: IndexStore, number: int, slab: Slab) -> _Described:
    segment = store.segments[number]
    live_V = np.ones(segment.entry.videos, bool)
    live_V[list(segment.entry.removed)] = False
    position_S = np.repeat(np.arange(slab.first, slab.end), segment.parts_V[slab.first : slab.end])
    before = sum(earlier.entry.videos for earlier in store.segments[:number])
    return _Described(
        np.stack([np.full_like(position_S, number), position_S], axis=1),
        before + position_S,
        segment.key_V[position_S].astype(np.int64),
        live_V[position_S],
    )


def _joined(arrays: list[NDArray[Any]], device: torch.device) -> Tensor:
    """Arrays joined. On a CPU there is only one, which stays mapped; on a GPU they are copied one by one."""
    if device.type == "cpu":
        (array,) = arrays
        return torch.from_numpy(array)
    parts = sum(map(len, arrays))
    whole = torch.empty(
        (parts, *arrays[0].shape[1:]), dtype=torch.from_numpy(arrays[0][:0]).dtype, device=device
    )
    start = 0
    for array in arrays:
        whole[start : start + len(array)].copy_(torch.from_numpy(array))
        start += len(array)
    return whole


def _rows_fit(store: IndexStore, device: torch.device) -> bool:
    """Whether the float16 rows fit on a GPU beside the codes; an error where not even the codes do."""
    codes = sum(segment.codes_ND.nbytes for segment in store.segments)
    rows = sum(segment.rows_ND.nbytes for segment in store.segments)
    free, _ = torch.cuda.mem_get_info(device)
    allowed = SHARE_OF_FREE_MEMORY * free
    if codes > allowed:
        raise HolmesError(
            f"{store.path} has {codes / 2**30:.1f} GiB of embeddings, but {device} has {free / 2**30:.1f} "
            "GiB free; search it with device 'cpu'."
        )
    return codes + rows <= allowed
