"""Combine what is seen, said and written: opinions over the same videos and "none of them".

A query has clauses: "a red ball while someone says the train is late" has one about pictures and one about
what is said. A source tells how much likelier what it knows of a video is if that video is meant than if it
is not. Pictures have calibrated probabilities, so their ratio is R_i = P(i) / P₀(i), where P₀ is the prior: π
for "none of them", and the same for every part of a video. The ratio of words is ε + t_i, with t_i the mean
over the passages of the video of

    log t = offset + words · m - missing · l + meaning · z + exact + (reworded · v · z  or  - unknown · u)

with m the information of the clause's words that the passage has, l how many it lacks that others have, and z
the cosine of MiniLM's vectors, or 1 where the passage has the quoted words, or all of a few that someone says
or a sign reads. ε is for words that no recogniser found. u is how many of the clause's words no passage has.
A sign is remembered as it is written, so they count against it. What is said is told in other words, and the
more of them there are, the more a small cosine tells: v = min(u, 4) N / (N + 50) in N passages, since a few
passages lack most words anyway.

A clause c is about source s with probability a_cs: its form tells (someone says …, a sign reads …, quotation
marks). Where the form tells nothing, words claim the clause by their best ratio, and pictures by how surely
the video is here: what they find is not given up for a passage that shares a word with the clause.

    a_cs ∝ exp(bare_s + lead · (l + min(l, 0))),  l = max_i log r_cs(i),  a_c,seen ∝ d (1 - P(none)) / P(none)

d is 19 for a clause that opens as people describe what they saw ("a man plays guitar", "two dogs run") and
1/4 for any other.

The opinion of a clause is

    F_c(i) = Σ_s a_cs r_cs(i),    F(i) = Π_c F_c(i),    P(i) ∝ P₀(i) F(i),    P(none) ∝ π F(none),

where "none of them" has the ratio P(none) / π by pictures and 1 + shared · Σ_j P₀(j) t_j by words. The sum is
over all videos but the one that counts most: what several videos say, videos that are not here may say too.
This is Dempster's rule with "none of them" as one of the answers: what each source leaves possible
multiplies. Two numbers mend what held-out queries show to be wrong with it, w being how far the query is
about words: in a collection of N

    logit P(none) is moved by w · size · log(N / N₀)
    P(i) ∝ P₀(i) F(i)^κ among videos,    log κ = w · power

The order of videos stays, up to their prior. What a source that heard nothing at all was to tell is left to
pictures, a quotation to the other source of words; so an index without words answers as before.

Q queries, V videos, K candidates, M videos that a source speaks of, C clauses, N passages, S sources of words
(said, written), F features of a passage (m, l, u or v · z, z, exact)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import IntEnum
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.base.validation import Within, build
from holmes.evidence.descent import descend
from holmes.evidence.distribution import CERTAIN, EXPECT_MISSING, GalleryDistribution
from holmes.records import Scores

SAID, WRITTEN = 0, 1
LARGEST_LOG = 60.0  # of a ratio: far beyond certainty, and the product of some is still a number in float64
LEAST_OPEN = 1e-6  # that pictures leave to "none of them", however sure they are
USUAL_VIDEOS = 40  # N₀
FEWEST_VIDEOS, MOST_VIDEOS = 4, 104  # that were fitted: nothing is known of others, which count like these
PULL = 0.003  # of each number towards the one that is shipped, as many queries' worth
Number = Annotated[float, Within(-1e3, 1e3)]


class ClauseKind(IntEnum):
    """What a clause's form says of its source."""

    BARE = 0  # nothing
    BESIDE = 1  # nothing, but another clause of the query has a form
    SAID = 2
    WRITTEN = 3
    QUOTED = 4
    ABSENT = 5  # there is no such clause
    DESCRIBED = 6  # nothing, but it opens as people open a description: a, two, someone


# How probable it is that a clause is about what is seen, said, written, or nothing that any of them knows.
# Not fitted: in the rendered world forms never mislead. Of a bare clause it follows from the passages.
ABOUT = (
    (1.0, 0.0, 0.0, 0.0),
    (0.95, 0.0, 0.0, 0.05),
    (0.0, 0.95, 0.05, 0.0),
    (0.0, 0.05, 0.95, 0.0),
    (0.05, 0.6, 0.35, 0.0),
    (0.0, 0.0, 0.0, 1.0),
    (1.0, 0.0, 0.0, 0.0),
)
# The share of captions, and of what people say and write, that open as a description. Not fitted: the means
# of three collections of videos and images (69 to 81%) and of four of texts (2 to 6%).
CAPTIONS, TEXTS = 0.76, 0.04
# d: how much likelier a clause is about pictures if it opens so, and if it does not.
DESCRIPTION, OTHER = CAPTIONS / TEXTS, (1 - CAPTIONS) / (1 - TEXTS)


@dataclass(frozen=True)
class TextEvidence:
    """Weights of words as evidence for a video, fitted on held-out queries by `benchmarks/heard.py --fit`.

    `words` is not fitted: 104 films that share most of their words do not tell how much a rare word is worth.
    `written`, `unknown` and `reworded` were fitted alone, after the others. `bare_said` is smaller than the
    likeliest: the largest that gave no sentence about pictures to words in five worlds.
    """

    said: Number = -3.23  # offsets
    written: Number = -7.02
    words: Number = 0.15  # for each nat of information
    missing_said: Number = 0.68  # for each word that other passages have
    missing_written: Number = 5.9
    reworded: Number = 0.97  # what is said: for each word that no passage has, times the cosine
    unknown: Number = 3.93  # what is written: for each such word
    meaning_said: Number = 9.16
    meaning_written: Number = 11.35
    exact: Number = 1.85  # a phrase in quotation marks
    lost_said: Number = -2.65  # log ε
    lost_written: Number = -7.07
    bare_said: Number = -0.6  # log odds that a bare clause is about words, if their best ratio is 1
    bare_written: Number = -1.8
    bare_lead: Number = 1.5  # how fast they grow with the logarithm of the best ratio; twice as fast below 1
    shared: Number = 0.75  # log of how much "none of them" gains by what several videos say
    power: Number = 0.27  # log κ
    size: Number = -0.55  # by how much "none of them" gains with log N

    @property
    def slopes_SF(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What each feature of a passage counts: said, written."""
        return (
            (self.words, -self.missing_said, self.reworded, self.meaning_said, self.exact),
            (self.words, -self.missing_written, -self.unknown, self.meaning_written, self.exact),
        )

    @property
    def offsets(self) -> tuple[float, float]:
        return self.said, self.written

    @property
    def lost(self) -> tuple[float, float]:
        return self.lost_said, self.lost_written

    @property
    def bare(self) -> tuple[float, float]:
        return self.bare_said, self.bare_written

    def to_dict(self) -> dict[str, float]:
        return asdict(self)

    def log_support(self, log_ratio_CUS: Tensor, kinds: Sequence[ClauseKind]) -> Tensor:
        """The evidence of words alone for U videos, to choose among many: Σ_c log Σ_s a (ε + t)."""
        about_C1S = log_ratio_CUS.new_tensor([likely_about(kind) for kind in kinds]).unsqueeze(1)
        ratio_CUS = log_ratio_CUS.clamp(max=LARGEST_LOG).exp() + log_ratio_CUS.new_tensor(self.lost).exp()
        return (about_C1S * ratio_CUS).sum(2).log().sum(0)


def likely_about(kind: ClauseKind) -> tuple[float, float]:
    """How probable it is that a clause is about what is said and written, if it is about words."""
    _, said, written, _ = ABOUT[kind]
    return (said, written) if said + written else (0.5, 0.5)


def read_text_evidence(values: Any) -> TextEvidence:
    """Numbers of a file; without any, those that are shipped."""
    if not isinstance(values, dict):
        return TextEvidence()
    known = {field.name for field in fields(TextEvidence)}
    read: TextEvidence = build(TextEvidence, {n: v for n, v in values.items() if n in known}, "text")
    return read


@dataclass(frozen=True)
class Told:
    """What is said and written in some videos, Q × M, and the scores of their pictures."""

    candidate_QK: Tensor  # the video of each candidate of the pictures
    video_QM: Tensor  # numbers of videos; -1 where a query has fewer
    log_ratio_QMCS: Tensor  # -inf where a source has no evidence
    clause_QC: Tensor  # ClauseKind
    scores: Scores  # Q × M, of each video's best part
    parts_QM: Tensor  # how many parts each video has
    weights: TextEvidence = TextEvidence()


@dataclass(frozen=True)
class Fused:
    """A distribution that counts every source, and the ratios of each: seen, said, written."""

    gallery: GalleryDistribution
    log_sources_QK3: Tensor
    videos_Q: Tensor  # columns that are videos, when they are sorted


def fuse_sources(
    gallery: GalleryDistribution,
    video_QK: Tensor,
    told: Told,
    log_alpha_QM: Tensor,
    none_Q: Tensor,
    expect_missing: float = EXPECT_MISSING,
) -> Fused:
    """The distribution when what is said and written counts too: K candidates' columns, then M others.

    `video_QK` are the videos of the gallery's columns, -1 behind a row's last; `log_alpha_QM` the
    concentrations of the others by their pictures; `none_Q` the probability that pictures alone give to "none
    of them" under the usual prior. A video that has a column among the candidates has none among the others.
    """
    same_QMK = (told.video_QM.unsqueeze(2) == video_QK.unsqueeze(1)) & (video_QK >= 0).unsqueeze(1)
    new_QM = ~same_QMK.any(2) & (told.video_QM >= 0)
    is_video_QK = torch.cat([video_QK >= 0, new_QM], 1)
    log_ratio_QMCS = told.log_ratio_QMCS.double().clamp(max=LARGEST_LOG)
    log_ratio_QMCS = log_ratio_QMCS.masked_fill((told.video_QM < 0)[:, :, None, None], -torch.inf)
    text_QMCS, same_QMK = log_ratio_QMCS.exp(), same_QMK.double()
    text_QKCS = torch.einsum("qmk,qmcs->qkcs", same_QMK, text_QMCS)
    text_QKCS = torch.cat([text_QKCS, text_QMCS * new_QM[:, :, None, None]], 1)
    parts_QK = torch.einsum("qmk,qm->qk", same_QMK, told.parts_QM.double()).clamp(min=1)
    parts_QK = torch.cat([parts_QK, told.parts_QM.double().clamp(min=1)], 1) * is_video_QK
    none_Q1 = none_Q.double().clamp(LEAST_OPEN, 1 - LEAST_OPEN).unsqueeze(1)
    log_alpha_QK = torch.cat([gallery.log_alpha_QK.double(), log_alpha_QM.double()], 1)
    share_QK = (log_alpha_QK - gallery.log_strength_Q.double().unsqueeze(1)).exp().clamp(max=1)
    seen_QK = (1 - none_Q1) * share_QK * is_video_QK
    # One more column is for all videos without matching words.
    rest_Q1 = (1 - none_Q1 - seen_QK.sum(1, keepdim=True)).clamp(min=0)
    unseen_Q1 = (gallery.videos - parts_QK.sum(1, keepdim=True)).clamp(min=0)
    base_QK = (1 - EXPECT_MISSING) * torch.cat([parts_QK, unseen_Q1], 1) / gallery.videos
    text_QKCS = torch.cat([text_QKCS, torch.zeros_like(text_QKCS[:, :1])], 1)
    numbers = numbers_of(told.weights)
    videos_Q = torch.full_like(none_Q1.squeeze(1), gallery.videos)
    about_QC4 = attributed(told.clause_QC, none_Q1.squeeze(1), log_ratio_QMCS.amax(1), numbers)
    log_fused_QK, log_none_Q = combined(
        torch.cat([seen_QK, rest_Q1], 1),
        none_Q1.squeeze(1),
        base_QK,
        text_QKCS,
        about_QC4,
        videos_Q,
        numbers,
    )
    missing_Q1, strength_Q1 = log_none_Q.exp().unsqueeze(1), gallery.log_strength_Q.double().unsqueeze(1)
    fused = replace(
        gallery,
        # P(i) in the form of a distribution whose concentrations sum to S, without "none of them".
        log_alpha_QK=log_fused_QK[:, :-1] - (1 - missing_Q1).log() + strength_Q1,
        log_strength_Q=strength_Q1.squeeze(1),
        none_Q=stated_none(missing_Q1.squeeze(1), expect_missing),
    )
    seen_ratio_QK = seen_QK / base_QK[:, :-1].clamp(min=CERTAIN)
    about_Q3 = about_QC4[:, :, :3].amax(1).clamp(min=CERTAIN)
    by_words_QKS = (about_QC4[:, None, :, 1:3] * text_QKCS[:, :-1]).amax(2)
    sources_QK3 = torch.cat([(about_Q3[:, :1] * seen_ratio_QK).unsqueeze(2), by_words_QKS], 2)
    return Fused(fused, sources_QK3.log(), is_video_QK.sum(1))


def attributed(clause_QC: Tensor, none_Q: Tensor, leading_QCS: Tensor, numbers: Numbers) -> Tensor:
    """How probable it is that each clause is about what is seen, said, written, or nothing known: Q × C × 4.

    `none_Q` is P(none) by pictures. `leading_QCS` is the best log ratio of any video by words, -inf where a
    source heard nothing: its share is left to pictures, or that of a quotation to the other source.
    """
    about_QC4 = torch.tensor(ABOUT, dtype=torch.float64)[clause_QC]
    fits_QCS = leading_QCS.clamp(min=-LARGEST_LOG)
    # Where even the best passage speaks against its video, that counts twice.
    odds_QCS = numbers.bare_S + numbers.bare_lead * (fits_QCS + fits_QCS.clamp(max=0))
    odds_QCS = odds_QCS.masked_fill(leading_QCS.isneginf(), -torch.inf)
    zero_QC1 = torch.zeros_like(odds_QCS[..., :1])
    described_QC1 = (clause_QC == ClauseKind.DESCRIBED).unsqueeze(2)
    opening_QC1 = math.log(OTHER) + described_QC1.double() * math.log(DESCRIPTION / OTHER)
    odds_QC1 = torch.logit(1 - none_Q, LEAST_OPEN)[:, None, None] + opening_QC1
    bare_QC4 = torch.cat([torch.softmax(torch.cat([odds_QC1, odds_QCS], 2), 2), zero_QC1], 2)
    bare_QC1 = (clause_QC == ClauseKind.BARE).unsqueeze(2) | described_QC1
    about_QC4 = torch.where(bare_QC1, bare_QC4, about_QC4)
    words_QCS = about_QC4[..., 1:3] * ~leading_QCS.isneginf()
    # What is quoted is said if nothing is written, and written if nothing is said.
    lost_QC1 = (about_QC4[..., 1:3] - words_QCS).sum(2, keepdim=True)
    heard_QCS = words_QCS / words_QCS.sum(2, keepdim=True).clamp(min=CERTAIN)
    words_QCS = words_QCS + (clause_QC == ClauseKind.QUOTED).unsqueeze(2) * lost_QC1 * heard_QCS
    seen_QC1 = about_QC4[..., :3].sum(2, keepdim=True) - words_QCS.sum(2, keepdim=True)
    other_QC1 = torch.zeros_like(seen_QC1)
    other_QC1[:, 1:] = seen_QC1[:, 1:]  # pictures count once, for the first clause
    return torch.cat([seen_QC1 - other_QC1, words_QCS, about_QC4[..., 3:] + other_QC1], 2)


def combined(
    seen_QV: Tensor,
    none_Q: Tensor,
    base_QV: Tensor,
    text_QVCS: Tensor,
    about_QC4: Tensor,
    videos_Q: Tensor,
    numbers: Numbers,
) -> tuple[Tensor, Tensor]:
    """log P of every video and of "none of them"; -inf where `base_QV`, the prior, is 0.

    A column may stand for several videos that are alike: ratios are raised to the power κ, not probabilities.
    """
    ratio_QVCS = text_QVCS + numbers.lost_S.exp()
    seen_QV1 = (seen_QV / base_QV.clamp(min=1e-300)).unsqueeze(2)
    by_words_QVC = (about_QC4[:, None, :, 1:3] * ratio_QVCS).sum(3)
    factor_QVC = about_QC4[:, None, :, 0] * seen_QV1 + by_words_QVC + about_QC4[:, None, :, 3]
    expected_QVCS = base_QV[:, :, None, None] * text_QVCS
    others_QCS = (expected_QVCS.sum(1) - expected_QVCS.amax(1)).clamp(min=0)
    none_QC = about_QC4[..., 0] * (none_Q / EXPECT_MISSING).unsqueeze(1) + about_QC4[..., 3]
    none_QC = none_QC + (about_QC4[..., 1:3] * (1 + numbers.shared.exp() * others_QCS)).sum(2)
    log_ratio_QV = factor_QVC.clamp(min=1e-300).log().sum(2)
    log_base_QV = base_QV.clamp(min=1e-300).log().masked_fill(base_QV <= 0, -torch.inf)
    log_none_Q = none_QC.clamp(min=1e-300).log().sum(1) + math.log(EXPECT_MISSING)
    words_Q = about_QC4[..., 1:3].sum(2).amax(1)
    size_Q = (videos_Q.double().clamp(FEWEST_VIDEOS, MOST_VIDEOS) / USUAL_VIDEOS).log()
    missing_Q = log_none_Q - (log_base_QV + log_ratio_QV).logsumexp(1) + words_Q * numbers.size * size_Q
    log_QV = log_base_QV + (words_Q * numbers.power).exp().unsqueeze(1) * log_ratio_QV
    log_QV = log_QV.log_softmax(1) + F.logsigmoid(-missing_Q).unsqueeze(1)
    return log_QV, F.logsigmoid(missing_Q)


def stated_none(none_Q: Tensor, expect_missing: float) -> Tensor:
    """P(none) under another prior than the usual one."""
    if expect_missing <= 0:
        return torch.zeros_like(none_Q)
    prior = min(max(expect_missing, CERTAIN), 1 - CERTAIN)
    shift = math.log(prior / (1 - prior)) - math.log(EXPECT_MISSING / (1 - EXPECT_MISSING))
    return torch.sigmoid(torch.logit(none_Q.double(), 1e-12) + shift)


@dataclass(frozen=True)
class Numbers:
    """The numbers of `TextEvidence` as tensors, some of which may be fitted."""

    offset_S: Tensor
    slopes_SF: Tensor
    lost_S: Tensor
    bare_S: Tensor
    bare_lead: Tensor
    shared: Tensor
    power: Tensor
    size: Tensor


def numbers_of(weights: TextEvidence) -> Numbers:
    of_each = (weights.offsets, weights.slopes_SF, weights.lost, weights.bare)
    values = (*of_each, weights.bare_lead, weights.shared, weights.power, weights.size)
    return Numbers(*(torch.tensor(value, dtype=torch.float64) for value in values))


@dataclass(frozen=True)
class HeldOut:
    """Held-out queries over whole galleries: what pictures say, and what passages have of each clause."""

    seen_QV: Tensor  # P(i) by pictures alone
    none_Q: Tensor
    there_QV: Tensor  # whether the video is in the query's gallery
    features_QCNF: Tensor
    slot_QN: Tensor  # 2 · video + source of each passage; 2 V where there is none
    clause_QC: Tensor  # ClauseKind
    owner_Q: Tensor  # the right video; -1 where none is right
    weight_Q: Tensor


def log_posterior(held: HeldOut, numbers: Numbers) -> tuple[Tensor, Tensor]:
    """log P of every video of each query's gallery, and of "none of them"."""
    queries, videos = held.seen_QV.shape
    source_QN = held.slot_QN % 2
    slopes_QNF = numbers.slopes_SF[source_QN]
    log_QCN = (held.features_QCNF * slopes_QNF.unsqueeze(1)).sum(3) + numbers.offset_S[source_QN].unsqueeze(1)
    there_QN = held.slot_QN < 2 * videos
    ratio_QCN = log_QCN.clamp(max=LARGEST_LOG).exp() * there_QN.unsqueeze(1)
    clauses = ratio_QCN.shape[1]
    sums_QCL = ratio_QCN.new_zeros(queries, clauses, 2 * videos + 1)
    sums_QCL = sums_QCL.scatter_add(2, held.slot_QN.unsqueeze(1).expand_as(ratio_QCN), ratio_QCN)
    counts_QL = ratio_QCN.new_zeros(queries, 2 * videos + 1).scatter_add(1, held.slot_QN, there_QN.double())
    text_QCL = sums_QCL / counts_QL.clamp(min=1).unsqueeze(1)
    text_QVCS = text_QCL[..., :-1].reshape(queries, clauses, videos, 2).movedim(2, 1)
    best_QCS = text_QVCS.amax(1)
    leading_QCS = best_QCS.clamp(min=1e-300).log().masked_fill(best_QCS == 0, -torch.inf)
    videos_Q = held.there_QV.sum(1)
    base_QV = (1 - EXPECT_MISSING) * held.there_QV.double() / videos_Q.unsqueeze(1)
    about_QC4 = attributed(held.clause_QC, held.none_Q, leading_QCS, numbers)
    return combined(held.seen_QV, held.none_Q, base_QV, text_QVCS, about_QC4, videos_Q, numbers)


def log_probabilities(held: HeldOut, numbers: Numbers) -> Tensor:
    """log P of the right answer of each query: its video, or "none of them"."""
    log_QV, log_none_Q = log_posterior(held, numbers)
    own_Q = log_QV.gather(1, held.owner_Q.clamp(min=0).unsqueeze(1)).squeeze(1)
    return torch.where(held.owner_Q >= 0, own_Q, log_none_Q)


FITTED = tuple(f.name for f in fields(TextEvidence) if f.name != "words")


@torch.inference_mode(False)
@torch.enable_grad()
def fit_text_evidence(held: Sequence[HeldOut], steps: int = 60) -> TextEvidence:
    """The numbers under which the right answers of held-out queries are most probable."""
    shipped = TextEvidence()
    centre = torch.tensor([getattr(shipped, name) for name in FITTED], dtype=torch.float64)
    total = sum(float(some.weight_Q.sum()) for some in held)

    def numbers(params: Tensor) -> Numbers:
        by_name: dict[str, Any] = {**shipped.to_dict(), **dict(zip(FITTED, params.unbind(), strict=True))}
        at = {name: torch.as_tensor(value, dtype=torch.float64) for name, value in by_name.items()}

        def slopes(source: str, unknown: Tensor) -> Tensor:
            missing, meaning = at[f"missing_{source}"], at[f"meaning_{source}"]
            return torch.stack([at["words"], -missing, unknown, meaning, at["exact"]])

        return Numbers(
            torch.stack([at["said"], at["written"]]),
            torch.stack([slopes("said", at["reworded"]), slopes("written", -at["unknown"])]),
            torch.stack([at["lost_said"], at["lost_written"]]),
            torch.stack([at["bare_said"], at["bare_written"]]),
            at["bare_lead"],
            at["shared"],
            at["power"],
            at["size"],
        )

    def loss(params: Tensor) -> Tensor:
        value = PULL * (params - centre).square().sum() / total
        for some in held:
            value = value - (some.weight_Q * log_probabilities(some, numbers(params))).sum() / total
        return value

    return replace(shipped, **dict(zip(FITTED, descend(loss, centre, steps)[1], strict=True)))
