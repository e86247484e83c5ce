"""Code shared by local and sharded indexes: encode sentences, add and remove videos."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch.nn.functional import normalize

from holmes.heard.hearing import Hearing
from holmes.index.answer.base import Paths, SearchIndex, paths_of
from holmes.index.answer.request import SearchRequest
from holmes.index.embedders.protocol import Embedder, readable
from holmes.index.ingest.builder import BuildSummary, add_videos
from holmes.index.ingest.hearing import HearSummary, hear_index
from holmes.index.ingest.sync import SyncSummary, sync_index


class LocalIndex(SearchIndex):
    """An index whose model and files this process reaches."""

    writer: ClassVar[type[Any]]  # opens the files for writing

    @property
    @abstractmethod
    def embedder(self) -> Embedder: ...

    @abstractmethod
    def _folder(self, command: str) -> Path:
        """Where the files are that `command` changes; an error where they cannot be changed."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._where!r}, {len(self):,} videos)"

    def readable(self, sentence: str) -> str:
        return readable(self.embedder, sentence)

    def encode(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        SearchRequest(sentences).check()
        query_QD = self.embedder.queries(sentences).query_QD.float()
        return np.asarray(normalize(query_QD, dim=-1).cpu().numpy(), np.float32)

    def add(
        self, videos: Paths, *, fast: bool = False, workers: int | None = None, progress: bool = False
    ) -> BuildSummary:
        summary = add_videos(
            self._folder("add"),
            paths_of(videos),
            self.embedder,
            writer=self.writer,
            fast=fast,
            workers=workers,
            progress=progress,
            hearing=Hearing.default(),
        )
        self.refresh()
        return summary

    def remove(self, videos: Paths) -> tuple[str, ...]:
        with self.writer(self._folder("remove")) as writer:
            names = {name for each in paths_of(videos) for name in writer.store.matching(str(each))}
            writer.remove(names)
        self.refresh()
        return tuple(sorted(names))

    def sync(
        self, folders: Paths, *, fast: bool = False, workers: int | None = None, progress: bool = False
    ) -> SyncSummary:
        summary = sync_index(
            self._folder("sync"),
            paths_of(folders),
            model=self.embedder,
            writer=self.writer,
            fast=fast,
            workers=workers,
            progress=progress,
            hearing=Hearing.default(),
        )
        self.refresh()
        return summary

    def hear(self, *, workers: int | None = None, progress: bool = False) -> HearSummary:
        summary = hear_index(self._folder("hear"), workers=workers, progress=progress, writer=self.writer)
        self.refresh()
        return summary
