"""Spoken and written words: evidence for a sentence, and quotes in an answer.

The flow: the sentence's words and meaning, the videos whose passages have them, and the scores of these
videos' pictures; then all sources are judged together (`holmes.evidence.sources`).

Q queries, M videos with matching words, N pairs of a query and a part
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch

from holmes.evidence.sources import SAID, WRITTEN, ClauseKind, TextEvidence, Told
from holmes.evidence.wording import words_lead
from holmes.heard.passages import Passage
from holmes.index.answer.answers import Hit, Quote
from holmes.index.engine.gallery import Gallery
from holmes.index.engine.nearest import Nearest
from holmes.index.engine.passages import (
    COMMON,
    WORD,
    Counts,
    FoundWords,
    PassageIndex,
    WordQuery,
    clauses_of,
    words_of,
)
from holmes.index.engine.rescoring import score_pairs
from holmes.index.engine.scan import Probes
from holmes.index.ingest.hearing import encoder_digest, sentence_vectors
from holmes.index.storage.store import IndexStore
from holmes.media.backbones.pocket import FRAME, core_of
from holmes.moments import GAP, LEAST_SECONDS, Moment
from holmes.records import Scores

NOTABLE = 0.1  # the least share of a video's evidence that makes a source worth naming
QUOTED_CHARACTERS = 90  # of a passage, in a line of text
# How people begin when they describe what they saw; speech and signs seldom begin so.
DESCRIPTION = re.compile(
    rf"\s*({FRAME.pattern})?"
    r"(an?|two|three|four|five|six|seven|eight|nine|ten|several|someone|somebody|people)\s+\w",
    re.I,
)
ENDINGS = re.compile(r"(?:'s|’s|ings?|edly|ed|ly|es|s)$")


@dataclass(frozen=True)
class Speaking:
    """A video with matching words, and the scores of its pictures."""

    found: FoundWords
    video: int  # its number in the gallery
    part: int  # its best part by its pictures
    parts: int
    frame: float
    clip: float
    score: float


@dataclass(frozen=True)
class Words:
    """What was found in the passages of an index for some sentences."""

    queries: tuple[WordQuery, ...]
    speaking: tuple[tuple[Speaking, ...], ...]  # of each query, the strongest evidence first
    weights: TextEvidence  # by which they were found

    def told(self, nearest: Nearest) -> Told | None:
        """The evidence of words, as tensors; None if no video has matching words."""
        most = max((len(row) for row in self.speaking), default=0)
        if not most:
            return None

        def table(name: str, fill: float) -> list[list[float]]:
            return [
                [getattr(each, name) for each in row] + [fill] * (most - len(row)) for row in self.speaking
            ]

        clauses = max(len(query.clauses) for query in self.queries)
        log_ratio_QMCS = torch.full((len(self.speaking), most, clauses, 2), -torch.inf, dtype=torch.float64)
        clause_QC = torch.full((len(self.queries), clauses), int(ClauseKind.ABSENT))
        for q, (query, row) in enumerate(zip(self.queries, self.speaking, strict=True)):
            count = len(query.clauses)
            clause_QC[q, :count] = torch.tensor(query.kinds)
            if row:
                ratios = torch.tensor([each.found.log_ratios for each in row], dtype=torch.float64)
                log_ratio_QMCS[q, : len(row), :count] = ratios
        return Told(
            candidate_QK=nearest.video_QK,
            video_QM=torch.tensor(table("video", -1), dtype=torch.int64),
            log_ratio_QMCS=log_ratio_QMCS,
            clause_QC=clause_QC,
            scores=Scores(torch.tensor(table("frame", 0.0)), torch.tensor(table("clip", 0.0))),
            parts_QM=torch.tensor(table("parts", 0), dtype=torch.int64),
            weights=self.weights,
        )

    def by_name(self, q: int) -> dict[str, FoundWords]:
        return {each.found.video: each.found for each in self.speaking[q]}

    def missed_quotes(self, q: int) -> tuple[str, ...]:
        """The quoted words of a sentence that no passage has."""
        query = self.queries[q]
        return () if any(each.found.exact for each in self.speaking[q]) else query.phrases


def word_queries(sentences: Sequence[str], encoder: str) -> tuple[WordQuery, ...]:
    """Sentences as passages are searched for them; with their meaning if the passages' encoder is here.

    "A video of a dog" asks for the same words as "dog".
    """
    queries = [WordQuery.of(core_of(sentence), describes(sentence)) for sentence in sentences]
    texts = [core_of(clause.text) for query in queries for clause in query.clauses]
    found = sentence_vectors(texts) if encoder and encoder == encoder_digest() else None
    if found is None:
        return tuple(queries)
    vectors = iter(found)
    return tuple(
        WordQuery(tuple(replace(clause, vector_D=next(vectors)) for clause in query.clauses))
        for query in queries
    )


def describes(sentence: str) -> bool:
    """Whether a sentence opens as people describe what they saw: "a man plays guitar", "two dogs run"."""
    return DESCRIPTION.match(sentence) is not None


def pictured(sentences: Sequence[str]) -> list[str]:
    """The parts of each sentence that are about what is seen, where its form tells; else all of it."""
    seen = (
        [text for kind, text in clauses_of(sentence) if kind == ClauseKind.BARE] for sentence in sentences
    )
    return [" ".join(found) or sentence for found, sentence in zip(seen, sentences, strict=True)]


def find_speaking(
    store: IndexStore,
    passages: PassageIndex,
    gallery: Gallery,
    probes: Probes,
    queries: Sequence[WordQuery],
    counts: Counts,
    weights: TextEvidence,
    allowed: Collection[str] | None,
) -> list[list[Speaking]]:
    """The videos whose words match each sentence, with the exact scores of their pictures."""
    found = passages.find(queries, counts, weights, allowed)
    firsts = list(accumulate((segment.entry.videos for segment in store.segments), initial=0))
    wanted = [
        (q, each, firsts[position[0]] + position[1])
        for q, row in enumerate(found)
        for each in row
        if (position := store.find(each.video)) is not None
    ]
    parts_of = _parts_of(gallery, {video for _, _, video in wanted})
    pairs = [(q, part) for q, _, video in wanted for part in parts_of[video]]
    result: list[list[Speaking]] = [[] for _ in queries]
    if not pairs:
        return result
    order = sorted(range(len(pairs)), key=pairs.__getitem__)
    query_N = torch.tensor([pairs[at][0] for at in order], device=gallery.device)
    part_N = torch.tensor([pairs[at][1] for at in order], device=gallery.device)
    scored = score_pairs(gallery, probes, query_N, part_N)
    weight_N1 = probes.weights_QT2.double().sum(1, keepdim=True).clamp(min=1e-12)[query_N]
    branches = (scored.branches_N2 / weight_N1[:, 0]).cpu().tolist()
    scores = scored.score_N.cpu().tolist()
    at_pair = {pairs[at]: position for position, at in enumerate(order)}
    for q, each, video in wanted:
        best = max(parts_of[video], key=lambda part: scores[at_pair[q, part]])
        at = at_pair[q, best]
        frame, clip = branches[at]
        result[q].append(Speaking(each, video, best, len(parts_of[video]), frame, clip, scores[at]))
    return result


def _parts_of(gallery: Gallery, videos: set[int]) -> dict[int, list[int]]:
    """The parts of some videos."""
    if not videos:
        return {}
    wanted = torch.tensor(sorted(videos), device=gallery.device)
    at_S = torch.isin(gallery.video_S, wanted).nonzero()[:, 0]
    parts: dict[int, list[int]] = {}
    for part, video in zip(at_S.tolist(), gallery.video_S[at_S].tolist(), strict=True):
        parts.setdefault(video, []).append(part)
    return parts


def with_quotes(
    hit: Hit, found: FoundWords | None, sources: tuple[float, float, float] | None, query: WordQuery
) -> Hit:
    """A hit that says why: what is said or written in it, and the moment at which."""
    if sources is None:
        return hit
    strongest = max(sources)
    ranked = sorted(zip(sources, ("seen", "said", "written"), strict=True), reverse=True)
    because = tuple(
        kind for value, kind in ranked if value == strongest or value >= strongest + math.log(NOTABLE)
    )
    quotes = []
    for kind, at in ((SAID, "said"), (WRITTEN, "written")):
        passage = found.passages[kind] if found is not None else None
        if passage is not None and at in because:
            quotes.append((sources[1 + kind], Quote(at, passage, marks(passage.text, query))))
    quotes.sort(key=lambda each: -each[0])
    told = tuple(quote for _, quote in quotes)
    moments = hit.moments
    if told:
        spoken = _moment(told[0].passage, moments)
        leads = words_lead([sources])
        moments = _apart((spoken, *moments) if leads else (moments[0], spoken, *moments[1:]))
    return replace(hit, moments=moments, because=because, quotes=told)


def _apart(moments: Sequence[Moment]) -> tuple[Moment, ...]:
    """Moments without those that lie beside an earlier one."""
    kept: list[Moment] = []
    for moment in moments:
        if all(moment.end + GAP <= other.start or other.end + GAP <= moment.start for other in kept):
            kept.append(moment)
    return tuple(kept)


def _moment(passage: Passage, moments: Sequence[Moment]) -> Moment:
    """The moment of a passage; a short one begins earlier, since a video may end with it."""
    start = max(0.0, min(passage.start, passage.end - LEAST_SECONDS))
    last = max(moment.end for moment in moments)  # of a video that is shorter than a moment
    return Moment(start, max(passage.end, min(start + LEAST_SECONDS, last)), moments[0].score)


def marks(text: str, query: WordQuery) -> tuple[tuple[int, int], ...]:
    """Where the query's words, or words of the same stem, are in a text: from and to, by characters."""
    wanted = {_stem(term) for term in query.terms}
    for phrase in query.phrases:
        wanted |= {_stem(word) for word in words_of(phrase)}
    wanted = {stem for stem in wanted if stem not in COMMON} or wanted
    found = [match.span() for match in WORD.finditer(text) if _stem(match.group().casefold()) in wanted]
    if not found:  # of a script without spaces
        low = text.casefold()
        found = [(at, at + len(t)) for t in query.terms if (at := low.find(t)) >= 0 and not t.isascii()]
    return tuple(sorted(set(found)))


def _stem(word: str) -> str:
    """About what the full-text index takes for the same word; only for marking."""
    for _ in range(2):
        shorter = ENDINGS.sub("", word)
        if len(shorter) < 3:
            break
        word = shorter
    return word.removesuffix("e") if len(word) > 3 else word


def excerpt(quote: Quote, most: int = QUOTED_CHARACTERS) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The part of a passage around its marked words, and the marks in it."""
    text = quote.passage.text
    if len(text) <= most:
        return text, quote.marks
    first = quote.marks[0][0] if quote.marks else 0
    start = max(0, min(first - most // 4, len(text) - most))
    start = text.rfind(" ", 0, start) + 1 if start else 0
    end = min(len(text), start + most)
    if end < len(text):
        end = max(text.rfind(" ", start, end), start + 1)
    head, tail = "… " if start else "", " …" if end < len(text) else ""
    inside = [
        (a - start + len(head), b - start + len(head)) for a, b in quote.marks if start <= a and b <= end
    ]
    return f"{head}{text[start:end]}{tail}", tuple(inside)
