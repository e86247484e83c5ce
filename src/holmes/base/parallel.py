"""The processes of a run: which of them this one is, and the rows of all in one tensor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from holmes.errors import HolmesError


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
