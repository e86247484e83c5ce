"""Search in passages: exact words and phrases through FTS5, meaning through a scan of int8 vectors.

The information of a word follows from how many of all passages have it, also those of other shards; so it is
counted first (`count`), then the best videos are found (`find`). What a shard finds does not depend on how
passages are spread over segments and shards.

N passages, V videos, Q queries, D width
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.evidence.sources import SAID, WRITTEN, TextEvidence
from holmes.heard.passages import Passage
from holmes.index.engine.kernels import code_products
from holmes.index.storage.passages import LARGEST_CODE, PassageSegment, spaced
from holmes.index.storage.segments import video_key
from holmes.index.storage.store import IndexStore

MOST_VIDEOS = 100  # that words may speak for
MOST_TERMS, MOST_PHRASES = 24, 4
MOST_POSTINGS = 2_000_000  # passages with a word, above which a rarer word must do
MOST_VERIFIED = 5_000  # passages whose text is compared with a phrase
QUOTED = re.compile(r"[\"“”„«»]([^\"“”„«»]{2,200})[\"“”„«»]")
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
# Words that carry nothing, and words about the saying and the writing itself.
COMMON_WORDS = (
    "a an the and or but of in on at to from with by for is are was were be been being am has have had "
    "having his her their its it he she they we you i me my your our us them him who whom which what when "
    "where why how while into over under up down out off this that these those there here some any no not do "
    "does did done so as if then than too very can could will would shall should may might must just about"
)
FRAME_WORDS = (
    "say says said saying tell tells told telling talk talks talked talking speak speaks speaking spoke "
    "mention mentions mentioned mentioning someone somebody person people narrator speaker voice hear "
    "heard sentence word words phrase video film movie clip scene moment sign signs reads written write "
    "writes text caption captions screen shown shows showing letters label"
)
COMMON, FRAME = frozenset(COMMON_WORDS.split()), frozenset(FRAME_WORDS.split())


@dataclass(frozen=True)
class WordQuery:
    """One sentence as passages are searched for it."""

    terms: tuple[str, ...]
    phrases: tuple[str, ...]
    vector_D: NDArray[np.float32] | None = None  # its meaning

    @classmethod
    def of(cls, sentence: str, vector_D: NDArray[np.float32] | None = None) -> WordQuery:
        words = list(dict.fromkeys(word.casefold() for word in WORD.findall(spaced(sentence))))
        for dropped in (COMMON | FRAME, COMMON, frozenset[str]()):
            kept = [word for word in words if word not in dropped]
            if kept:
                break
        phrases = [phrase.strip() for phrase in QUOTED.findall(sentence) if WORD.search(phrase)]
        return cls(tuple(kept[:MOST_TERMS]), tuple(phrases[:MOST_PHRASES]), vector_D)


@dataclass(frozen=True)
class FoundWords:
    """The best passages of a video, and how strongly they speak for it."""

    video: str
    key: int  # orders videos with equal evidence
    log_evidence: tuple[float, float]  # said, written; -inf where there is nothing
    passages: tuple[Passage | None, Passage | None]
    exact: bool = False  # one of them has the very words that were quoted
    features: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())  # m, c, z of each

    @property
    def rank(self) -> tuple[float, int]:
        return -max(self.log_evidence), self.key


@dataclass(frozen=True)
class Counts:
    """How many passages there are, and how many have each word."""

    passages: int = 0
    words: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Counts) -> Counts:
        words = {
            w: self.words.get(w, 0) + other.words.get(w, 0) for w in self.words.keys() | other.words.keys()
        }
        return Counts(self.passages + other.passages, words)

    def information(self, word: str) -> float:
        """log N/n: how much it tells that a passage has this word."""
        return max(0.0, math.log((self.passages + 1) / (self.words.get(word, 0) + 0.5)))


class PassageIndex:
    """All passages of an open index."""

    def __init__(self, store: IndexStore) -> None:
        self.segments = [segment for segment in store.passages if segment.entry.passages]
        self.encoder = next((segment.entry.encoder for segment in self.segments), "")

    def __bool__(self) -> bool:
        return bool(self.segments)

    def count(self, queries: Sequence[WordQuery]) -> Counts:
        """How many passages have each word of these queries."""
        terms = sorted({term for query in queries for term in query.terms})
        total = Counts(sum(segment.entry.passages for segment in self.segments))
        for segment in self.segments:
            sql = "SELECT count(*) FROM words WHERE words MATCH ?"
            found = {term: segment.rows(sql, (_quoted(term),))[0][0] for term in terms}
            total = total + Counts(0, found)
        return total

    def find(
        self,
        queries: Sequence[WordQuery],
        counts: Counts,
        weights: TextEvidence,
        allowed: Collection[str] | None = None,
        top: int = MOST_VIDEOS,
    ) -> list[list[FoundWords]]:
        """The best videos of each query, by their spoken and written words."""
        found: list[list[FoundWords]] = [[] for _ in queries]
        for segment in self.segments:
            search = _Segment(segment, allowed)
            for q, some in enumerate(search.find(queries, counts, weights, top)):
                found[q] += some
        return [best(some, top) for some in found]


def best(found: Sequence[FoundWords], top: int = MOST_VIDEOS) -> list[FoundWords]:
    """The best of many; of a query with quoted words, only videos that have them, where any does."""
    exact = [each for each in found if each.exact]
    return sorted(exact or found, key=lambda each: each.rank)[:top]


class _Segment:
    """One segment while it is searched."""

    def __init__(self, segment: PassageSegment, allowed: Collection[str] | None) -> None:
        self.segment = segment
        live_V = np.ones(segment.entry.videos, bool)
        live_V[list(segment.entry.removed)] = False
        if allowed is not None:
            wanted = set(allowed)
            live_V &= np.array([name in wanted for name in segment.names], bool)
        self.live_V = live_V
        self.owner_N, self.kind_N = np.asarray(segment.owner_N), np.asarray(segment.kind_N)
        self.video_U, self.first_U = np.unique(self.owner_N, return_index=True)

    @cached_property
    def _codes(self) -> torch.Tensor:
        return torch.from_numpy(np.asarray(self.segment.codes_ND))

    def find(
        self, queries: Sequence[WordQuery], counts: Counts, weights: TextEvidence, top: int
    ) -> list[list[FoundWords]]:
        cosine_QN = self._cosines(queries)
        return [
            self._best(query, cosine_N, counts, weights, top)
            for query, cosine_N in zip(queries, cosine_QN, strict=True)
        ]

    def _cosines(self, queries: Sequence[WordQuery]) -> NDArray[np.float32]:
        """The cosine of every passage's meaning and each query's; 0 where either has no vector."""
        passages, width = self.segment.codes_ND.shape
        cosine_QN = np.zeros((len(queries), passages), np.float32)
        asked = [q for q, query in enumerate(queries) if query.vector_D is not None]
        if not asked or not width or not passages:
            return cosine_QN
        rows_QD = np.stack([np.asarray(queries[q].vector_D, np.float32) for q in asked])
        if rows_QD.shape[1] != width:
            return cosine_QN
        scale_Q1 = np.maximum(np.abs(rows_QD).max(axis=1, keepdims=True), 1e-9) / LARGEST_CODE
        probes_QD = torch.from_numpy(np.rint(rows_QD / scale_Q1).astype(np.int8))
        product_NQ = code_products(probes_QD)(self._codes.unsqueeze(0)).float().numpy()
        scale_N = np.asarray(self.segment.scale_N)
        cosine_QN[asked] = product_NQ.T * scale_N * scale_Q1
        return cosine_QN

    def _best(
        self,
        query: WordQuery,
        cosine_N: NDArray[np.float32],
        counts: Counts,
        weights: TextEvidence,
        top: int,
    ) -> list[FoundWords]:
        information = {term: counts.information(term) for term in query.terms}
        whole = sum(information.values())
        matched_N = np.zeros(len(self.owner_N), np.float32)
        rare = [t for t in query.terms if counts.words.get(t, 0) <= MOST_POSTINGS]
        for term in rare or query.terms[:1]:
            matched_N[self._rows(_quoted(term))] += information[term]
        exact_N = self._exact(query.phrases)
        coverage_N = matched_N / max(whole, 1e-9)
        log_N = weights.words * matched_N + weights.coverage * coverage_N + weights.meaning * cosine_N
        log_N += np.array(weights.offsets, np.float32)[self.kind_N] + weights.exact * exact_N
        log_N[~self.live_V[self.owner_N]] = -np.inf
        best_2U = np.stack(
            [
                np.maximum.reduceat(np.where(self.kind_N == kind, log_N, -np.inf), self.first_U)
                for kind in (SAID, WRITTEN)
            ]
        )
        either_U = best_2U.max(axis=0)
        if query.phrases and exact_N.any():  # only those that have the quoted words
            either_U = np.where(np.maximum.reduceat(exact_N, self.first_U) > 0, either_U, -np.inf)
        candidates = np.argsort(-either_U, kind="stable")[: top + 1]
        ends_U = np.append(self.first_U[1:], len(self.owner_N))
        found = []
        for at in candidates[np.isfinite(either_U[candidates])][:top]:
            own = slice(int(self.first_U[at]), int(ends_U[at]))
            name = self.segment.names[int(self.video_U[at])]
            evidence, features, exact = list[float](), list[tuple[float, ...]](), False
            passages: list[Passage | None] = []
            for kind in (SAID, WRITTEN):
                value = float(best_2U[kind, at])
                evidence.append(value)
                if not math.isfinite(value):
                    passages.append(None)
                    features.append(())
                    continue
                of_kind = np.where(self.kind_N[own] == kind, log_N[own], -np.inf)
                number = own.start + int(of_kind.argmax())
                passages.append(self.segment.passage(number))
                features.append(
                    (float(matched_N[number]), float(coverage_N[number]), float(cosine_N[number]))
                )
                exact |= bool(exact_N[number])
            found.append(
                FoundWords(
                    name,
                    video_key(name),
                    (evidence[0], evidence[1]),
                    (passages[0], passages[1]),
                    exact,
                    (features[0], features[1]),
                )
            )
        return found

    def _rows(self, match: str) -> NDArray[np.int64]:
        rows = self.segment.rows("SELECT rowid FROM words WHERE words MATCH ?", (match,))
        numbers = np.fromiter((row[0] for row in rows), np.int64, len(rows))
        return numbers[(numbers >= 0) & (numbers < len(self.owner_N))]

    def _exact(self, phrases: Sequence[str]) -> NDArray[np.float32]:
        """1 for every passage that has the quoted words, one after the other, not only their stems."""
        exact_N = np.zeros(len(self.owner_N), np.float32)
        for phrase in phrases:
            wanted = words_of(phrase)
            rows = self._rows(_quoted(" ".join(wanted)))
            for number in rows[:MOST_VERIFIED].tolist():
                if has_phrase(words_of(self.segment.passage(number).text), wanted):
                    exact_N[number] = 1
        return exact_N


def words_of(text: str) -> list[str]:
    """The words of a text as they are compared: without case, accents apart."""
    return [word.casefold() for word in WORD.findall(spaced(text))]


def has_phrase(words: Sequence[str], phrase: Sequence[str]) -> bool:
    size = len(phrase)
    return any(list(words[at : at + size]) == list(phrase) for at in range(len(words) - size + 1))


def _quoted(words: str) -> str:
    """Words as a phrase of FTS5, in which nothing is an operator."""
    return '"' + words.replace('"', " ") + '"'
