"""Slow twins of the method, written from the paper in loops over float64 numbers.

Nothing of the package is imported here. A twin is given only what is real: it knows neither padding nor
masks, so agreement with it also shows that padding takes part in nothing. Equation numbers are the paper's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from scipy.special import digamma

Vector = np.ndarray
Matrix = np.ndarray
Measure = Callable[[Vector, Vector], float]

PRECISE, POLYSEMOUS, UNDERDETERMINED = 0, 1, 2


# Similarity


def dot(a: Vector, b: Vector) -> float:
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def cosine(a: Vector, b: Vector) -> float:
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def scores(queries: Matrix, videos: Sequence[Matrix], measure: Measure = cosine) -> Matrix:
    """Eq. 1: the best position of each video, for each query."""
    return np.array([[max(measure(query, p) for p in video) for video in videos] for query in queries])


def token_scores(
    queries: Sequence[Matrix],
    weights: Sequence[Vector],
    videos: Sequence[Matrix],
    measure: Measure = cosine,
) -> Matrix:
    """Dual query: every token looks for its own best frame."""
    return np.array(
        [
            [
                sum(w * max(measure(h, p) for p in video) for w, h in zip(weight, tokens, strict=True))
                for video in videos
            ]
            for tokens, weight in zip(queries, weights, strict=True)
        ]
    )


# Evidence


def released_evidence(similarity: float, temperature: float) -> float:
    return math.exp(math.tanh(similarity) / temperature)


def printed_evidence(similarity: float, temperature: float) -> float:
    """Eq. 3."""
    return math.exp(math.tanh(similarity / temperature))


def opinion(evidence: Sequence[float]) -> tuple[list[float], float]:
    """Eq. 4-5."""
    alpha = [e + 1 for e in evidence]
    total = math.fsum(alpha)
    return [(a - 1) / total for a in alpha], len(alpha) / total


def expected_entropy(alpha: Sequence[float]) -> float:
    """Eq. 9, with SciPy's digamma."""
    total = math.fsum(alpha)
    return math.fsum(a / total * float(digamma(total + 1) - digamma(a + 1)) for a in alpha)


def dempster(
    one: tuple[Sequence[float], float], other: tuple[Sequence[float], float]
) -> tuple[list[float], float, float]:
    """Dempster's rule by enumeration: every pair of focal sets, their products and their intersections.

    The focal sets of an opinion are its single candidates and the set of all, which carries u.
    """
    candidates = len(one[0])
    everything = frozenset(range(candidates))

    def masses(belief: Sequence[float], uncertainty: float) -> list[tuple[frozenset[int], float]]:
        return [(frozenset([k]), float(b)) for k, b in enumerate(belief)] + [(everything, float(uncertainty))]

    combined: dict[frozenset[int], float] = {}
    for (left, mass_left), (right, mass_right) in product(masses(*one), masses(*other)):
        common = left & right
        combined[common] = combined.get(common, 0.0) + mass_left * mass_right
    # With a single candidate that candidate is everything; tests use at least two.
    conflict = combined.pop(frozenset(), 0.0)
    belief = [combined[frozenset([k])] / (1 - conflict) for k in range(candidates)]
    return belief, combined[everything] / (1 - conflict), conflict


# Kinds of query


def thresholds(
    uncertainty: Sequence[float], consistency: Sequence[float], correct: Sequence[bool], beta: float
) -> tuple[float, float]:
    """Eq. 11."""
    matched = [i for i, right in enumerate(correct) if right]
    if not matched:
        return 1 - beta, beta
    return (
        min(max(uncertainty[i] for i in matched), 1 - beta),
        max(beta, min(consistency[i] for i in matched)),
    )


def partition(
    similarity: Matrix,
    owner: Sequence[int],
    temperature: float,
    beta: float = 0.3,
    evidence: Callable[[float, float], float] = released_evidence,
    median: str = "batch",
) -> list[int]:
    """Eq. 7, 10-12 with sets. `median`: "batch" (released), "candidates" (printed) or "none"."""
    queries = set(range(len(similarity)))
    evidences = [[evidence(s, temperature) for s in row] for row in similarity]
    u = [opinion(e)[1] for e in evidences]
    c = [max(0.0, float(row[o])) for row, o in zip(similarity, owner, strict=True)]
    xi = [expected_entropy([x + 1 for x in e]) for e in evidences]
    correct = [int(np.argmax(row)) == o for row, o in zip(similarity, owner, strict=True)]
    beta_u, beta_p = thresholds(u, c, correct, beta)

    under = {i for i in queries if u[i] > beta_u}
    first_precise = {i for i in queries if u[i] <= beta_u and c[i] >= beta_p}
    first_polysemous = {i for i in queries if u[i] <= beta_u and c[i] < beta_p}
    if median == "batch":
        middle = statistics.median_low(xi)
        precise = {i for i in first_precise if xi[i] <= middle}
    elif median == "candidates":
        precise = {i for i in first_precise if xi[i] < statistics.median([xi[j] for j in first_precise])}
    else:
        precise = first_precise
    polysemous = (first_precise | first_polysemous) - precise
    assert under | precise | polysemous == queries
    return [PRECISE if i in precise else POLYSEMOUS if i in polysemous else UNDERDETERMINED for i in queries]


def merged_partition(frame: Sequence[int], clip: Sequence[int]) -> list[int]:
    """Eq. 14 as printed, set by set."""

    def sets(kinds: Sequence[int]) -> tuple[set[int], set[int], set[int]]:
        p, n, u = ({i for i, kind in enumerate(kinds) if kind == wanted} for wanted in range(3))
        return p, n, u

    (pf, nf, uf), (pc, nc, uc) = sets(frame), sets(clip)
    precise = pf & pc
    polysemous = (nf & pc) | (pf & nc) | (nf & nc)
    under = (uf & uc) | (uf & (pc | nc)) | (uc & (pf | nf))
    assert len(precise) + len(polysemous) + len(under) == len(frame)
    return [0 if i in precise else 1 if i in polysemous else 2 for i in range(len(frame))]


def softmax(values: Sequence[float]) -> list[float]:
    peak = max(values)
    powers = [math.exp(v - peak) for v in values]
    return [p / sum(powers) for p in powers]


def calibrated_label(
    frame: Sequence[float], clip: Sequence[float], owner: int, kind: int, gamma: float
) -> list[float]:
    """Eq. 15."""
    label = [1.0 if j == owner else 0.0 for j in range(len(frame))]
    if kind != POLYSEMOUS:
        return label
    pairs = zip(label, softmax(frame), softmax(clip), strict=True)
    return [(1 - gamma) * y + gamma / 2 * (f + c) for y, f, c in pairs]


# Losses


def evidential_loss(alpha: Sequence[float], target: Sequence[float]) -> float:
    """Eq. 17, letter by letter."""
    total = math.fsum(alpha)
    return math.fsum(
        (y - a / total) ** 2 + a * (total - a) / (total**2 * (total + 1))
        for a, y in zip(alpha, target, strict=True)
    )


def inter_video_terms(
    frame: Matrix,
    clip: Matrix,
    targets: Matrix,
    temperature: float,
    evidence: Callable[[float, float], float] = released_evidence,
) -> dict[str, float]:
    """The three terms of eq. 18, averaged over queries; the fused one goes through Dempster's rule."""
    sums = {"frame": 0.0, "clip": 0.0, "fused": 0.0}
    for row_f, row_c, target in zip(frame, clip, targets, strict=True):
        e_f, e_c = ([evidence(float(s), temperature) for s in row] for row in (row_f, row_c))
        belief, uncertainty, _ = dempster(opinion(e_f), opinion(e_c))
        strength = len(belief) / uncertainty
        sums["frame"] += evidential_loss([e + 1 for e in e_f], target)
        sums["clip"] += evidential_loss([e + 1 for e in e_c], target)
        sums["fused"] += evidential_loss([b * strength + 1 for b in belief], target)
    return {name: value / len(frame) for name, value in sums.items()}


def hard_triplet(similarity: Matrix, owner: Sequence[int], margin: float) -> float:
    """Triplet loss of both directions when every negative is the hardest one."""
    queries, videos = similarity.shape
    text_to_video = 0.0
    for q in range(queries):
        wrong = [similarity[q, v] for v in range(videos) if v != owner[q]]
        if wrong:
            text_to_video += max(0.0, margin + max(wrong) - similarity[q, owner[q]])
    video_to_text, counted = 0.0, 0
    for v in range(videos):
        own = [similarity[q, v] for q in range(queries) if owner[q] == v]
        wrong = [similarity[q, v] for q in range(queries) if owner[q] != v]
        counted += bool(own)
        if own and wrong:
            video_to_text += max(0.0, margin + max(wrong) - sum(own) / len(own))
    return text_to_video / queries + video_to_text / counted


def info_nce(dots: Matrix, owner: Sequence[int]) -> float:
    """InfoNCE of both directions; a video's queries are all in its numerator."""
    queries, videos = dots.shape
    text_to_video = [
        -math.log(math.exp(dots[q, owner[q]]) / sum(math.exp(dots[q, v]) for v in range(videos)))
        for q in range(queries)
    ]
    video_to_text = []
    for v in sorted(set(owner)):
        own = sum(math.exp(dots[q, v]) for q in range(queries) if owner[q] == v)
        video_to_text.append(-math.log(own / sum(math.exp(dots[q, v]) for q in range(queries))))
    return statistics.fmean(text_to_video) + statistics.fmean(video_to_text)


def diversity(groups: Sequence[Matrix], margin: float, scale: float = 32.0) -> float:
    """Every ordered pair of different queries of one video, over the number of queries."""
    total = 0.0
    for queries in groups:
        for i, j in product(range(len(queries)), repeat=2):
            if i != j:
                near = cosine(queries[i], queries[j])
                total += (1 + near) * math.log(1 + math.exp(scale * (near + margin)))
    return total / sum(len(queries) for queries in groups)


# Transport within a video: `similarity` is queries × clips


def scaled_similarity(queries: Matrix, clips: Matrix) -> Matrix:
    raw = np.array([[cosine(query, clip) for clip in clips] for query in queries])
    return (raw - raw.min()) / (raw.max() - raw.min() + 1e-8)


def dustbin(similarity: Matrix, ratio: float) -> float:
    queries, clips = similarity.shape
    rank = max(1, int(ratio * clips * queries))
    return sorted(similarity.flatten().tolist())[rank - 1]


def sinkhorn(score: Matrix, source: Vector, target: Vector, epsilon: float, iterations: int) -> Matrix:
    """The fixed-point iteration of appendix B.5 with its scaling vectors κ₁ and κ₂."""
    kernel = np.exp(score / epsilon)
    kappa_1, kappa_2 = np.ones(len(source)), np.ones(len(target))
    for _ in range(iterations):
        kappa_1 = source / (kernel @ kappa_2)
        kappa_2 = target / (kernel.T @ kappa_1)
    return np.diag(kappa_1) @ kernel @ np.diag(kappa_2)


def flexible_problem(similarity: Matrix, ratio: float) -> tuple[Matrix, Vector, Vector]:
    """Eq. 20: scores of clips × (queries + dustbin), and both marginals."""
    queries, clips = similarity.shape
    bin_column = np.full((clips, 1), dustbin(similarity, ratio))
    source = np.full(clips, 1 / clips)
    target = np.array([1 / (clips + queries)] * queries + [clips / (clips + queries)])
    return np.hstack([similarity.T, bin_column]), source, target


def flexible_alignment(similarity: Matrix, epsilon: float = 0.1, ratio: float = 0.3) -> Matrix:
    score, source, target = flexible_problem(similarity, ratio)
    return rows_to_one(sinkhorn(score, source, target, epsilon, 50).T[:-1])


def plain_alignment(similarity: Matrix, epsilon: float = 0.1) -> Matrix:
    queries, clips = similarity.shape
    source, target = np.full(clips, 1 / clips), np.full(queries, 1 / queries)
    return rows_to_one(sinkhorn(similarity.T, source, target, epsilon, 50).T)


def rows_to_one(plan: Matrix) -> Matrix:
    return np.array([row / sum(row) for row in plan])


def intra_video_loss(
    groups: Sequence[Matrix],
    clips: Sequence[Matrix],
    temperature: float,
    targets: Sequence[Matrix] | None = None,
    evidence: Callable[[float, float], float] = released_evidence,
) -> float:
    """Mean over a video's queries, then over videos. Given `targets`, the plan is held fixed."""
    means = []
    for v, (queries, video) in enumerate(zip(groups, clips, strict=True)):
        similarity = scaled_similarity(queries, video)
        target = flexible_alignment(similarity) if targets is None else targets[v]
        losses = [
            evidential_loss([evidence(s, temperature) + 1 for s in row], aligned)
            for row, aligned in zip(similarity, target, strict=True)
        ]
        means.append(statistics.fmean(losses))
    return statistics.fmean(means)


# Evaluation


def worst_rank(row: Sequence[float], owner: int) -> int:
    """The owner's place in a ranking that puts every tied video before it."""
    order = sorted(range(len(row)), key=lambda v: (-row[v], v == owner))
    return order.index(owner) + 1


def pots_plan(source, target, cost, entropy_weight):
    """The plan of POT, which is imported here: it takes a second, and tests of other files do not need it."""
    import ot

    return ot.sinkhorn(source, target, cost, entropy_weight, stopThr=1e-13, numItermax=20_000)
