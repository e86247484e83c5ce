"""What the server needs of an index: an open index has it, and so do shards that are searched as one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from holmes.index.answer.answers import Answer, Hit, Timeline
from holmes.index.storage.description import IndexDescription


class Searcher(Protocol):
    """Called from one thread at a time."""

    @property
    def durations(self) -> Mapping[str, float]: ...  # every video by its name, in order, with its seconds

    def search_many(
        self,
        sentences: Sequence[str],
        top: int = 10,
        *,
        filter: str | Collection[str] | None = None,
        abstain_below: float | None = None,
        min_probability: float | None = None,
    ) -> list[Answer]: ...

    def timelines(self, sentence: str, videos: Sequence[str]) -> list[Timeline]: ...

    def like(self, video: str, time: float, top: int = 10) -> Sequence[Hit]: ...

    def refresh(self) -> bool: ...  # takes up what has changed; returns whether anything has

    def describe(self) -> IndexDescription: ...
