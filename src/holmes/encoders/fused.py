"""Whether the encoders use their fused kernels (`block_kernels.py`) or plain torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_FUSED = ContextVar("fused", default=False)


def fused() -> bool:
    """Never inside torch.compile, which fuses by itself."""
    return not torch.compiler.is_compiling() and _FUSED.get()


@contextmanager
def fused_kernels(use: bool) -> Iterator[None]:
    """Use the kernels in this block, or do not."""
    token = _FUSED.set(use)
    try:
        yield
    finally:
        _FUSED.reset(token)
