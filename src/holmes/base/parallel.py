"""Parallel work: the processes of a distributed run, and independent tasks on all cores.

Each thread computes its pieces alone. Torch would share every single operation among the cores and let them
wait for each other at its end: costly for short operations, and more so on a machine with other work to do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from holmes.errors import HolmesError

Piece = TypeVar("Piece")
Result = TypeVar("Result")
_cores = threading.local()


@dataclass(frozen=True)
class World:
    """This process among those of the run; alone by default."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        return self.rank == 0


ALONE = World()


@contextmanager
def process_group(device: torch.device) -> Iterator[World]:
    """The processes started by torchrun, or this one alone.

    Nested uses share the outermost group. Several runs of one command must not each begin a group: a process
    that is ahead would meet the keys of the previous group.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    if dist.is_available() and dist.is_initialized():
        yield World(dist.get_rank(), size)
        return
    if not dist.is_available():
        raise HolmesError("this build of torch has no torch.distributed; run on one device.")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


def gather_rows(rows: Tensor, world: World) -> Tensor:
    """Every process's rows, of equal number, in the order of ranks."""
    if world.size == 1:
        return rows
    parts = [torch.empty_like(rows, memory_format=torch.contiguous_format) for _ in range(world.size)]
    dist.all_gather(parts, rows.contiguous())
    return torch.cat(parts)


@contextmanager
def one_thread_per_operation() -> Iterator[None]:
    """Inside the block, single operations keep to one thread; `in_threads` still takes all.

    For few sentences: the many small operations of an encoder gain nothing from a second core, and wait for
    it at the end of each where it has other work to do.
    """
    if hasattr(_cores, "count"):  # already inside
        yield
        return
    allowed = torch.get_num_threads()
    _cores.count = allowed
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(allowed)
        del _cores.count


def in_threads(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], device: torch.device
) -> list[Result]:
    """The results of `work`, in order. On a GPU, which needs no threads, one piece follows the other."""
    threads = min(getattr(_cores, "count", torch.get_num_threads()), len(pieces))
    if device.type != "cpu" or threads <= 1:
        return [work(piece) for piece in pieces]
    allowed, inference = torch.get_num_threads(), torch.is_inference_mode_enabled()

    def run(piece: Piece) -> Result:
        with torch.inference_mode(inference):  # every thread has its own
            return work(piece)

    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(run, pieces))
    finally:
        torch.set_num_threads(allowed)  # threads that start later inherit it
