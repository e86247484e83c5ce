"""A probability that can be believed, in a gallery of any size.

Every video of the gallery gets the evidence e = exp((s - s₀) / T) from its score s. The Dirichlet with
concentrations e + 1 then expects video i to be the right one with probability (e_i + 1) / S, S = N + Σ e over
all N videos, and what is left without evidence is N / S, the vacuity: u with the whole gallery as candidates.
T and s₀ are fitted on held-out queries. The sum grows with the gallery, so one pair serves 100 videos and
100,000: more videos take their share of the probability, and the evidence for the right one stays as it is.

A search sees only the best K; what the others add to the sum follows from the mean and deviation of all
scores.

Q queries, K candidates (best first), V videos of the gallery
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.evidence.dirichlet import at_least_float32
from holmes.evidence.film_parts import first_of_each, sum_by_video
from holmes.evidence.logistic import fit_logistic

SMALLEST_DEVIATION = 1e-4  # smallest deviation of a gallery's scores
STARTS = (0.0, 1.0, 3.0)  # s₀ above the mean, in deviations: the likelihood may have several hills
TIE = 1e-3  # how much more probable than the first a candidate may seem through rounding
SMALLEST_REST = 1e-12  # least share of the probability that the first hit leaves to the others
ABOUT_EQUAL = 0.5  # a video fits about as well as the best if it is at least this share as probable
PENALTY = 1e-4  # keeps T and s₀ finite where every query is answered, or none
CERTAIN = 1e-9  # log-odds are finite up to here
ODDS_PRIOR = 10.0  # pulls towards no correction, as strongly as a few dozen queries would
LEAST_SLOPE = 0.1


@dataclass(frozen=True)
class OddsCorrection:
    """log-odds → shift + slope · log-odds, in a gallery of `videos`."""

    shift: float
    slope: float
    videos: int

    def of(self, probability_Q: Tensor, videos: int) -> Tensor:
        """The corrected probability of the first hit in a gallery of so many videos."""
        if videos == 1:  # the only one there is
            return probability_Q
        size = math.log((videos - 1) / max(self.videos - 1, 1))
        odds_Q = log_odds(probability_Q) + size
        return torch.sigmoid(self.shift + self.slope * odds_Q - size).to(probability_Q.dtype)


def log_odds(probability_Q: Tensor) -> Tensor:
    return torch.logit(probability_Q.double(), eps=CERTAIN)


def fit_odds_correction(probability_Q: Tensor, right_Q: Tensor, videos: int) -> OddsCorrection:
    """Logistic regression of "the first hit is right" on its log-odds."""
    odds_Q2 = torch.stack([torch.ones_like(probability_Q, dtype=torch.float64), log_odds(probability_Q)], 1)
    line_2 = fit_logistic(odds_Q2, right_Q, ODDS_PRIOR, towards_X=torch.tensor([0.0, 1.0]))
    shift, slope = line_2.tolist()
    return OddsCorrection(shift, max(slope, LEAST_SLOPE), videos)


@dataclass(frozen=True)
class ScoreEvidence:
    """e = exp((s - offset) / temperature)."""

    temperature: float
    offset: float

    def log(self, score: Tensor) -> Tensor:
        return (at_least_float32(score) - self.offset) / self.temperature


@dataclass(frozen=True)
class Background:
    """Each query's scores over the whole gallery, as two numbers."""

    mean_Q: Tensor
    deviation_Q: Tensor


def background(score_QV: Tensor) -> Background:
    score_QV = at_least_float32(score_QV)
    return Background(score_QV.mean(-1), score_QV.std(-1, correction=0))


def guessed_background(score_QK: Tensor, videos: int) -> Background:
    """The normal distribution that the lower half of the candidates suggests, by their ranks among `videos`.

    For a gallery of which only the best are known; the more it has beyond them, the rougher.
    """
    count = score_QK.shape[-1]
    lower_QH = at_least_float32(score_QK)[:, count // 2 :]
    rank_H = torch.arange(count // 2, count, device=score_QK.device, dtype=lower_QH.dtype) + 0.5
    normal_H = torch.special.ndtri(1 - rank_H / videos)
    centred_H = normal_H - normal_H.mean()
    slope_Q = (lower_QH * centred_H).sum(-1) / centred_H.square().sum().clamp(min=SMALLEST_DEVIATION)
    return Background(lower_QH.mean(-1) - slope_Q * normal_H.mean(), slope_Q)


@dataclass(frozen=True)
class GalleryOpinion:
    """The Dirichlet over a whole gallery, of which the best candidates are known one by one."""

    log_alpha_QK: Tensor
    log_strength_Q: Tensor  # log S
    videos: int
    correction: OddsCorrection | None = None

    @property
    def probability_QK(self) -> Tensor:
        """The probability that each candidate is the right video of all.

        A correction is for the first; the others share what it leaves, and none overtakes it through that.
        """
        plain_QK = (self.log_alpha_QK - self.log_strength_Q.unsqueeze(-1)).exp().clamp(max=1)
        if self.correction is None:
            return plain_QK
        first_Q1, plain_Q1 = self.correction.of(plain_QK[:, :1], self.videos), plain_QK[:, :1]
        # Where the first has nearly all, rounding takes from 1 - p what the others still have.
        rest_Q1 = torch.maximum(1 - plain_Q1, plain_QK[:, 1:].sum(1, keepdim=True))
        left_Q1 = (1 - first_Q1) / rest_Q1.clamp(min=SMALLEST_REST)
        others_QK = plain_QK[:, 1:] * left_Q1
        behind_QK = plain_QK[:, 1:] <= plain_Q1 * (1 + TIE)
        others_QK = torch.where(behind_QK, torch.minimum(others_QK, first_Q1), others_QK)
        return torch.cat([first_Q1, others_QK], dim=1)

    @property
    def fits_Q(self) -> Tensor:
        """How many candidates are at least half as probable as the best."""
        best_Q1 = self.log_alpha_QK.amax(1, keepdim=True)
        return (self.log_alpha_QK >= best_Q1 + math.log(ABOUT_EQUAL)).sum(1)

    @property
    def vacuity_Q(self) -> Tensor:
        """The share of S that no evidence supports."""
        return (math.log(self.videos) - self.log_strength_Q).exp()

    def probability_top(self, k: int) -> Tensor:
        """The probability that the right video is among the best k."""
        return self.probability_QK[:, :k].sum(-1).clamp(max=1)

    def merged(self, video_QK: Tensor | None, video_parts_QK: Tensor | None = None) -> GalleryOpinion:
        """The opinion on videos of which the candidates are parts.

        Concentrations add up, as categories of a Dirichlet that become one do. Where it is known how many
        parts each candidate's video has, those that are not candidates bring their share of what is left.
        """
        highest_Q1 = self.log_alpha_QK.amax(1, keepdim=True)
        part_QK = (self.log_alpha_QK - highest_Q1).exp()
        alpha_QK = sum_by_video(part_QK, video_QK)
        unseen = self.videos - part_QK.shape[1]
        if video_QK is not None and video_parts_QK is not None and unseen > 0:
            left_Q1 = (self.log_strength_Q.unsqueeze(1) - highest_Q1).exp() - part_QK.sum(1, keepdim=True)
            parts_QK = sum_by_video(video_parts_QK * first_of_each(video_QK), video_QK)
            unseen_QK = parts_QK - sum_by_video(torch.ones_like(parts_QK), video_QK)
            alpha_QK = alpha_QK + left_Q1.clamp(min=0) * unseen_QK / unseen
        return replace(self, log_alpha_QK=alpha_QK.log() + highest_Q1)

    def resized(self, videos: int) -> GalleryOpinion:
        """The opinion on the best candidate if this many videos like the present ones were compared."""
        best_Q = self.log_alpha_QK[:, 0]
        others_Q = (1 - (best_Q - self.log_strength_Q).exp()).clamp(min=0).log() + self.log_strength_Q
        share = (videos - 1) / max(self.videos - 1, 1)
        log_strength_Q = torch.logaddexp(best_Q, others_Q + (math.log(share) if share else -math.inf))
        return GalleryOpinion(self.log_alpha_QK[:, :1], log_strength_Q, videos, self.correction)


def gallery_opinion(
    score_QK: Tensor,
    videos: int,
    evidence: ScoreEvidence,
    all_scores: Background | None = None,
    correction: OddsCorrection | None = None,
) -> GalleryOpinion:
    """The opinion on a gallery of `videos` from the scores of its best candidates."""
    log_evidence_QK = evidence.log(score_QK)
    log_sum_Q = log_evidence_QK.logsumexp(-1)
    if videos > score_QK.shape[-1]:
        all_scores = all_scores or guessed_background(score_QK, videos)
        unseen = videos - score_QK.shape[-1]
        log_sum_Q = torch.logaddexp(log_sum_Q, log_unseen(score_QK[:, -1], unseen, evidence, all_scores))
    log_strength_Q = torch.logaddexp(log_sum_Q, torch.full_like(log_sum_Q, math.log(videos)))
    return GalleryOpinion(F.softplus(log_evidence_QK), log_strength_Q, videos, correction)


def log_unseen(lowest_Q: Tensor, videos: int, evidence: ScoreEvidence, all_scores: Background) -> Tensor:
    """log Σ e over this many videos that score less than `lowest_Q`, if the scores are normal.

    The expectation of a log-normal below a bound, exp(m + v²/2) Φ(z - v) / Φ(z) with m and v the mean and
    deviation of log e and z the place of `lowest_Q` in deviations.
    """
    deviation_Q = all_scores.deviation_Q.clamp(min=SMALLEST_DEVIATION)
    mean_Q, spread_Q = evidence.log(all_scores.mean_Q), deviation_Q / evidence.temperature
    place_Q = (lowest_Q - all_scores.mean_Q) / deviation_Q
    below_Q = torch.special.log_ndtr(place_Q - spread_Q) - torch.special.log_ndtr(place_Q)
    return math.log(videos) + mean_Q + spread_Q.square() / 2 + below_Q


@torch.inference_mode(False)
@torch.enable_grad()
def fit_score_evidence(score_QV: Tensor, owner_Q: Tensor) -> ScoreEvidence:
    """The T and s₀ under which the right videos of these queries are most probable."""
    score_QV, owner_Q1 = score_QV.double().clone(), owner_Q.clone().unsqueeze(1)
    mean, deviation = score_QV.mean(), score_QV.std().clamp(min=SMALLEST_DEVIATION)
    # In deviations: the optimiser and the penalty then see numbers near 1 whatever the scores are.
    z_QV = (score_QV - mean) / deviation

    def loss(params: Tensor) -> Tensor:
        log_temperature, offset = params
        log_alpha_QV = F.softplus((z_QV - offset) * torch.exp(-log_temperature))
        log_p_QV = log_alpha_QV - log_alpha_QV.logsumexp(1, keepdim=True)
        return -log_p_QV.gather(1, owner_Q1).mean() + PENALTY * params.square().sum()

    def descend(start: float) -> tuple[float, list[float]]:
        params = torch.tensor([-0.5, start], dtype=torch.float64, device=z_QV.device, requires_grad=True)
        optimizer = torch.optim.LBFGS([params], max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            value = loss(params)
            value.backward()
            return value

        optimizer.step(closure)
        return loss(params).item(), params.tolist()

    _, (log_temperature, offset) = min(descend(start) for start in STARTS)
    return ScoreEvidence(float(deviation) * math.exp(log_temperature), float(mean + deviation * offset))
