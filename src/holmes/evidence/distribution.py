"""One distribution over each video of a gallery and "none of them", in a gallery of any size.

Every video gets evidence from its score s. The temperature T depends on σ, the deviation of the other videos'
scores, and on z, by how many σ the best score leads their mean:

    e = exp((s - s₀) / T),    T = T₀ (σ₀ / σ)^γ (z₀ / z)^δ

The Dirichlet has the concentrations α. It expects video i with probability α_i / S, where S sums over all N
videos. Above C a higher score says nothing more: where T is small, all videos that fit are alike.

    α = (1 + e) / (1 + e / C),    S = Σ α

The vacuity N / S is what no evidence supports. Much of it speaks for a missing video, and the less the more
videos there are. A right video has the evidence of about R others, so among N it lowers log(N / S) by about
log(1 + R / N), and the middle m between queries with and without theirs by half of that. π is the stated
prior of queries without an answer, and the fit saw N₀ videos:

    logit P(none) = logit π + a + b (N₀ / N)^ρ (log(N / S) - m_N),    P(i) = (1 - P(none)) α_i / S
    m_N = m - (log(1 + R / N) - log(1 + R / N₀)) / 2

Fitting takes two steps. T₀, s₀, γ and δ make the right videos of held-out queries most probable. Then a, b
and ρ are fitted with the right video taken away once, in the whole gallery and in parts of it.

S grows with the gallery, so one fit serves 100 videos and 100,000. A search sees only the best K; what the
others add to S follows from the mean and deviation of all scores.

Q queries, K candidates (best first), V videos of the gallery
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.evidence.descent import descend
from holmes.evidence.dirichlet import at_least_float32
from holmes.evidence.film_parts import first_of_each, sum_by_video

EXPECT_MISSING = 0.2  # the share of queries whose video is not in the collection, unless it is stated
SMALLEST_DEVIATION = 1e-4  # smallest deviation of a gallery's scores
WIDEST = 2.0  # how far a query's spread and lead may change T, and a gallery's size the slope b
ABOUT_EQUAL = 0.5  # a video fits about as well as the best if it is at least this share as probable
LOG_CEILING = 40.0  # log C
CERTAIN = 1e-6  # a stated prior is kept this far from 0 and 1
# Taken away with the right video: for a tenth of the weight, the best quarter of the others too, as in a
# collection that lacks the topic and not only the video.
TOPIC_WEIGHT, TOPIC_SHARE = 0.1, 0.25
# s₀ above the mean, and log T₀, in deviations: the likelihood may have several hills
STARTS = ((-1.0, -0.5), (1.0, -0.5), (2.0, -3.0))
SMALLER = (1, 2, 4)  # galleries with all of the other videos, half and a quarter of them
# Few queries are pulled towards numbers that other models had. Where the model itself was fitted before, they
# are pulled towards its own numbers, more strongly.
USUAL_LEAD_POWER, USUAL_SLOPE, USUAL_SIZE_POWER = 0.3, 0.4, 0.2
PULL_SCORES, PULL_SPREAD, PULL_LEAD = 0.005, 10.0, 2.5
PULL_ABSENCE, PULL_SIZE = 0.5, 5.0
USUAL_SHARE, PULL_SHARE = 0.15, 1.0  # R / N₀
PULL_OWN, PULL_OWN_LEAD = 10.0, 20.0
STEEPEST = 20.0  # slope b that a fit begins with


@dataclass(frozen=True)
class Background:
    """Each query's scores over the whole gallery, as two numbers."""

    mean_Q: Tensor
    deviation_Q: Tensor


def background(score_QV: Tensor) -> Background:
    score_QV = at_least_float32(score_QV)
    return Background(score_QV.mean(-1), score_QV.std(-1, correction=0))


@dataclass(frozen=True)
class Contrast:
    """How clearly each query's best video stands out."""

    spread_Q: Tensor  # the deviation of all scores but the best: one that stands out among few would widen it
    lead_Q: Tensor  # by how many of these deviations the best lies above the mean of the others


def contrast(best_Q: Tensor, all_scores: Background, videos: int) -> Contrast:
    mean_Q, best_Q = at_least_float32(all_scores.mean_Q), at_least_float32(best_Q)
    others = max(videos - 1, 1)
    rest_Q = (videos * mean_Q - best_Q) / others
    squares_Q = (videos * (all_scores.deviation_Q.square() + mean_Q.square()) - best_Q.square()) / others
    spread_Q = (squares_Q - rest_Q.square()).clamp(min=0).sqrt()
    return Contrast(spread_Q, (best_Q - rest_Q).clamp(min=0) / spread_Q.clamp(min=SMALLEST_DEVIATION))


@dataclass(frozen=True)
class ScoreEvidence:
    """e = exp((s - offset) / T), T = temperature · (spread / σ)^spread_power · (lead / z)^lead_power.

    Concentrations are α = (1 + e) / (1 + e / C).
    """

    temperature: float
    offset: float
    spread: float = 1.0
    spread_power: float = 0.0
    lead: float = 1.0
    lead_power: float = 0.0

    def sharpness(self, shown: Contrast) -> Tensor:
        """1 / T of each query."""
        wide_Q = bounded(at_least_float32(shown.spread_Q) / self.spread).pow(self.spread_power)
        return wide_Q * bounded(shown.lead_Q / self.lead).pow(self.lead_power) / self.temperature

    def log(self, score: Tensor, sharpness: Tensor) -> Tensor:
        """log e."""
        return (at_least_float32(score) - self.offset) * sharpness

    def log_alpha(self, score_QK: Tensor, sharpness_Q: Tensor) -> Tensor:
        return limited(self.log(score_QK, sharpness_Q.unsqueeze(-1)))


def limited(log_evidence: Tensor) -> Tensor:
    """log α = log (1 + e) - log (1 + e / C)."""
    return F.softplus(log_evidence) - F.softplus(log_evidence - LOG_CEILING)


def bounded(ratio: Tensor) -> Tensor:
    """A gallery of a few videos has no spread to speak of, and its best no lead."""
    return ratio.clamp(1 / WIDEST, WIDEST)


@dataclass(frozen=True)
class Absence:
    """What little evidence says of a missing video; by default it tells nothing.

    logit P(none) = logit π + shift + slope (videos / N)^size_power (log vacuity - m_N), in a gallery of N.
    """

    shift: float = 0.0
    slope: float = 0.0
    middle: float = 0.0
    size_power: float = 0.0
    outweighs: float = 0.0  # R: how many other videos have together the evidence of a right one
    videos: int = 1

    def none(self, log_vacuity_Q: Tensor, videos: int, expect_missing: float) -> Tensor:
        if expect_missing <= 0:
            return torch.zeros_like(log_vacuity_Q)
        prior = min(max(expect_missing, CERTAIN), 1 - CERTAIN)
        log_odds = math.log(prior / (1 - prior)) + self.shift
        steeper = min(max((self.videos / videos) ** self.size_power, 1 / WIDEST), WIDEST)
        share = torch.tensor(self.outweighs / self.videos, dtype=torch.float64)
        middle = middle_among(videos, self.videos, self.middle, share).item()
        return torch.sigmoid(log_odds + self.slope * steeper * (log_vacuity_Q - middle))


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

    def merged(
        self, video_QK: Tensor | None, video_parts_QK: Tensor | None = None, part_rest: float = 0.0
    ) -> GalleryDistribution:
        """The distribution over videos of which the candidates are parts, in the order of their best parts.

        Concentrations add up, as categories of a Dirichlet that become one do. Where it is known how many
        parts each candidate's video has, those that are not candidates bring their share of what is left.
        """
        highest_Q1 = self.log_alpha_QK.amax(1, keepdim=True)
        part_QK = (self.log_alpha_QK - highest_Q1).exp()
        alpha_QK = sum_by_video(part_QK, video_QK)
        if video_QK is not None and video_parts_QK is not None:
            strength_Q1 = (self.log_strength_Q.unsqueeze(1) - highest_Q1).exp()
            parts_QK = sum_by_video(video_parts_QK * first_of_each(video_QK), video_QK)
            unseen = self.videos - part_QK.shape[1]
            if unseen > 0:
                left_Q1 = strength_Q1 - part_QK.sum(1, keepdim=True)
                unseen_QK = parts_QK - sum_by_video(torch.ones_like(parts_QK), video_QK)
                alpha_QK = alpha_QK + left_Q1.clamp(min=0) * unseen_QK / unseen
            alpha_QK = with_rest(alpha_QK, parts_QK, video_parts_QK, strength_Q1, self.videos, part_rest)
        return replace(self, log_alpha_QK=alpha_QK.log() + highest_Q1)

    def taken(self, order_QK: Tensor) -> GalleryDistribution:
        """The candidates in another order."""
        return replace(self, log_alpha_QK=self.log_alpha_QK.gather(1, order_QK))


def with_rest(
    alpha_QK: Tensor,
    parts_QK: Tensor,
    candidate_parts_QK: Tensor,
    strength_Q1: Tensor,
    videos: int,
    part_rest: float,
) -> Tensor:
    """Concentrations of videos of so many parts, with what the other clips of a long video's parts add.

    A part's score is that of its best clip. A calibration that was fitted on clips knows each clip as a rival
    of its own, so the others of a part bring `part_rest` of the mean concentration of all parts. The sum over
    the gallery stays S. Of parts that belong to no candidate's video as many are taken for parts of long
    videos as of the candidates.
    """
    if not part_rest:
        return alpha_QK
    of_long_QK = torch.where(parts_QK > 1, parts_QK, 0)
    unknown_Q1 = (videos - parts_QK.sum(1, keepdim=True)).clamp(min=0)
    long_share_Q1 = (candidate_parts_QK > 1).to(alpha_QK.dtype).mean(1, keepdim=True)
    of_long_Q1 = of_long_QK.sum(1, keepdim=True) + long_share_Q1 * unknown_Q1
    added_QK = part_rest * strength_Q1 / videos * of_long_QK
    return (alpha_QK + added_QK) / (1 + part_rest * of_long_Q1 / videos)


def gallery_distribution(
    score_QK: Tensor,
    videos: int,
    evidence: ScoreEvidence,
    absence: Absence,
    all_scores: Background | None = None,
    expect_missing: float = EXPECT_MISSING,
) -> GalleryDistribution:
    """The distribution over a gallery of `videos` from the scores of its best candidates.

    `all_scores` is needed where there are more videos than candidates.
    """
    all_scores = all_scores or background(score_QK)
    sharpness_Q = evidence.sharpness(contrast(score_QK[:, 0], all_scores, videos))
    log_alpha_QK = evidence.log_alpha(score_QK, sharpness_Q)
    log_strength_Q = log_alpha_QK.logsumexp(-1)
    unseen = videos - score_QK.shape[-1]
    if unseen > 0:
        log_sum_Q = log_unseen(score_QK[:, -1], unseen, evidence, sharpness_Q, all_scores)
        rest_Q = limited(log_sum_Q - math.log(unseen)) + math.log(unseen)
        log_strength_Q = torch.logaddexp(log_strength_Q, rest_Q)
    none_Q = absence.none(math.log(videos) - log_strength_Q, videos, expect_missing)
    return GalleryDistribution(log_alpha_QK, log_strength_Q, none_Q, videos)


def log_unseen(
    lowest_Q: Tensor, videos: int, evidence: ScoreEvidence, sharpness_Q: Tensor, all_scores: Background
) -> Tensor:
    """log Σ e over this many videos that score less than `lowest_Q`, if the scores are normal.

    The expectation of a log-normal below a bound, exp(m + v²/2) Φ(z - v) / Φ(z) with m and v the mean and
    deviation of log e and z the standard score of `lowest_Q`.
    """
    deviation_Q = all_scores.deviation_Q.clamp(min=SMALLEST_DEVIATION)
    mean_Q, spread_Q = evidence.log(all_scores.mean_Q, sharpness_Q), deviation_Q * sharpness_Q
    standard_Q = (lowest_Q - all_scores.mean_Q) / deviation_Q
    below_Q = torch.special.log_ndtr(standard_Q - spread_Q) - torch.special.log_ndtr(standard_Q)
    return math.log(videos) + mean_Q + spread_Q.square() / 2 + below_Q


@torch.inference_mode(False)
@torch.enable_grad()
def fit_distribution(
    score_QV: Tensor,
    owner_Q: Tensor,
    expect_missing: float = EXPECT_MISSING,
    known: tuple[ScoreEvidence, Absence] | None = None,
) -> tuple[ScoreEvidence, Absence]:
    """The numbers under which these queries' videos are most probable, and "none" where they are gone.

    `known` is what was fitted for the same model before, on other queries.
    """
    score_QV, owner_Q = score_QV.double().clone(), owner_Q.clone()
    own_evidence, own_absence = known or (None, None)
    evidence = fit_evidence(score_QV, owner_Q, own_evidence)
    return evidence, fit_absence(score_QV, owner_Q, evidence, expect_missing, own_absence)


def fit_evidence(score_QV: Tensor, owner_Q: Tensor, known: ScoreEvidence | None = None) -> ScoreEvidence:
    """T₀, s₀, γ and δ under which the queries' own videos are most probable."""
    queries, videos = score_QV.shape
    mean, deviation = score_QV.mean(), score_QV.std().clamp(min=SMALLEST_DEVIATION)
    # In deviations: the optimiser and the pull then see numbers near 1 whatever the scores are.
    z_QV = (score_QV - mean) / deviation
    shown = contrast(z_QV.amax(1), background(z_QV), videos)
    spread = shown.spread_Q.mean().clamp(min=SMALLEST_DEVIATION).item()
    lead = shown.lead_Q.median().clamp(min=SMALLEST_DEVIATION).item()
    log_wide_Q, log_lead_Q = bounded(shown.spread_Q / spread).log(), bounded(shown.lead_Q / lead).log()
    # s₀ and log T₀, in deviations, γ and δ: what they are pulled towards, and how strongly.
    centre, pulls = (0.0, -0.5, 0.0, USUAL_LEAD_POWER), (PULL_SCORES, PULL_SCORES, PULL_SPREAD, PULL_LEAD)
    if known is not None:
        per_deviation = known.sharpness(Contrast(deviation * spread, score_QV.new_tensor(lead))) * deviation
        own_offset = float((known.offset - mean) / deviation)
        centre = (own_offset, -math.log(per_deviation), known.spread_power, known.lead_power)
        pulls = (PULL_OWN, PULL_OWN, PULL_OWN, PULL_OWN_LEAD)
    centre_4, pull_4 = z_QV.new_tensor(centre), z_QV.new_tensor(pulls) / queries

    def loss(params_4: Tensor) -> Tensor:
        offset, log_temperature, spread_power, lead_power = params_4
        sharpness_Q = (spread_power * log_wide_Q + lead_power * log_lead_Q - log_temperature).exp()
        log_alpha_QV = limited((z_QV - offset) * sharpness_Q.unsqueeze(1))
        own_Q = log_alpha_QV.gather(1, owner_Q.unsqueeze(1)).squeeze(1) - log_alpha_QV.logsumexp(1)
        return (pull_4 * (params_4 - centre_4).square()).sum() - own_Q.mean()

    starts = STARTS if known is None else (centre[:2],)
    found = least(loss, [centre_4.new_tensor([*start, *centre[2:]]) for start in starts])
    offset, log_temperature, spread_power, lead_power = found
    return ScoreEvidence(
        temperature=float(deviation) * math.exp(log_temperature),
        offset=float(mean + deviation * offset),
        spread=float(deviation * spread),
        spread_power=spread_power,
        lead=lead,
        lead_power=lead_power,
    )


def fit_absence(
    score_QV: Tensor,
    owner_Q: Tensor,
    evidence: ScoreEvidence,
    expect_missing: float = EXPECT_MISSING,
    known: Absence | None = None,
) -> Absence:
    """a, b, ρ and R under which "none" is most probable where the queries' videos are taken away.

    Each query counts with 1 - π as it is and with π without its video, in galleries of several sizes.
    """
    queries, videos = score_QV.shape
    own_Q1 = score_QV.gather(1, owner_Q.unsqueeze(1))
    others = torch.ones_like(score_QV, dtype=torch.bool).scatter(1, owner_Q.unsqueeze(1), False)
    other_QN = score_QV[others].reshape(queries, videos - 1)
    cases = []  # the log vacuity, how many videos there are, whether the right one is there, the weight
    for step in SMALLER:
        left_QN = other_QN[:, ::step].sort(1, descending=True).values
        there_QN = torch.cat([own_Q1, left_QN], 1)
        topic_QN = left_QN[:, round(TOPIC_SHARE * left_QN.shape[1]) :]
        for gallery_QN, there, weight in (
            (there_QN, True, 1 - expect_missing),
            (left_QN, False, expect_missing * (1 - TOPIC_WEIGHT)),
            (topic_QN, False, expect_missing * TOPIC_WEIGHT),
        ):
            cases.append((log_vacuity(gallery_QN, evidence), there_QN.shape[1], there, weight / len(SMALLER)))
    middle = cases[0][0].mean().item()
    prior = math.log(expect_missing / (1 - expect_missing))
    slope, size_power, pull = USUAL_SLOPE, USUAL_SIZE_POWER, PULL_ABSENCE
    share, pull_share = USUAL_SHARE, PULL_SHARE
    # Early versions learned nothing of missing videos, or nothing of how a right one shows among few: 0.
    if known is not None and known.slope > 0:
        slope, size_power, pull = min(known.slope, STEEPEST), known.size_power, PULL_OWN
        if known.outweighs > 0:
            share, pull_share = min(known.outweighs / videos, STEEPEST), PULL_OWN
    centre_4 = score_QV.new_tensor([0.0, before_softplus(slope), size_power, before_softplus(share)])
    pull_4 = score_QV.new_tensor([pull, pull, PULL_SIZE, pull_share]) / queries

    def loss(params_4: Tensor) -> Tensor:
        shift, slope, size_power, share = params_4
        total = (pull_4 * (params_4 - centre_4).square()).sum()
        for vacuity_Q, size, there, weight in cases:
            steeper = (size_power * math.log(videos / size)).exp()
            from_middle_Q = vacuity_Q - middle_among(size, videos, middle, F.softplus(share))
            odds_Q = prior + shift + F.softplus(slope) * steeper * from_middle_Q
            total = total - weight * F.logsigmoid(-odds_Q if there else odds_Q).mean()
        return total

    shift, slope, size_power, share = least(loss, [centre_4])
    outweighs = videos * math.log1p(math.exp(share))
    return Absence(shift, math.log1p(math.exp(slope)), middle, size_power, outweighs, videos)


def middle_among(size: int, videos: int, middle: float, share: Tensor) -> Tensor:
    """m_N among N = `size` videos, given m among N₀ = `videos` and R / N₀: the fewer there are, the lower."""
    return middle - ((share * (videos / size)).log1p() - share.log1p()) / 2


def before_softplus(number: float) -> float:
    return math.log(math.expm1(number))


def log_vacuity(score_QN: Tensor, evidence: ScoreEvidence) -> Tensor:
    """log(N / S) of queries whose whole gallery is known; 0 for an empty one."""
    videos = score_QN.shape[1]
    if not videos:
        return score_QN.new_zeros(len(score_QN))
    sharpness_Q = evidence.sharpness(contrast(score_QN.amax(1), background(score_QN), videos))
    return math.log(videos) - evidence.log_alpha(score_QN, sharpness_Q).logsumexp(1)


def least(loss: Callable[[Tensor], Tensor], starts: Sequence[Tensor]) -> list[float]:
    """The parameters of least loss that a descent reaches from one of these starts."""
    return min(descend(loss, start) for start in starts)[1]
