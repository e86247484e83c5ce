"""Batches of fixed shape: videos with all their queries, in an order that depends on (seed, epoch).

An epoch is four index tables, built at once and sent to the device once; a step slices them and gathers.

S steps, V videos of a batch, Q queries of a batch
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.data.bank import FeatureBank
from holmes.data.store import Split
from holmes.errors import HolmesError
from holmes.records import Batch

QUERY_MULTIPLE = 8  # the query capacity is a multiple of this: kind to tensor cores
PREFETCHED = 2  # batches made ahead when the features are not resident


@dataclass(frozen=True)
class EpochTables:
    """Who is in which batch (store indices, -1 pads), and each query's video and slot within the batch."""

    videos_SV: NDArray[np.int64]
    queries_SQ: NDArray[np.int64]
    owner_SQ: NDArray[np.int64]
    slot_SQ: NDArray[np.int64]


class BatchLoader:
    """Walks a split in seeded random order.

    The last batch is filled up from the start of the epoch's order, so every batch has the same number of
    videos and none twice. The query capacity is the most that any batch of any of the `epochs` needs: one
    shape for the whole run. Rank r of `world` gets the r-th part of every batch.
    """

    def __init__(
        self,
        bank: FeatureBank,
        split: Split,
        batch_videos: int = 128,
        seed: int = 0,
        epochs: int = 1,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        videos = len(split.videos)
        batch = min(batch_videos, videos - videos % world)
        if batch < world or batch % world or not 0 <= rank < world:
            raise HolmesError(
                f"a batch of {batch_videos} out of {videos} videos cannot be shared by {world} processes "
                f"(rank {rank}); make the batch size a multiple of the number of processes."
            )
        self.bank, self.split, self.seed, self.epochs = bank, split, seed, epochs
        self.rank, self.world, self.videos_per_rank = rank, world, batch // world
        self.steps_per_epoch = -(-videos // batch)
        self.queries_per_video = int(split.queries_of_video.max())
        self.query_capacity = self._capacity()

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Positions in the split: steps × ranks × videos per rank."""
        videos, shape = len(self.split.videos), (self.steps_per_epoch, self.world, self.videos_per_rank)
        permutation = np.random.default_rng([self.seed, epoch]).permutation(videos)
        return np.resize(permutation, shape)

    def _capacity(self) -> int:
        counts = self.split.queries_of_video
        most = max(int(counts[self.order(epoch)].sum(-1).max()) for epoch in range(self.epochs))
        return -(-most // QUERY_MULTIPLE) * QUERY_MULTIPLE

    def tables(self, epoch: int) -> EpochTables:
        """This rank's index tables of an epoch."""
        if not 0 <= epoch < self.epochs:
            raise HolmesError(f"epoch {epoch} is outside the {self.epochs} epochs this loader was made for.")
        positions_SV = self.order(epoch)[:, self.rank]
        counts_SV = self.split.queries_of_video[positions_SV]
        ends_SV = np.cumsum(counts_SV, axis=1)
        column_Q = np.arange(self.query_capacity)
        # A query's video is the number of videos whose queries all lie before its column.
        owner_SQ = np.stack([np.searchsorted(ends_V, column_Q, side="right") for ends_V in ends_SV])
        valid_SQ = column_Q < ends_SV[:, -1:]
        owner_SQ[~valid_SQ] = 0
        slot_SQ = column_Q - np.take_along_axis(ends_SV - counts_SV, owner_SQ, axis=1)
        slot_SQ[~valid_SQ] = 0
        video_SQ = np.take_along_axis(positions_SV, owner_SQ, axis=1)
        queries_SQ = self.split.queries[self.split.query_offsets[video_SQ] + slot_SQ]
        queries_SQ[~valid_SQ] = -1
        return EpochTables(self.split.videos[positions_SV], queries_SQ, owner_SQ, slot_SQ)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from `start_step` on."""
        tables, bank = self.tables(epoch), self.bank
        videos_SV = send(tables.videos_SV, bank.index_device)
        queries_SQ = send(tables.queries_SQ, bank.index_device)
        owner_SQ, slot_SQ = send(tables.owner_SQ, bank.device), send(tables.slot_SQ, bank.device)

        def batch(step: int) -> Batch:
            frames_VFD, frame_lengths_V, clips_VCD = bank.videos(videos_SV[step])
            tokens_QTD, token_lengths_Q = bank.queries(queries_SQ[step])
            return Batch(
                frames_VFD, frame_lengths_V, clips_VCD, tokens_QTD, token_lengths_Q,
                owner_SQ[step], slot_SQ[step], self.queries_per_video,
            )  # fmt: skip

        steps = range(start_step, self.steps_per_epoch)
        return map(batch, steps) if bank.resident else prefetched(batch, steps, bank.device)


def send(table: NDArray[np.int64], device: torch.device) -> Tensor:
    tensor = torch.from_numpy(table)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def prefetched(make: Callable[[int], Batch], steps: range, device: torch.device) -> Iterator[Batch]:
    """The batches in order, made ahead by another thread on a stream of its own."""
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def work(step: int) -> tuple[Batch, torch.cuda.Event | None]:
        with torch.cuda.stream(stream) if stream else nullcontext():
            batch = make(step)
            return batch, stream.record_event() if stream else None

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch") as pool:
        waiting: deque[Future[tuple[Batch, torch.cuda.Event | None]]] = deque()
        try:
            for step in steps:
                waiting.append(pool.submit(work, step))
                if len(waiting) > PREFETCHED:
                    yield arrived(*waiting.popleft().result())
            while waiting:
                yield arrived(*waiting.popleft().result())
        finally:  # a walk broken off early
            for future in waiting:
                future.cancel()


def arrived(batch: Batch, event: torch.cuda.Event | None) -> Batch:
    """Let the current stream wait for the copies and own the memory they went to."""
    if event is not None:
        current = torch.cuda.current_stream()
        current.wait_event(event)
        for field in fields(batch):
            value = getattr(batch, field.name)
            if isinstance(value, Tensor):
                value.record_stream(current)
    return batch
