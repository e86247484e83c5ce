"""The first hits of an answer as a group: which of them show the same moment, and what tells them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from holmes.evidence.answer_kinds import AnswerKind
from holmes.evidence.diagnosis import Diagnosis as Judged
from holmes.index.answers import Hit
from holmes.index.apart import Words, learn_words, look_of
from holmes.index.copies import Rows, leading_copies, usual_look
from holmes.index.diagnose import Diagnosis
from holmes.index.embedders import Embedder
from holmes.index.scan import Probes
from holmes.index.store import IndexStore
from holmes.index.stored_video import StoredVideo
from holmes.index.timeline import frames_of, frames_of_moment
from holmes.printable import printable

SAMPLED = 256  # videos that say what is usual in a collection


@dataclass
class Groups:
    """Looks at groups of hits, with what is usual in their collection in mind; that is found out once."""

    store: IndexStore
    embedder: Embedder

    def copies(self, videos: Sequence[StoredVideo], probes: Probes, q: int) -> int:
        """How many of the first videos show one and the same moment."""
        return leading_copies(videos, probes, q, self._usual_look)

    def tell_apart(self, diagnosis: Diagnosis, hits: Sequence[Hit]) -> Diagnosis:
        """Name the videos that fit, and what each shows that the others do not."""
        if not isinstance(diagnosis, Judged) or diagnosis.answer_kind is not AnswerKind.SEVERAL_FIT:
            return diagnosis
        members, more = hits[: diagnosis.group], diagnosis.group - len(hits)
        if len(members) < 2:
            return diagnosis
        words = self._words.tell_apart(np.stack([self._look(hit) for hit in members]))
        names = [printable(Path(hit.video).name) for hit in members]
        told = [name if word is None else f"{name} ({word})" for name, word in zip(names, words, strict=True)]
        told += [] if more < 1 else ["another one" if more == 1 else f"one of {more} more"]
        asked = f"Is it {', '.join(told[:-1])} or {told[-1]}?"
        return replace(diagnosis, advice=f"{asked} {diagnosis.advice}", apart=tuple(words))

    def _look(self, hit: Hit) -> Rows:
        video = self.store[hit.video]
        return look_of(frames_of(video)[frames_of_moment(video, hit.moments[0])])

    @cached_property
    def _usual_look(self) -> Rows:
        return usual_look(self._some)

    @cached_property
    def _words(self) -> Words:
        return learn_words(self.embedder, self._some)

    @cached_property
    def _some(self) -> list[StoredVideo]:
        places = self.store.places
        step = -(-len(places) // SAMPLED)
        return [self.store[name] for name in islice(places, 0, None, step)]
