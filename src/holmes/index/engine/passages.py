"""Search passages: words and phrases with FTS5, meaning by a scan of int8 vectors.

The information of a word follows from how many of all passages have it, also those of other shards; so it is
counted first (`count`), then the best videos are found (`find`). What a shard finds does not depend on how
passages are spread over segments and shards.

N passages, V videos (U with passages), Q queries, C clauses, S sources, F features, D width
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.evidence.sources import SAID, WRITTEN, ClauseKind, TextEvidence, likely_about
from holmes.heard.passages import Passage
from holmes.index.engine.kernels import code_products
from holmes.index.storage.passages import LARGEST_CODE, PassageSegment, spaced
from holmes.index.storage.segments import video_key
from holmes.index.storage.store import IndexStore

MOST_VIDEOS = 100  # with matching words
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
# Words after which a clause is about what is said, or what is written; after a sign, saying is writing too.
SAYING_WORDS = (
    "say says said saying tell tells told telling talk talks talked talking speak speaks speaking spoke "
    "mention mentions mentioned mentioning"
)
LETTERED_WORDS = "sign signs caption captions text screen label letters poster banner title slide"
SAYING, READING = frozenset(SAYING_WORDS.split()), frozenset({"reads", "written", "writes"})
LETTERED = frozenset(LETTERED_WORDS.split())
LINKING = frozenset({"that", "about", "of"})  # between such a word and its clause
MOST_CLAUSES = 4
FEW_WORDS = 3  # that a passage means if it has them all; more may come from several sentences
MOST_REWORDED = 4  # words that no passage has, of a clause about what is said: more were not fitted
# As if there were this many more passages, of which so many have a word: a few passages tell little of words.
MORE_PASSAGES, MORE_WITH_WORD = 50.0, 2.0


@dataclass(frozen=True)
class Clause:
    """A part of a sentence that is about one source."""

    kind: ClauseKind
    text: str
    terms: tuple[str, ...]
    phrases: tuple[str, ...]
    vector_D: NDArray[np.float32] | None = None  # its meaning


@dataclass(frozen=True)
class WordQuery:
    """One sentence as passages are searched for it."""

    clauses: tuple[Clause, ...]

    @classmethod
    def of(cls, sentence: str, described: bool = False) -> WordQuery:
        found = clauses_of(sentence)
        kinds = [kind for kind, _ in found]
        clauses = []
        for kind, text in found[:MOST_CLAUSES]:
            phrases = [phrase.strip() for phrase in QUOTED.findall(text) if WORD.search(phrase)]
            if kind == ClauseKind.BARE and len(kinds) > 1:
                kind = ClauseKind.BESIDE
            elif kind == ClauseKind.BARE and described:
                kind = ClauseKind.DESCRIBED
            clauses.append(Clause(kind, text, terms_of(text), tuple(phrases[:MOST_PHRASES])))
        return cls(tuple(clauses))

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(term for clause in self.clauses for term in clause.terms))

    @property
    def phrases(self) -> tuple[str, ...]:
        return tuple(phrase for clause in self.clauses for phrase in clause.phrases)

    @property
    def kinds(self) -> tuple[ClauseKind, ...]:
        return tuple(clause.kind for clause in self.clauses)


def clauses_of(sentence: str) -> list[tuple[ClauseKind, str]]:
    """The parts of a sentence: about pictures, in quotation marks, or after a word like says or reads.

    Nothing inside quotation marks ends a clause: "she said no" is quoted as it stands.
    """
    words = [match.group().casefold() for match in WORD.finditer(sentence)]
    spans, quotations = _spans(sentence)
    quoted = {at for first, end in quotations for at in range(first, end)}
    clauses, kind, begin = list[tuple[ClauseKind, int, int]](), ClauseKind.BARE, 0
    for at, word in enumerate(words):
        ended = next((end for first, end in quotations if first == at), None)
        lettered = word in SAYING and not LETTERED.isdisjoint(words[max(0, at - 2) : at])
        if ended is not None and kind == ClauseKind.BARE:
            clauses += [(kind, begin, at), (ClauseKind.QUOTED, at, ended)]
            begin = ended
        elif at in quoted:
            continue
        elif word in READING or word in SAYING:
            clauses.append((kind, begin, at))
            kind, begin = ClauseKind.WRITTEN if word in READING or lettered else ClauseKind.SAID, at + 1
        elif word == "while" and kind != ClauseKind.BARE:  # someone says … while a ball rolls
            clauses.append((kind, begin, at))
            kind, begin = ClauseKind.BARE, at + 1
    clauses.append((kind, begin, len(words)))
    found = []
    for kind, first, end in clauses:
        while 0 < first < end and first not in quoted and words[first] in LINKING:
            first += 1
        while first < end < len(words) and end - 1 not in quoted and words[end - 1] in COMMON | FRAME:
            end -= 1
        if any(at in quoted or words[at] not in COMMON | FRAME for at in range(first, end)):
            from_, to = spans[first][0] if first else 0, spans[end - 1][1] if end < len(words) else None
            found.append((kind, sentence[from_:to]))
    found.sort(key=lambda each: each[0] != ClauseKind.BARE)  # pictures count for the first clause
    return found or [(ClauseKind.BARE, sentence)]


def _spans(sentence: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Where each word begins and ends, quotation marks included; which words are quoted."""
    spans = [match.span() for match in WORD.finditer(sentence)]
    quotations = []
    for quotation in QUOTED.finditer(sentence):
        start, stop = quotation.span()
        inside = [at for at, (from_, to) in enumerate(spans) if start < from_ and to < stop]
        if inside:
            first, last = inside[0], inside[-1]
            spans[first] = (start, spans[first][1])
            spans[last] = (spans[last][0], stop)
            quotations.append((first, last + 1))
    return spans, quotations


def terms_of(text: str) -> tuple[str, ...]:
    """The words that a text is searched by."""
    words = list(dict.fromkeys(word.casefold() for word in WORD.findall(spaced(text))))
    for dropped in (COMMON | FRAME, COMMON, frozenset[str]()):
        kept = [word for word in words if word not in dropped]
        if kept:
            break
    return tuple(kept[:MOST_TERMS])


@dataclass(frozen=True)
class FoundWords:
    """The best passages of a video, and the strength of their evidence."""

    video: str
    key: int  # orders videos with equal evidence
    log_ratios: tuple[tuple[float, float], ...]  # of each clause: said, written; -inf where there is nothing
    passages: tuple[Passage | None, Passage | None]
    exact: bool = False  # one of them has the very words that were quoted
    support: float = 0.0  # by which the best are chosen

    @property
    def rank(self) -> tuple[float, int]:
        return -self.support, self.key


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
        """log N/n: how much it tells that a passage has this word, n of the others."""
        others = max(0, self.words.get(word, 0) - 1)
        return math.log((self.passages + MORE_PASSAGES) / (others + MORE_WITH_WORD))


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
            search = SegmentSearch(segment, allowed)
            for q, some in enumerate(search.find(queries, counts, weights, top)):
                found[q] += some
        return [best(some, top) for some in found]


def best(found: Sequence[FoundWords], top: int = MOST_VIDEOS) -> list[FoundWords]:
    """The best of many; of a query with quoted words, only videos that have them, where any does."""
    exact = [each for each in found if each.exact]
    return sorted(exact or found, key=lambda each: each.rank)[:top]


class SegmentSearch:
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
        clauses = [clause for query in queries for clause in query.clauses]
        cosine_CN = iter(self.cosines(clauses))
        return [self._best(query, cosine_CN, counts, weights, top) for query in queries]

    def cosines(self, clauses: Sequence[Clause]) -> NDArray[np.float32]:
        """The cosine of every passage's meaning and each clause's; 0 where either has no vector."""
        passages, width = self.segment.codes_ND.shape
        cosine_CN = np.zeros((len(clauses), passages), np.float32)
        asked = [at for at, clause in enumerate(clauses) if clause.vector_D is not None]
        if not asked or not width or not passages:
            return cosine_CN
        rows_CD = np.stack([np.asarray(clauses[at].vector_D, np.float32) for at in asked])
        if rows_CD.shape[1] != width:
            return cosine_CN
        scale_C1 = np.maximum(np.abs(rows_CD).max(axis=1, keepdims=True), 1e-9) / LARGEST_CODE
        probes_CD = torch.from_numpy(np.rint(rows_CD / scale_C1).astype(np.int8))
        product_NC = code_products(probes_CD)(self._codes.unsqueeze(0)).float().numpy()
        scale_N = np.asarray(self.segment.scale_N)
        cosine_CN[asked] = product_NC.T * scale_N * scale_C1
        return cosine_CN

    def features(self, clause: Clause, cosine_N: NDArray[np.float32], counts: Counts) -> NDArray[np.float32]:
        """m, l, u or v · z, z and whether it has a quoted phrase: of every passage (`evidence.sources`)."""
        rare = [t for t in clause.terms if counts.words.get(t, 0) <= MOST_POSTINGS] or clause.terms[:1]
        known = [term for term in rare if counts.words.get(term, 0)]
        matched_N, lacks_N = np.zeros((2, len(self.owner_N)), np.float32)
        lacks_N += len(known)
        for term in known:
            rows = self.rows_with(term)
            matched_N[rows] += counts.information(term)
            lacks_N[rows] -= 1
        exact_N = self._exact(clause.phrases)
        # The meaning of few words is far from that of a long sentence that has them.
        means_N = exact_N > 0
        formed = clause.kind in (ClauseKind.SAID, ClauseKind.WRITTEN)
        if formed and 0 < len(known) == len(rare) <= FEW_WORDS:
            means_N |= lacks_N == 0
        cosine_N = np.where(means_N, np.float32(1), cosine_N)
        unknown = len(rare) - len(known)
        reworded = min(unknown, MOST_REWORDED) * counts.passages / (counts.passages + MORE_PASSAGES)
        unknown_N = np.where(self.kind_N == SAID, reworded * cosine_N, unknown).astype(np.float32)
        return np.stack([matched_N, lacks_N, unknown_N, cosine_N, exact_N], 1)

    def _best(
        self,
        query: WordQuery,
        cosine_CN: Iterator[NDArray[np.float32]],
        counts: Counts,
        weights: TextEvidence,
        top: int,
    ) -> list[FoundWords]:
        passages = len(self.owner_N)
        slopes_SF = np.array(weights.slopes_SF, np.float32)
        offset_N = np.array(weights.offsets, np.float32)[self.kind_N]
        log_CN = np.empty((len(query.clauses), passages), np.float64)
        exact_N = np.zeros(passages, bool)
        for at, clause in enumerate(query.clauses):
            features_NF = self.features(clause, next(cosine_CN), counts)
            log_CN[at] = (features_NF * slopes_SF[self.kind_N]).sum(1) + offset_N
            exact_N |= features_NF[:, 4] > 0
        dead_N = ~self.live_V[self.owner_N]
        ratio_CUS = np.empty((len(query.clauses), len(self.first_U), 2))
        for kind in (SAID, WRITTEN):
            of_kind_N = (self.kind_N == kind) & ~dead_N
            ratio_CUS[:, :, kind] = self._means(log_CN, of_kind_N)
        support_U = weights.log_support(torch.from_numpy(ratio_CUS), query.kinds).numpy()
        support_U[np.isneginf(ratio_CUS).all(axis=(0, 2))] = -np.inf
        if query.phrases and exact_N.any():  # only those that have the quoted words
            support_U[~np.logical_or.reduceat(exact_N, self.first_U)] = -np.inf
        candidates = np.argsort(-support_U, kind="stable")[:top]
        found = []
        for at in candidates[np.isfinite(support_U[candidates])]:
            name = self.segment.names[int(self.video_U[at])]
            chosen = self._chosen(int(at), log_CN, query.kinds)
            said, written = (None if n is None else self.segment.passage(n) for n in chosen)
            found.append(
                FoundWords(
                    name,
                    video_key(name),
                    tuple((float(said), float(written)) for said, written in ratio_CUS[:, at]),
                    (said, written),
                    any(exact_N[number] for number in chosen if number is not None),
                    float(support_U[at]),
                )
            )
        return found

    def _means(self, log_CN: NDArray[np.float64], some_N: NDArray[np.bool_]) -> NDArray[np.float64]:
        """log of the mean ratio of each video's passages, some of all; -inf where it has none."""
        counts_U = np.add.reduceat(some_N, self.first_U, dtype=np.int64)
        peak_C1 = log_CN.max(axis=1, keepdims=True)
        sums_CU = np.add.reduceat(np.exp(log_CN - peak_C1) * some_N, self.first_U, axis=1)
        with np.errstate(divide="ignore"):
            means_CU: NDArray[np.float64] = np.log(sums_CU) + peak_C1 - np.log(np.maximum(counts_U, 1))
        return means_CU

    def _chosen(
        self, at: int, log_CN: NDArray[np.float64], kinds: Sequence[ClauseKind]
    ) -> tuple[int | None, int | None]:
        """The passage of a video that fits best, said and written, for any clause that may be about it."""
        ends_U = np.append(self.first_U[1:], len(self.owner_N))
        own = slice(int(self.first_U[at]), int(ends_U[at]))
        chosen: list[int | None] = []
        for source in (SAID, WRITTEN):
            about_C1 = np.array([[likely_about(kind)[source]] for kind in kinds])
            with np.errstate(divide="ignore"):
                best_N = (log_CN[:, own] + np.log(about_C1)).max(axis=0)
            best_N[self.kind_N[own] != source] = -np.inf
            chosen.append(own.start + int(best_N.argmax()) if (self.kind_N[own] == source).any() else None)
        return chosen[0], chosen[1]

    def rows_with(self, words: str) -> NDArray[np.int64]:
        """The passages that have these words, one after the other."""
        rows = self.segment.rows("SELECT rowid FROM words WHERE words MATCH ?", (_quoted(words),))
        numbers = np.fromiter((row[0] for row in rows), np.int64, len(rows))
        return numbers[(numbers >= 0) & (numbers < len(self.owner_N))]

    def _exact(self, phrases: Sequence[str]) -> NDArray[np.float32]:
        """1 for every passage that has the quoted words, one after the other, not only their stems."""
        exact_N = np.zeros(len(self.owner_N), np.float32)
        for phrase in phrases:
            wanted = words_of(phrase)
            rows = self.rows_with(" ".join(wanted))
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
