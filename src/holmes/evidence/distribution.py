"""One distribution over each video of a gallery and "none of them", in a gallery of any size.

Every video gets the evidence e = exp((s - s₀) / T) from its score s, where T follows the spread σ of the
query's scores over the gallery, the best left out: T = T₀ (σ₀ / σ)^γ. The Dirichlet with concentrations e + 1
expects video i with probability (e_i + 1) / S, S = N + Σ e over all N videos; what no evidence supports is
N / S, the vacuity. Little evidence speaks for a missing video: with the stated prior π of queries without an
answer,

    logit P(none) = logit π + a + b log(N / S),    P(i) = (1 - P(none)) (e_i + 1) / S.

All five numbers are fitted together on held-out queries, of each of which the right video is taken away once.
The sum grows with the gallery, so that one fit serves 100 videos and 100,000. A search sees only the best K;
what the others add to the sum follows from the mean and deviation of all scores.

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

EXPECT_MISSING = 0.2  # the share of queries whose video is not in the collection, unless it is stated
SMALLEST_DEVIATION = 1e-4  # smallest deviation of a gallery's scores
WIDEST = 2.0  # how far a query's spread may change T: a gallery of a few videos has no spread to speak of
ABOUT_EQUAL = 0.5  # a video fits about as well as the best if it is at least this share as probable
CERTAIN = 1e-6  # a stated prior is kept this far from 0 and 1
SMALLEST_VACUITY = 1e-30
# Taken away with the right video: for a tenth of the weight, the best quarter of the others too, as in a
# collection that lacks the topic and not only the video.
TOPIC_WEIGHT, TOPIC_SHARE = 0.1, 0.25
STARTS = (-1.0, 1.0)  # s₀ above the mean, in deviations: the likelihood may have several hills
USUAL_SLOPE = 0.4  # b of models that were looked at: few queries are pulled towards it
PULL = 0.5  # how many queries' worth of pull each number has


@dataclass(frozen=True)
class Background:
    """Each query's scores over the whole gallery, as two numbers."""

    mean_Q: Tensor
    deviation_Q: Tensor


def background(score_QV: Tensor) -> Background:
    score_QV = at_least_float32(score_QV)
    return Background(score_QV.mean(-1), score_QV.std(-1, correction=0))


def spread_of_others(best_Q: Tensor, all_scores: Background, videos: int) -> Tensor:
    """The deviation of all scores but the best: one that stands out among few would widen it."""
    mean_Q, best_Q = at_least_float32(all_scores.mean_Q), at_least_float32(best_Q)
    others = max(videos - 1, 1)
    rest_Q = (videos * mean_Q - best_Q) / others
    squares_Q = (videos * (all_scores.deviation_Q.square() + mean_Q.square()) - best_Q.square()) / others
    return (squares_Q - rest_Q.square()).clamp(min=0).sqrt()


def guessed_background(score_QK: Tensor, videos: int) -> Background:
    """The normal distribution that the lower half of the candidates suggests, by their ranks among `videos`.

    For a gallery of which only the best are known; the more it has beyond them, the rougher.
    """
    count = score_QK.shape[-1]
    if count == videos:
        return background(score_QK)
    lower_QH = at_least_float32(score_QK)[:, count // 2 :]
    rank_H = torch.arange(count // 2, count, device=score_QK.device, dtype=lower_QH.dtype) + 0.5
    normal_H = torch.special.ndtri(1 - rank_H / videos)
    centred_H = normal_H - normal_H.mean()
    slope_Q = (lower_QH * centred_H).sum(-1) / centred_H.square().sum().clamp(min=SMALLEST_DEVIATION)
    return Background(lower_QH.mean(-1) - slope_Q * normal_H.mean(), slope_Q)


@dataclass(frozen=True)
class ScoreEvidence:
    """e = exp((s - offset) / T), T = temperature · (spread / σ)^power."""

    temperature: float
    offset: float
    spread: float = 1.0
    power: float = 0.0

    def sharpness(self, spread_Q: Tensor) -> Tensor:
        """1 / T of each query."""
        wide_Q = at_least_float32(spread_Q) / self.spread
        return wide_Q.clamp(1 / WIDEST, WIDEST).pow(self.power) / self.temperature

    def log(self, score: Tensor, sharpness: Tensor) -> Tensor:
        return (at_least_float32(score) - self.offset) * sharpness


@dataclass(frozen=True)
class Absence:
    """logit P(none) = logit π + shift + slope · log vacuity; by default the evidence tells nothing."""

    shift: float = 0.0
    slope: float = 0.0

    def none(self, log_vacuity_Q: Tensor, expect_missing: float) -> Tensor:
        if expect_missing <= 0:
            return torch.zeros_like(log_vacuity_Q)
        prior = min(max(expect_missing, CERTAIN), 1 - CERTAIN)
        log_odds = math.log(prior / (1 - prior)) + self.shift
        return torch.sigmoid(log_odds + self.slope * log_vacuity_Q)


@dataclass(frozen=True)
class GalleryDistribution:
    """The Dirichlet over a whole gallery, of which the best candidates are known one by one, and "none"."""

    log_alpha_QK: Tensor
    log_strength_Q: Tensor  # log S
    none_Q: Tensor  # the probability of "none of them"
    videos: int

    @property
    def probability_QK(self) -> Tensor:
        """The probability that each candidate is the right video."""
        here_QK = (self.log_alpha_QK - self.log_strength_Q.unsqueeze(-1)).exp().clamp(max=1)
        return here_QK * (1 - self.none_Q).unsqueeze(-1)

    @property
    def about_equal_Q(self) -> Tensor:
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

    def merged(self, video_QK: Tensor | None, video_parts_QK: Tensor | None = None) -> GalleryDistribution:
        """The distribution over videos of which the candidates are parts, in the order of their best parts.

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

    def taken(self, order_QK: Tensor) -> GalleryDistribution:
        """The candidates in another order."""
        return replace(self, log_alpha_QK=self.log_alpha_QK.gather(1, order_QK))


def gallery_distribution(
    score_QK: Tensor,
    videos: int,
    evidence: ScoreEvidence,
    absence: Absence,
    all_scores: Background | None = None,
    expect_missing: float = EXPECT_MISSING,
) -> GalleryDistribution:
    """The distribution over a gallery of `videos` from the scores of its best candidates."""
    all_scores = all_scores or guessed_background(score_QK, videos)
    sharpness_Q = evidence.sharpness(spread_of_others(score_QK[:, 0], all_scores, videos))
    log_evidence_QK = evidence.log(score_QK, sharpness_Q.unsqueeze(-1))
    log_sum_Q = log_evidence_QK.logsumexp(-1)
    if videos > score_QK.shape[-1]:
        unseen = videos - score_QK.shape[-1]
        rest_Q = log_unseen(score_QK[:, -1], unseen, evidence, sharpness_Q, all_scores)
        log_sum_Q = torch.logaddexp(log_sum_Q, rest_Q)
    log_strength_Q = torch.logaddexp(log_sum_Q, torch.full_like(log_sum_Q, math.log(videos)))
    none_Q = absence.none(math.log(videos) - log_strength_Q, expect_missing)
    return GalleryDistribution(F.softplus(log_evidence_QK), log_strength_Q, none_Q, videos)


def log_unseen(
    lowest_Q: Tensor, videos: int, evidence: ScoreEvidence, sharpness_Q: Tensor, all_scores: Background
) -> Tensor:
    """log Σ e over this many videos that score less than `lowest_Q`, if the scores are normal.

    The expectation of a log-normal below a bound, exp(m + v²/2) Φ(z - v) / Φ(z) with m and v the mean and
    deviation of log e and z the place of `lowest_Q` in deviations.
    """
    deviation_Q = all_scores.deviation_Q.clamp(min=SMALLEST_DEVIATION)
    mean_Q, spread_Q = evidence.log(all_scores.mean_Q, sharpness_Q), deviation_Q * sharpness_Q
    place_Q = (lowest_Q - all_scores.mean_Q) / deviation_Q
    below_Q = torch.special.log_ndtr(place_Q - spread_Q) - torch.special.log_ndtr(place_Q)
    return math.log(videos) + mean_Q + spread_Q.square() / 2 + below_Q


@torch.inference_mode(False)
@torch.enable_grad()
def fit_distribution(
    score_QV: Tensor, owner_Q: Tensor, expect_missing: float = EXPECT_MISSING
) -> tuple[ScoreEvidence, Absence]:
    """The numbers under which these queries' videos are most probable, and "none" where they are taken away.

    Each query counts with 1 - π as it is and with π without its video. Few queries are pulled towards the
    numbers that other models had.
    """
    score_QV, owner_Q1 = score_QV.double().clone(), owner_Q.clone().unsqueeze(1)
    queries, videos = score_QV.shape
    mean, deviation = score_QV.mean(), score_QV.std().clamp(min=SMALLEST_DEVIATION)
    # In deviations: the optimiser and the pull then see numbers near 1 whatever the scores are.
    z_QV = (score_QV - mean) / deviation
    kept = torch.ones_like(z_QV, dtype=torch.bool).scatter(1, owner_Q1, False)
    gone_QN = z_QV[kept].reshape(queries, videos - 1).sort(1, descending=True).values
    topic = round(TOPIC_SHARE * (videos - 1))
    left = ((gone_QN, 1 - TOPIC_WEIGHT), (gone_QN[:, topic:], TOPIC_WEIGHT))

    def spread_in(values_QN: Tensor) -> Tensor:
        return spread_of_others(values_QN.amax(1), background(values_QN), values_QN.shape[1])

    spread = spread_in(z_QV).mean().clamp(min=SMALLEST_DEVIATION)
    prior = math.log(expect_missing / (1 - expect_missing))
    centre = torch.tensor([0.5, 0.0, 0.0, 0.0, math.log(math.expm1(USUAL_SLOPE))], dtype=torch.float64)
    pull_5 = torch.tensor([0.01, 0.01, 1.0, 1.0, 1.0], dtype=torch.float64) * PULL / queries
    centre, pull_5 = centre.to(z_QV.device), pull_5.to(z_QV.device)

    def log_alpha(values_QN: Tensor, params: Tensor) -> Tensor:
        wide_Q = (spread_in(values_QN) / spread).clamp(1 / WIDEST, WIDEST)
        sharpness_Q1 = (params[0].exp() * wide_Q.pow(params[2])).unsqueeze(1)
        return F.softplus((values_QN - params[1]) * sharpness_Q1)

    def log_vacuity(log_alpha_QN: Tensor) -> Tensor:
        return math.log(log_alpha_QN.shape[1]) - log_alpha_QN.logsumexp(1)

    def loss(params: Tensor) -> Tensor:
        slope = F.softplus(params[4])
        alpha_QV = log_alpha(z_QV, params)
        there_Q = log_vacuity(alpha_QV)
        middle = there_Q.mean()
        odds_Q = prior + params[3] + slope * (there_Q - middle)
        own_Q = (alpha_QV.gather(1, owner_Q1).squeeze(1) - alpha_QV.logsumexp(1)) + F.logsigmoid(-odds_Q)
        total = (1 - expect_missing) * own_Q.mean()
        for values_QN, weight in left:
            if values_QN.shape[1]:
                vacuity_Q = log_vacuity(log_alpha(values_QN, params))
                none_Q = F.logsigmoid(prior + params[3] + slope * (vacuity_Q - middle))
                total = total + expect_missing * weight * none_Q.mean()
        return (pull_5 * (params - centre).square()).sum() - total

    def descend(start: float) -> tuple[float, list[float]]:
        params = centre.clone()
        params[1] = start
        params.requires_grad_()
        optimizer = torch.optim.LBFGS([params], max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            value = loss(params)
            value.backward()
            return value

        optimizer.step(closure)
        return loss(params).item(), params.tolist()

    _, best = min(descend(start) for start in STARTS)
    slope = F.softplus(torch.tensor(best[4], dtype=torch.float64)).item()
    with torch.no_grad():
        fitted = torch.tensor(best, dtype=torch.float64, device=z_QV.device)
        middle = log_vacuity(log_alpha(z_QV, fitted)).mean().item()
    evidence = ScoreEvidence(
        temperature=float(deviation) / math.exp(best[0]),
        offset=float(mean + deviation * best[1]),
        spread=float(deviation * spread),
        power=best[2],
    )
    return evidence, Absence(best[3] - slope * middle, slope)
