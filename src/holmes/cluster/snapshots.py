"""A sharded index in one state of all its shards: what a search begins and ends in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from holmes.cluster.fleet import Fleet
from holmes.cluster.manifest import FILE_NAME, Shards
from holmes.cluster.wire import Arguments
from holmes.errors import HolmesError
from holmes.evidence.judging import Judge
from holmes.index.answer.confidence import choose_judge, own_calibration
from holmes.index.answer.duplicates import DuplicateFinder, merge_samples
from holmes.index.embedders.loading import Model, recorded_embedder
from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.scan import Probes, make_probes
from holmes.index.storage.store import fitting, no_video_fits

Names = dict[str, Collection[str] | None]  # the shards to ask, and which of their videos; None: all


@dataclass
class Generation:
    """The shards, whoever asks them, the model and the judge that belong to one state."""

    shards: Shards
    fleet: Fleet
    checkpoint: Model | None = None  # the model, or where it is now; by default what the shards remember
    diagnose: Judge | None = None  # used instead of the model's own judge
    device: str = "auto"  # of the model and its encoders; every shard has a device of its own
    _duplicates: DuplicateFinder | None = field(default=None, init=False)

    @cached_property
    def embedder(self) -> Embedder:
        return recorded_embedder(self.shards.model, self.checkpoint, self.device)

    @cached_property
    def judge(self) -> Judge:
        if self.diagnose is not None:
            return self.diagnose
        values, own = self.shards.calibration, None
        if values is not None:
            own = own_calibration(values, self.embedder.record["digest"], FILE_NAME)
        return choose_judge(self.embedder, own)

    @property
    def duplicates(self) -> DuplicateFinder:
        """Remembered once every shard has said what its videos look like."""
        if self._duplicates is not None:
            return self._duplicates
        names = [entry.name for entry in self.shards.shards if entry.videos]
        samples = self.ask("sketches", {name: () for name in names})
        duplicates = DuplicateFinder(self.embedder, lambda: merge_samples(samples.values()))
        if len(samples) == len(names):
            self._duplicates = duplicates
        return duplicates

    def probes(self, sentences: Sequence[str]) -> Probes:
        embedder = self.embedder
        return make_probes(embedder.queries(sentences), embedder.frame_weight, embedder.clip_weight)

    def next(self, shards: Shards) -> Generation:
        """The generation after this one; a model that is still the same need not be loaded again."""
        later = Generation(shards, self.fleet, self.checkpoint, self.diagnose, self.device)
        if "embedder" in self.__dict__ and shards.model == self.shards.model:
            later.embedder = self.embedder
        return later

    @cached_property
    def durations(self) -> dict[str, float]:
        """Every video's seconds, shard by shard."""
        return {name: seconds for held in self._held.values() for name, seconds in held.items()}

    @cached_property
    def owner(self) -> dict[str, str]:
        """The shard of every video."""
        return {name: shard for shard, held in self._held.items() for name in held}

    @cached_property
    def _held(self) -> dict[str, dict[str, float]]:
        return self.all("durations")

    def all(self, method: str, *arguments: Any) -> dict[str, Any]:
        """The answers of all shards; a silent shard is an error."""
        replies = self.ask(method, {entry.name: arguments for entry in self.shards.shards})
        silent = [entry.name for entry in self.shards.shards if entry.name not in replies]
        if silent:
            raise HolmesError(f"{', '.join(silent[:3])} did not answer; try again in a moment.")
        return {entry.name: replies[entry.name] for entry in self.shards.shards}

    def ask(
        self, method: str, calls: Mapping[str, Arguments], meanwhile: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        return self.fleet.ask(self.shards, method, calls, meanwhile)

    def wanted(self, filter: str | Collection[str] | None) -> Names:
        """Which shards to ask for which videos."""
        every = [entry.name for entry in self.shards.shards if entry.videos]
        if filter is None:
            return dict.fromkeys(every)
        names = fitting(self.durations, lambda: self.durations, filter) if isinstance(filter, str) else filter
        if isinstance(filter, str) and not names:
            raise no_video_fits("the shards", filter)
        by_shard: dict[str, list[str]] = {}
        for name in names:
            if name in self.owner:
                by_shard.setdefault(self.owner[name], []).append(name)
        return {**by_shard} or {every[0]: []}
