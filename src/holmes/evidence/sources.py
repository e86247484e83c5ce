"""Seen, said and written: opinions of several sources over the same videos, combined by Dempster's rule.

Pictures have an opinion already: a calibrated probability for each video, and one for "none of them". What
they give to every video alike, the least probability p of any, tells nothing apart; with "none of them" it is
the mass that they leave open, u = P(none) + N p among N videos. Their evidence is e_i = N (P(i) - p) / u.
What is said in a video, and what is written in it, is evidence too,

    log t = offset + words · m + coverage · c + meaning · z + exact

with m the information of the query's words that a passage has (Σ log N/n over words that n of N passages
have), c its share of the query's, z the cosine of MiniLM's vectors; the best passage counts. The evidence of
two sources combines to e + t + e t / N (eq. 16). What stays open in the end is shared between "none of them"
and all videos as pictures share it. A source that has nothing to say has t = 0 and changes nothing, so the
probability stays what it was without it. The numbers are fitted on held-out queries of all kinds, of each of
which the right video is taken away once.

Q queries, V videos, K candidates, M videos that a source speaks of, S such sources (said, written)
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from holmes.base.validation import Within, build
from holmes.evidence.distribution import CERTAIN, EXPECT_MISSING, GalleryDistribution
from holmes.records import Scores

SAID, WRITTEN = 0, 1
LARGEST_LOG = 200.0  # of evidence: far beyond certainty, and still a number in float64
LEAST_OPEN = 1e-6  # that pictures leave open, however sure they are
PULL = 0.02  # of each number towards the one that is shipped, as many queries' worth
Number = Annotated[float, Within(-1e3, 1e3)]


@dataclass(frozen=True)
class TextEvidence:
    """How strongly words speak for a video; fitted on held-out queries, see benchmarks/heard.py."""

    said: Number = -2.5  # offsets
    written: Number = -1.4
    words: Number = 0.25  # for each nat of information
    coverage: Number = 2.5
    meaning: Number = 8.5
    exact: Number = 8.0  # a phrase in quotation marks

    @property
    def offsets(self) -> tuple[float, float]:
        return self.said, self.written

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


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
    log_evidence_QMS: Tensor  # -inf where a source says nothing
    scores: Scores  # Q × M, of each video's best part
    parts_QM: Tensor  # how many parts each video has


@dataclass(frozen=True)
class Fused:
    """A distribution that counts every source, and the evidence of each: seen, said, written."""

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
    text_QMS = told.log_evidence_QMS.double().clamp(max=LARGEST_LOG).exp()
    text_QMS = text_QMS * (told.video_QM >= 0).unsqueeze(2)
    text_QKS = torch.einsum("qmk,qms->qks", same_QMK.double(), text_QMS)
    text_QKS = torch.cat([text_QKS, text_QMS * new_QM.unsqueeze(2)], 1)
    none_Q1 = none_Q.double().clamp(LEAST_OPEN, 1 - LEAST_OPEN).unsqueeze(1)
    log_alpha_QK = torch.cat([gallery.log_alpha_QK.double(), log_alpha_QM.double()], 1)
    share_QK = (log_alpha_QK - gallery.log_strength_Q.double().unsqueeze(1)).exp().clamp(max=1)
    is_video_QK = torch.cat([video_QK >= 0, new_QM], 1)
    known = video_QK.shape[1]
    seen_QK = (1 - none_Q1) * share_QK * is_video_QK
    least_Q1 = _least(seen_QK[:, :known], is_video_QK[:, :known], none_Q1, gallery.videos)
    open_Q1 = none_Q1 + gallery.videos * least_Q1
    seen_QK = gallery.videos * (seen_QK - least_Q1).clamp(min=0) * is_video_QK / open_Q1
    fused_QK = fuse_evidence_of(seen_QK, text_QKS, gallery.videos)
    strength_Q1 = gallery.videos / open_Q1 + (fused_QK - seen_QK).sum(1, keepdim=True)
    left_open_Q1 = gallery.videos / strength_Q1
    missing_Q1 = left_open_Q1 * none_Q1 / open_Q1
    probability_QK = fused_QK / strength_Q1 + (left_open_Q1 - missing_Q1) / gallery.videos
    fused = replace(
        gallery,
        # P(i) in the form of a distribution whose concentrations sum to S, without "none of them".
        log_alpha_QK=(probability_QK * is_video_QK / (1 - missing_Q1) * strength_Q1).log(),
        log_strength_Q=strength_Q1.squeeze(1).log(),
        none_Q=stated_none(missing_Q1.squeeze(1), expect_missing),
    )
    log_sources_QK3 = torch.cat([seen_QK.unsqueeze(2), text_QKS], 2).log()
    return Fused(fused, log_sources_QK3, is_video_QK.sum(1))


def _least(seen_QK: Tensor, is_video_QK: Tensor, none_Q1: Tensor, videos: int) -> Tensor:
    """The least probability of any video, Q × 1; of those that are no candidates the mean is known."""
    least_Q1 = seen_QK.masked_fill(~is_video_QK, torch.inf).amin(1, keepdim=True)
    unseen_Q1 = videos - is_video_QK.sum(1, keepdim=True)
    left_Q1 = (1 - none_Q1 - seen_QK.sum(1, keepdim=True)).clamp(min=0) / unseen_Q1.clamp(min=1)
    return torch.where(unseen_Q1 > 0, torch.minimum(least_Q1, left_Q1), least_Q1)


def stated_none(none_Q: Tensor, expect_missing: float) -> Tensor:
    """P(none) under another prior than the usual one."""
    if expect_missing <= 0:
        return torch.zeros_like(none_Q)
    prior = min(max(expect_missing, CERTAIN), 1 - CERTAIN)
    shift = math.log(prior / (1 - prior)) - math.log(EXPECT_MISSING / (1 - EXPECT_MISSING))
    return torch.sigmoid(torch.logit(none_Q.double(), 1e-12) + shift)


def fuse_evidence_of(seen_QK: Tensor, text_QKS: Tensor, videos: int) -> Tensor:
    """e ⊕ t₁ ⊕ t₂ …: Dempster's rule in closed form, one source after the other."""
    fused_QK = seen_QK.clamp(min=0)
    for text_QK in text_QKS.unbind(2):
        fused_QK = fused_QK + text_QK + fused_QK * text_QK / videos
    return fused_QK


@dataclass(frozen=True)
class HeldOut:
    """Held-out queries over a whole gallery: what pictures say, and what passages have of the query."""

    seen_QV: Tensor  # P(i) by pictures alone
    none_Q: Tensor
    features_QVS3: Tensor  # m, c and z of each video's best passage
    has_QVS: Tensor  # whether there is a passage at all
    owner_Q: Tensor  # the right video


def log_probabilities(held: HeldOut, params_5: Tensor, gone: bool) -> Tensor:
    """log P of the right video of each query; with `gone`, log P(none) where the right video is missing."""
    own_Q1 = held.owner_Q.unsqueeze(1)
    is_there_QV = torch.ones_like(held.seen_QV, dtype=torch.bool)
    if gone:
        is_there_QV = is_there_QV.scatter(1, own_Q1, False)
    videos = held.seen_QV.shape[1] - gone
    none_Q1 = held.none_Q.double().clamp(LEAST_OPEN, 1 - LEAST_OPEN).unsqueeze(1)
    seen_QV = held.seen_QV.double() * is_there_QV
    least_Q1 = _least(seen_QV, is_there_QV, none_Q1, videos)
    open_Q1 = none_Q1 + videos * least_Q1
    seen_QV = videos * (seen_QV - least_Q1).clamp(min=0) * is_there_QV / open_Q1
    offset_S, slopes_3 = params_5[:2], params_5[2:].exp()
    log_text_QVS = (held.features_QVS3.double() * slopes_3).sum(3) + offset_S
    text_QVS = log_text_QVS.clamp(max=LARGEST_LOG).exp() * held.has_QVS * is_there_QV.unsqueeze(2)
    fused_QV = fuse_evidence_of(seen_QV, text_QVS, videos)
    strength_Q1 = videos + fused_QV.sum(1, keepdim=True)
    missing_Q1 = videos / strength_Q1 * none_Q1 / open_Q1
    if gone:
        return missing_Q1.squeeze(1).log()
    own_QV = fused_QV.gather(1, own_Q1) / strength_Q1 + 1 / strength_Q1 - missing_Q1 / videos
    return own_QV.squeeze(1).clamp(min=1e-300).log()


@torch.inference_mode(False)
@torch.enable_grad()
def fit_text_evidence(there: HeldOut, gone: HeldOut | None = None) -> TextEvidence:
    """The numbers under which held-out queries' videos are most probable, and "none" where they are gone.

    `gone` are the same queries, with what pictures say when the right video is taken away.
    """
    shipped = TextEvidence()
    slopes = (shipped.words, shipped.coverage, shipped.meaning)
    centre_5 = torch.tensor([*shipped.offsets, *(math.log(slope) for slope in slopes)], dtype=torch.float64)
    params_5 = centre_5.clone().requires_grad_()
    queries = len(there.owner_Q)
    optimizer = torch.optim.LBFGS([params_5], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        total = (1 - EXPECT_MISSING) * log_probabilities(there, params_5, False).mean()
        if gone is not None:
            total = total + EXPECT_MISSING * log_probabilities(gone, params_5, True).mean()
        return PULL * (params_5 - centre_5).square().sum() / queries - total

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)
    said, written, *logs = params_5.tolist()
    words, coverage, meaning = (min(math.exp(value), 100.0) for value in logs)
    return replace(shipped, said=said, written=written, words=words, coverage=coverage, meaning=meaning)
