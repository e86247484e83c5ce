"""A search request: sentences, number of hits and options, checked; and its probes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.errors import HolmesError
from holmes.evidence.distribution import EXPECT_MISSING
from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.scan import Probes, make_probes
from holmes.records import QueryEmbedding


@dataclass(frozen=True)
class SearchRequest:
    """Sentences that are asked together, how many hits each wants, and when to abstain."""

    sentences: Sequence[str]
    top: int = 10
    filter: str | Collection[str] | None = None  # a pattern for paths or file names, or the names themselves
    abstain_below: float | None = None
    not_here_below: float | None = None
    expect_missing: float | None = None

    def check(self) -> None:
        if isinstance(self.sentences, str):
            raise HolmesError("search_many takes a list of sentences; use search for one.")
        for sentence in self.sentences:
            check_sentence(sentence)
        check_top(self.top)
        for name in ("abstain_below", "not_here_below", "expect_missing"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise HolmesError(f"{name} must be a probability, 0 to 1, not {value!r}.")

    @property
    def missing_share(self) -> float:
        """The share of queries whose video is expected to be missing."""
        return EXPECT_MISSING if self.expect_missing is None else self.expect_missing

    def some(self, at: slice) -> SearchRequest:
        return replace(self, sentences=self.sentences[at])


def check_top(top: object) -> None:
    if not isinstance(top, int | np.integer) or top < 1:
        raise HolmesError(f"top must be a whole number, at least 1, not {top!r}.")


def check_sentence(sentence: object) -> None:
    if not isinstance(sentence, str):
        raise HolmesError(f"a sentence must be text, not {str(sentence)[:40]!r}.")
    if not sentence.strip():
        raise HolmesError("the sentence is empty; describe a moment in a few words.")
    try:
        sentence.encode()
    except UnicodeEncodeError:
        raise HolmesError(f"the sentence {ascii(sentence)[:80]} is not valid UTF-8; type it again.") from None


def sentence_probes(embedder: Embedder, sentences: Sequence[str]) -> Probes:
    """What an index is searched with for sentences."""
    return make_probes(embedder.queries(sentences), embedder.frame_weight, embedder.clip_weight)


def vector_probes(embedder: Embedder, vector_D: NDArray[np.floating]) -> Probes:
    """The same for a vector, such as a picture's."""
    query_1D = torch.from_numpy(np.asarray(vector_D, np.float32)).unsqueeze(0)
    return make_probes(QueryEmbedding(query_1D), embedder.frame_weight, embedder.clip_weight)
