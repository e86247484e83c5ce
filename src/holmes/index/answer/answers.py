"""The records of an answer: hits with moments, quotes and probabilities."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from holmes.evidence.judging import Diagnosis
from holmes.heard.passages import Passage
from holmes.moments import Moment
from holmes.results import Json


@dataclass(frozen=True)
class Quote:
    """What is said or written in a video and fits a sentence."""

    kind: str  # said or written
    passage: Passage
    marks: tuple[tuple[int, int], ...] = ()  # the sentence's words in its text, from and to, by characters

    def to_dict(self) -> Json:
        return {"kind": self.kind, **self.passage.to_dict(), "marks": [list(mark) for mark in self.marks]}


@dataclass(frozen=True)
class Hit:
    """A video that may be the one."""

    video: str  # the path of its file
    score: float
    belief: float
    probability: float | None  # that it is the right one; None where the model was never calibrated
    moments: tuple[Moment, ...]  # best first
    fit: str | None = None  # how well it fits: fits, may fit, nearest; None where it was not judged
    because: tuple[str, ...] = ("seen",)  # sources of evidence, the strongest first: seen, said, written
    quotes: tuple[Quote, ...] = ()  # what is said or written in it, the strongest first

    def to_dict(self) -> Json:
        """`because` and `quotes` are there only if words were searched too."""
        words: Json = {"because": list(self.because), "quotes": [quote.to_dict() for quote in self.quotes]}
        none: Json = {}
        return {
            "video": self.video,
            "score": self.score,
            "belief": self.belief,
            "probability": self.probability,
            "fit": self.fit,
            "moments": [moment.to_dict() for moment in self.moments],
            "gone": self.gone,
            **(words if self.quotes or self.because != ("seen",) else none),
        }

    def __str__(self) -> str:
        sure = "" if self.probability is None else f"  probability {self.probability:.2f}"
        best = f"  {self.moments[0].start:.1f}-{self.moments[0].end:.1f} s" if self.moments else ""
        return f"{self.video}  score {self.score:.3f}{sure}{best}"

    @property
    def gone(self) -> bool:
        """Whether its file is no longer where it was: moved, deleted, or on a disk that is not connected."""
        return os.path.isabs(self.video) and not os.path.exists(self.video)


@dataclass(frozen=True)
class Timeline:
    """How well a sentence fits a video, from its first second to its last; F positions."""

    similarity_F: NDArray[np.floating]
    spans_F2: NDArray[np.floating]  # seconds, from and to


@dataclass(frozen=True)
class Answer:
    """The hits of one sentence, best first: `answer[0]`, `len(answer)`, `for hit in answer`."""

    query: str
    diagnosis: Diagnosis
    hits: tuple[Hit, ...]
    abstained: bool = False
    missing: tuple[str, ...] = ()  # shards that did not answer: what they hold was not searched

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, rank: int) -> Hit:
        return self.hits[rank]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __str__(self) -> str:
        """The answer for people: the sentence, the diagnosis, the hits with their best moments."""
        lines = [f"“{self.query}”: {self.diagnosis.words}. {self.diagnosis.explanation}"]
        lines += [f"{rank:3}  {hit}" for rank, hit in enumerate(self.hits, start=1)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Answer({self.query!r}, {self.diagnosis.kind}, {len(self.hits)} hits)"

    def best(self, top: int) -> Answer:
        """The same answer with at most this many hits."""
        return self if len(self.hits) <= top else replace(self, hits=self.hits[:top])

    @property
    def group(self) -> tuple[Hit, ...]:
        """The hits that the diagnosis is about: the one that stands out, its copies, or those that fit."""
        return self.hits[: self.diagnosis.group]

    def to_dict(self) -> Json:
        """As `holmes search --json` prints it; `missing` is there only if something is."""
        return {
            "query": self.query,
            "diagnosis": {
                "kind": self.diagnosis.kind,
                "words": self.diagnosis.words,
                "explanation": self.diagnosis.explanation,
                "advice": self.diagnosis.advice,
                "probability": self.diagnosis.probability,
                "here": self.diagnosis.here,
                "group": [hit.video for hit in self.group],
                "abstained": self.abstained,
                **self.diagnosis.quantities,
            },
            "hits": [hit.to_dict() for hit in self.hits],
            **({"missing": list(self.missing)} if self.missing else {}),
        }
