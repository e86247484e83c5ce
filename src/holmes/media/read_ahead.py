"""Reading while what was read is worked on: the decoder and the encoder of a film need not wait in turn."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items; each is made by another thread while the one before it is in use."""
    end = object()
    with ThreadPoolExecutor(1) as reader:
        upcoming = reader.submit(next, items, end)
        while (item := upcoming.result()) is not end:
            upcoming = reader.submit(next, items, end)
            yield item  # type: ignore[misc]  # it is not the end
