"""The embeddings of an index where they are searched: mapped from the disk, or resident on a GPU.

V videos, P rows of a video, D width
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

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
    """Videos with equally many rows: `rows_VPD` holds the gallery's videos from `first` on."""

    first: int
    rows_VPD: Tensor  # float16


@dataclass(frozen=True)
class Gallery:
    """Every video of an index, removed ones included, numbered slab by slab."""

    slabs: tuple[GallerySlab, ...]
    clips: int
    places_V2: NDArray[np.int64]  # each video's segment and position there
    live_V: Tensor  # false where a video has been removed
    device: torch.device

    def __len__(self) -> int:
        return len(self.places_V2)

    @cached_property
    def live(self) -> int:
        """How many have not been removed."""
        return int(self.live_V.sum())


def open_gallery(store: IndexStore, device: torch.device) -> Gallery:
    """On a CPU nothing is read; on a GPU slabs of equal height become one, copied there part by part."""
    parts = [(number, slab) for number, segment in enumerate(store.segments) for slab in segment.slabs]
    parts.sort(key=lambda part: _height(part[1]))
    places_V2 = np.concatenate([np.zeros((0, 2), np.int64), *(_places(*part) for part in parts)])
    live_V = np.concatenate([np.zeros(0, bool), *(_live(store, *part) for part in parts)])
    slabs = [slab for _, slab in parts]
    if device.type == "cpu":
        tensors = [torch.from_numpy(slab.rows_VPD) for slab in slabs]
    else:
        _check_memory(store, device)
        tensors = [_upload(list(group), device) for _, group in groupby(slabs, _height)]
    firsts = np.cumsum([0, *map(len, tensors)]).tolist()
    return Gallery(
        tuple(GallerySlab(first, rows_VPD) for first, rows_VPD in zip(firsts, tensors, strict=False)),
        store.manifest.clips,
        places_V2,
        torch.from_numpy(live_V).to(device),
        device,
    )


def _height(slab: Slab) -> int:
    return int(slab.rows_VPD.shape[1])


def _places(number: int, slab: Slab) -> NDArray[np.int64]:
    positions = np.arange(slab.first, slab.first + len(slab.rows_VPD))
    return np.stack([np.full_like(positions, number), positions], axis=1)


def _live(store: IndexStore, number: int, slab: Slab) -> NDArray[np.bool_]:
    entry = store.segments[number].entry
    live_V = np.ones(entry.videos, bool)
    live_V[list(entry.removed)] = False
    return live_V[slab.first : slab.first + len(slab.rows_VPD)]


def _upload(slabs: list[Slab], device: torch.device) -> Tensor:
    videos, (_, height, width) = sum(len(slab.rows_VPD) for slab in slabs), slabs[0].rows_VPD.shape
    rows_VPD = torch.empty((videos, height, width), dtype=torch.float16, device=device)
    start = 0
    for slab in slabs:
        rows_VPD[start : start + len(slab.rows_VPD)].copy_(torch.from_numpy(slab.rows_VPD))
        start += len(slab.rows_VPD)
    return rows_VPD


def _check_memory(store: IndexStore, device: torch.device) -> None:
    needed = sum(segment.rows_ND.nbytes for segment in store.segments)
    free, _ = torch.cuda.mem_get_info(device)
    if needed > SHARE_OF_FREE_MEMORY * free:
        raise HolmesError(
            f"{store.path} has {needed / 2**30:.1f} GiB of embeddings, {device} {free / 2**30:.1f} GiB free; "
            "search it with device 'cpu'."
        )
