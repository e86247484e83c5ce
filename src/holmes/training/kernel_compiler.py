"""Compile the kernels of a step in parallel, before the first step.

A step is gone through once without launching a kernel. What the kernels would have written stays undefined,
so nothing may be kept from it. Triton keeps the kernels, on disk too, where the next run finds them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor


@contextmanager
def compiling_only(device: torch.device) -> Iterator[None]:
    """In this block kernels are compiled and not launched; it ends when all are ready."""
    from triton.runtime.jit import JITFunction

    launch = JITFunction.run
    pending: dict[Any, Future[Any]] = {}

    def compile_once(kernel: Any, *args: Any, grid: Any, warmup: bool, **sizes: Any) -> None:
        key = (kernel, tuple(map(kind, args)), tuple((name, kind(size)) for name, size in sizes.items()))
        if key not in pending:
            pending[key] = pool.submit(launch, kernel, *args, grid=grid, warmup=True, **sizes)

    with ThreadPoolExecutor(os.cpu_count(), initializer=torch.cuda.set_device, initargs=(device,)) as pool:
        with patch.object(JITFunction, "run", compile_once):
            yield
        for each in pending.values():
            each.result()


def kind(argument: Any) -> Any:
    """What decides whether two launches use the same kernel, or somewhat more."""
    return (argument.dtype, argument.data_ptr() % 16) if isinstance(argument, Tensor) else argument
