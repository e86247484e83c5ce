"""The first hits of an answer as a group: which of them show the same moment.

Q queries, H hits
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from holmes.base.printing import printable
from holmes.evidence.answer_kinds import SMALL_GROUP, AnswerKind
from holmes.evidence.diagnosis import Diagnosis
from holmes.index.answer.answers import Hit
from holmes.index.answer.appearance import Rows, Sketch, View, look_of, unit
from holmes.index.answer.distinguishing import Words, learn_words
from holmes.index.embedders.protocol import Embedder

# On 90 real clips and copies of 30 of them in a far lower quality, this found half of the copies and took no
# two different clips for one.
ALIKE = 0.9
CLOSE = 0.05  # a copy scores about as much as what it is a copy of


def usual_look(sample: Sequence[Sketch]) -> Rows:
    """What the frames of some videos share."""
    mean_D: Rows = np.mean([sketch.mean_D for sketch in sample], axis=0)
    return mean_D


def show_the_same(one: View, other: View, usual_D: Rows) -> bool:
    """Whether two hits show one and the same moment."""
    one_FD, other_FD = (unit(view.rows_FD - usual_D) for view in (one, other))
    there = (one_FD[one.inside_F] @ other_FD.T).max(axis=1).mean()
    back = (other_FD[other.inside_F] @ one_FD.T).max(axis=1).mean()
    return bool(min(there, back) >= ALIKE)


# What hits look like, each by its query and its rank; None where a shard does not say.
Views = Callable[[Sequence[tuple[int, int]]], Sequence[View | None]]


@dataclass
class Groups:
    """Compares the hits of a group with each other, and with what is usual in their collection."""

    embedder: Embedder
    draw_sample: Callable[[], Sequence[Sketch]]

    def alike(self, score_QH: Tensor) -> Tensor:
        """How many of each query's first videos score so alike that they may show one moment."""
        if not self.embedder.compares_images:
            return torch.zeros(len(score_QH), dtype=torch.int64)
        return (score_QH[:, :SMALL_GROUP] >= score_QH[:, :1] - CLOSE).sum(1)

    def copies(self, score_QH: Tensor, views: Views) -> Tensor:
        """How many of each query's first videos show one moment, among the few that score alike."""
        alike_Q = self.alike(score_QH)
        copies_Q = torch.ones_like(alike_Q)
        open_Q = (alike_Q > 1).nonzero()[:, 0].tolist()
        first = dict(zip(open_Q, views([(q, 0) for q in open_Q]), strict=True)) if open_Q else {}
        rank = 1
        while open_Q:  # rank by rank: hardly any query gets beyond its second hit
            seen = views([(q, rank) for q in open_Q])
            same = [q for q, view in zip(open_Q, seen, strict=True) if self._same(first[q], view)]
            copies_Q[same] += 1
            rank += 1
            open_Q = [q for q in same if alike_Q[q] > rank]
        return copies_Q

    def tell_apart(self, q: int, diagnosis: Diagnosis, hits: Sequence[Hit], views: Views) -> Diagnosis:
        """Name the videos that fit, and what each shows that the others do not."""
        if diagnosis.kind != AnswerKind.SEVERAL_FIT.name.lower():
            return diagnosis
        members, more = hits[: diagnosis.group], diagnosis.group - len(hits)
        if len(members) < 2:
            return diagnosis
        words = self._words_for(views([(q, rank) for rank in range(len(members))]))
        names = [printable(Path(hit.video).name) for hit in members]
        told = [name if word is None else f"{name} ({word})" for name, word in zip(names, words, strict=True)]
        told += [] if more < 1 else ["another one" if more == 1 else f"one of {more} more"]
        asked = f"Is it {', '.join(told[:-1])} or {told[-1]}?"
        return replace(diagnosis, advice=f"{asked} {diagnosis.advice}", apart=tuple(words))

    def _same(self, one: View | None, other: View | None) -> bool:
        if one is None or other is None or not self._sample:
            return False
        return show_the_same(one, other, self._usual_look)

    def _words_for(self, views: Sequence[View | None]) -> list[str | None]:
        looks = [look_of(view.rows_FD[view.inside_F]) for view in views if view is not None]
        known = len(looks) == len(views) and self._sample
        return self._words.tell_apart(np.stack(looks)) if known else [None] * len(views)

    @cached_property
    def _usual_look(self) -> Rows:
        return usual_look(self._sample)

    @cached_property
    def _words(self) -> Words:
        return learn_words(self.embedder, self._sample)

    @cached_property
    def _sample(self) -> Sequence[Sketch]:
        return self.draw_sample()
