"""The embeddings of an index where they are searched: mapped from the disk, or resident on a GPU.

What is searched are parts: a short video is one, a long one several.

S parts of videos, P rows of a part, D width
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.errors import HolmesError
from holmes.index.segment import Slab
from holmes.index.store import IndexStore

SHARE_OF_FREE_MEMORY = 0.8  # of a GPU that embeddings may fill


@dataclass(frozen=True)
class GallerySlab:
    """Parts with equally many rows: `rows_SPD` holds the gallery's parts from `first` on."""

    first: int
    rows_SPD: Tensor  # float16


@dataclass(frozen=True)
class Gallery:
    """Every part of an index's videos, removed ones included, numbered slab by slab.

    A video's parts are neighbours, in order of time.
    """

    slabs: tuple[GallerySlab, ...]
    clips: int
    places_S2: NDArray[np.int64]  # the segment of each part's video and its position there
    video_S: Tensor  # a number for each part's video
    key_S: Tensor  # orders equal scores, in every index alike; belongs to the video
    live_S: Tensor  # false where a video has been removed
    device: torch.device

    def __len__(self) -> int:
        return len(self.places_S2)

    @cached_property
    def live(self) -> int:
        """How many parts have not been removed."""
        return int(self.live_S.sum())

    @cached_property
    def videos(self) -> int:
        """How many there are, removed ones included."""
        return int(self.video_S.max()) + 1

    @cached_property
    def in_parts(self) -> bool:
        """Whether any video has more than one part."""
        return bool((self.video_S[1:] == self.video_S[:-1]).any())


def open_gallery(store: IndexStore, device: torch.device) -> Gallery:
    """On a CPU nothing is read; on a GPU slabs of equal height become one, copied there part by part."""
    slabs = [(number, slab) for number, segment in enumerate(store.segments) for slab in segment.slabs]
    slabs.sort(key=lambda numbered: _height(numbered[1]))
    described = [_describe(store, number, slab) for number, slab in slabs]
    nothing = _Described(np.zeros((0, 2), np.int64), *(np.zeros(0, np.int64),) * 2, np.zeros(0, bool))
    whole = _Described(*(np.concatenate(arrays) for arrays in zip(nothing, *described, strict=True)))
    if device.type == "cpu":
        tensors = [torch.from_numpy(slab.rows_SPD) for _, slab in slabs]
    else:
        _check_memory(store, device)
        by_height = groupby((slab for _, slab in slabs), _height)
        tensors = [_upload(list(group), device) for _, group in by_height]
    firsts = np.cumsum([0, *map(len, tensors)]).tolist()
    return Gallery(
        tuple(GallerySlab(first, rows_SPD) for first, rows_SPD in zip(firsts, tensors, strict=False)),
        store.manifest.clips,
        whole.places_S2,
        torch.from_numpy(whole.video_S).to(device),
        torch.from_numpy(whole.key_S).to(device),
        torch.from_numpy(whole.live_S).to(device),
        device,
    )


def _height(slab: Slab) -> int:
    return int(slab.rows_SPD.shape[1])


class _Described(NamedTuple):
    """What a gallery knows of some parts."""

    places_S2: NDArray[np.int64]
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


def _upload(slabs: list[Slab], device: torch.device) -> Tensor:
    parts, (_, height, width) = sum(len(slab.rows_SPD) for slab in slabs), slabs[0].rows_SPD.shape
    rows_SPD = torch.empty((parts, height, width), dtype=torch.float16, device=device)
    start = 0
    for slab in slabs:
        rows_SPD[start : start + len(slab.rows_SPD)].copy_(torch.from_numpy(slab.rows_SPD))
        start += len(slab.rows_SPD)
    return rows_SPD


def _check_memory(store: IndexStore, device: torch.device) -> None:
    needed = sum(segment.rows_ND.nbytes for segment in store.segments)
    free, _ = torch.cuda.mem_get_info(device)
    if needed > SHARE_OF_FREE_MEMORY * free:
        raise HolmesError(
            f"{store.path} has {needed / 2**30:.1f} GiB of embeddings, {device} {free / 2**30:.1f} GiB free; "
            "search it with device 'cpu'."
        )
