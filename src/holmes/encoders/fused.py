"""Choose between fused kernels (`block_kernels.py`) and plain torch, and what runs concurrently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from holmes.records import AtOnce, one_after_another

_FUSED = ContextVar("fused", default=False)
_AT_ONCE: ContextVar[AtOnce] = ContextVar("at_once", default=one_after_another)


def fused() -> bool:
    return _FUSED.get()


def at_once(*pieces: Callable[[], Any]) -> list[Any]:
    """The results of pieces that do not depend on each other."""
    return _AT_ONCE.get()(*pieces)


@contextmanager
def fused_kernels(use: bool, pieces: AtOnce = one_after_another) -> Iterator[None]:
    """Use the kernels in this block, or do not; `pieces` runs what can run at once."""
    fused_before, pieces_before = _FUSED.set(use), _AT_ONCE.set(pieces)
    try:
        yield
    finally:
        _FUSED.reset(fused_before)
        _AT_ONCE.reset(pieces_before)
