"""Features on the device of the model: a batch is one gather.

If they fit, all rows live on the device as float16. Otherwise the mapped files are read into pinned memory,
and only the batch is copied to the device. Both ways run the same code.

V videos, Q queries, I items (videos or queries), P positions, F frames, C clips, T tokens, D width
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.data.store import Split, Store

RESIDENT_SHARE = 0.5  # share of the free memory; the rest is for the model and its activations
LOAD_BYTES = 256 << 20  # bytes read at once while the rows move to the device
GIB = 1 << 30


class RaggedRows:
    """Items of different lengths in one array of rows. Item -1 is padding; items outside splits are empty."""

    def __init__(
        self, rows: NDArray[np.float16], offsets: NDArray[np.int64], wanted: NDArray[np.int64], longest: int
    ) -> None:
        self.rows, self.longest = rows, longest
        self.wanted, self.from_row, self.count = wanted, offsets[wanted], np.diff(offsets)[wanted]
        self.bytes = int(self.count.sum()) * rows.shape[1] * rows.itemsize

    def move_to(self, device: torch.device, resident: bool) -> None:
        """Decide where the rows live and prepare the gather's tables beside them."""
        self.device = device
        home = device if resident else torch.device("cpu")
        self.flat = self._loaded(device) if resident else mapped(self.rows)
        first = np.cumsum(self.count) - self.count if resident else self.from_row
        # One entry more than there are items: index -1 wraps around to it and finds length 0.
        start_I, length_I = np.zeros((2, int(self.wanted.max()) + 2), np.int64)
        start_I[self.wanted], length_I[self.wanted] = first, self.count
        self.start_I, self.length_I = torch.from_numpy(start_I).to(home), torch.from_numpy(length_I).to(home)
        self.position_P = torch.arange(self.longest, device=home)

    def _loaded(self, device: torch.device) -> Tensor:
        """Only the wanted rows, copied piece by piece: the host never holds them all."""
        row_numbers = np.repeat(self.from_row - (np.cumsum(self.count) - self.count), self.count)
        row_numbers += np.arange(len(row_numbers))
        flat = torch.empty((len(row_numbers), self.rows.shape[1]), dtype=torch.float16, device=device)
        step = max(1, LOAD_BYTES // (self.rows.shape[1] * self.rows.itemsize))
        for start in range(0, len(row_numbers), step):
            flat[start : start + step] = torch.from_numpy(self.rows[row_numbers[start : start + step]])
        return flat

    def gather(self, index_I: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The items' rows, zero-padded to the longest (I × P × D), and their lengths."""
        start_I, length_I = self.start_I[index_I], self.length_I[index_I]
        valid_IP = self.position_P < length_I[:, None]
        row_IP = (start_I[:, None] + self.position_P).masked_fill_(~valid_IP, 0)
        shape, crosses = (row_IP.numel(), self.flat.shape[1]), self.flat.device != self.device
        values = torch.empty(shape, dtype=torch.float16, device=self.flat.device, pin_memory=crosses)
        torch.index_select(self.flat, 0, row_IP.flatten(), out=values)
        if crosses:
            values = values.to(self.device, non_blocking=True)
            valid_IP = valid_IP.pin_memory().to(self.device, non_blocking=True)
            length_I = length_I.pin_memory().to(self.device, non_blocking=True)
        values_IPD = values.to(dtype).view(*valid_IP.shape, -1)
        return values_IPD.masked_fill_(~valid_IP[..., None], 0), length_I


class FeatureBank:
    """Padded features of any videos and queries of a store, on the device.

    `splits` limits what is resident to their videos and queries; all others are empty. `resident` None
    decides by free memory, and `says` tells the choice in one line. Indices must be on `index_device`.
    """

    def __init__(
        self,
        store: Store,
        device: torch.device | str = "cpu",
        resident: bool | None = None,
        splits: Sequence[Split] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.store, self.device, self.dtype = store, exact_device(device), dtype
        videos, queries = wanted_items(store, splits)
        clip_offsets = np.arange(store.info.videos + 1) * store.info.clips
        self._frames = RaggedRows(store.frames, store.frame_offsets, videos, store.info.frames)
        self._clips = RaggedRows(
            store.clips.reshape(-1, store.info.video_width), clip_offsets, videos, store.info.clips
        )
        self._tokens = RaggedRows(store.tokens, store.token_offsets, queries, store.info.tokens)
        self._all = (self._frames, self._clips, self._tokens)
        self.resident, self.says = choose(sum(rows.bytes for rows in self._all), self.device, resident)
        for rows in self._all:
            rows.move_to(self.device, self.resident)
        self.index_device = self.device if self.resident else torch.device("cpu")

    @classmethod
    def of_splits(cls, store: Store, device: torch.device, splits: Sequence[Split]) -> FeatureBank:
        """The bank that a model reads from: half precision on a GPU, where its encoders compute in bf16."""
        dtype = torch.float16 if device.type == "cuda" else torch.float32
        return cls(store, device, splits=splits, dtype=dtype)

    def videos(self, index_V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """frames_VFD, frame_lengths_V, clips_VCD of these videos (store indices; -1 is padding)."""
        index_V = index_V.to(self.index_device)
        frames_VFD, frame_lengths_V = self._frames.gather(index_V, self.dtype)
        clips_VCD, _ = self._clips.gather(index_V, self.dtype)
        return frames_VFD, frame_lengths_V, clips_VCD

    def queries(self, index_Q: Tensor) -> tuple[Tensor, Tensor]:
        """tokens_QTD, token_lengths_Q of these queries (store indices; -1 is padding)."""
        return self._tokens.gather(index_Q.to(self.index_device), self.dtype)


def exact_device(device: torch.device | str) -> torch.device:
    """'cuda' is the current one, so that devices compare equal to those of tensors."""
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def wanted_items(store: Store, splits: Sequence[Split] | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if splits is None:
        return np.arange(store.info.videos), np.arange(store.info.queries)
    return (
        np.unique(np.concatenate([split.videos for split in splits])),
        np.unique(np.concatenate([split.queries for split in splits])),
    )


def choose(size: int, device: torch.device, resident: bool | None) -> tuple[bool, str]:
    """Whether to be resident, and the sentence that says so."""
    free = free_memory(device)
    fits = size <= RESIDENT_SHARE * free
    figures = f"{size / GIB:.2f} GiB; {free / GIB:.1f} GiB free on {device}"
    why = "as requested" if resident is not None else f"limit: {RESIDENT_SHARE:.0%} of that"
    if fits if resident is None else resident:
        return True, f"features kept on {device} ({figures}, {why})"
    return False, f"features read from the store batch by batch ({figures}, {why})"


def free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():  # counts the page cache as free, which sysconf does not
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def mapped(rows: NDArray[np.float16]) -> Tensor:
    """A tensor over the mapped file; torch warns that it is read-only, and nothing here writes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(rows)
