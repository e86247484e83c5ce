"""Independent pieces of work on all cores.

Each thread computes its pieces alone. Torch would share every single operation among the cores and let them
wait for each other at its end: costly for short operations, and more so on a machine with other work to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def in_threads(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], device: torch.device
) -> list[Result]:
    """The results of `work`, in order. On a GPU, which needs no threads, one piece follows the other."""
    threads = min(torch.get_num_threads(), len(pieces))
    if device.type != "cpu" or threads <= 1:
        return [work(piece) for piece in pieces]
    allowed = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, pieces))
    finally:
        torch.set_num_threads(allowed)  # also what threads that start later are given
