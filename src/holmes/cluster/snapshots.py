"""One snapshot of a sharded index: its shards, model and calibration. A search uses only one.

Ray keeps actors alive; it does not know which states of them belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

from holmes.cluster.calls import Call, ShardClient, call
from holmes.cluster.manifest import FILE_NAME, Shards
from holmes.cluster.shard import Shard
from holmes.errors import HolmesError
from holmes.evidence.judging import Judge
from holmes.evidence.sources import TextEvidence
from holmes.index.answer.calibration import choose_judge, own_calibration, text_evidence_of
from holmes.index.answer.duplicates import DuplicateFinder, merge_samples
from holmes.index.answer.request import sentence_probes
from holmes.index.embedders.loading import Model, recorded_embedder
from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.scan import Probes
from holmes.index.storage.store import matching

R = TypeVar("R")
P = ParamSpec("P")
Names = dict[str, Collection[str] | None]  # the shards to search, and which of their videos; None: all


@dataclass
class Snapshot:
    """The contents of `shards.json` at one time, and the caller of its shards."""

    shards: Shards
    client: ShardClient
    model: Model | None = None  # the model, or where it is now; by default what the shards remember
    diagnose: Judge | None = None  # used instead of the model's own judge
    device: str = "auto"  # of the model and its encoders; every shard has a device of its own
    _duplicates: DuplicateFinder | None = field(default=None, init=False)

    @cached_property
    def embedder(self) -> Embedder:
        return recorded_embedder(self.shards.model, self.model, self.device)

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
        """Finds duplicates among hits; kept once every shard has sent a sample of its videos."""
        if self._duplicates is not None:
            return self._duplicates
        names = [entry.name for entry in self.shards.shards if entry.videos]
        samples = self.call({name: call(Shard.sample_mean_frames) for name in names})
        duplicates = DuplicateFinder(self.embedder, lambda: merge_samples(samples.values()))
        if len(samples) == len(names):
            self._duplicates = duplicates
        return duplicates

    def probes(self, sentences: Sequence[str]) -> Probes:
        return sentence_probes(self.embedder, sentences)

    def next(self, shards: Shards) -> Snapshot:
        """The snapshot after this one; a model that is still the same is not loaded again."""
        later = Snapshot(shards, self.client, self.model, self.diagnose, self.device)
        if "embedder" in self.__dict__ and shards.model == self.shards.model:
            later.embedder = self.embedder
        return later

    @cached_property
    def durations(self) -> dict[str, float]:
        """Every video's seconds, shard by shard."""
        return {name: seconds for own in self._durations.values() for name, seconds in own.items()}

    @cached_property
    def owner(self) -> dict[str, str]:
        """The shard of every video."""
        return {name: shard for shard, own in self._durations.items() for name in own}

    @cached_property
    def _durations(self) -> dict[str, dict[str, float]]:
        return self.call_all(Shard.durations)

    @cached_property
    def word_encoders(self) -> dict[str, str | None]:
        """The encoder of what each shard's passages mean; None where a shard has no passages."""
        return self.call_all(Shard.word_encoder)

    @cached_property
    def text_evidence(self) -> TextEvidence:
        return text_evidence_of(self.shards.calibration, FILE_NAME)

    def call_all(
        self, method: Callable[Concatenate[Any, str, P], R], *arguments: P.args, **named: P.kwargs
    ) -> dict[str, R]:
        """What every shard returns, in their order; a shard that does not reply is an error."""
        one = call(method, *arguments, **named)
        return self.call_surely({entry.name: one for entry in self.shards.shards})

    def call_surely(self, calls: Mapping[str, Call[R]]) -> dict[str, R]:
        """What these shards return, in their order; a shard that does not reply is an error."""
        replies = self.call(calls)
        if missing := [name for name in calls if name not in replies]:
            raise HolmesError(f"{', '.join(missing[:3])} did not answer; try again in a moment.")
        return {name: replies[name] for name in calls}

    def call(self, calls: Mapping[str, Call[R]]) -> dict[str, R]:
        """What these shards return; those that do not reply in time are not in the result."""
        return self.client.call(self.shards, calls)

    def names(self, filter: str | Collection[str] | None) -> Names:
        """Which videos of which shards to search."""
        every = [entry.name for entry in self.shards.shards if entry.videos]
        if filter is None:
            return dict.fromkeys(every)
        names = matching(self.durations, filter, "the shards") if isinstance(filter, str) else filter
        by_shard: dict[str, list[str]] = {}
        for name in names:
            if name in self.owner:
                by_shard.setdefault(self.owner[name], []).append(name)
        return {**by_shard} or {every[0]: []}
