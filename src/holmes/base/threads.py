"""Independent pieces of work on all cores.

Each thread computes its pieces alone. Torch would share every single operation among the cores and let them
wait for each other at its end: costly for short operations, and more so on a machine with other work to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Result = TypeVar("Result")


_cores = threading.local()


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
