"""The best videos of every query: parts that the scan's bound does not exclude are scored exactly.

Q queries, T probes of a query, S parts of videos, K best parts, M parts scored again, H hits, P rows of a
part, D width
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from holmes.base.parallel import in_threads, one_thread_per_operation
from holmes.evidence.film_parts import first_of_each
from holmes.index.engine.exact_sums import ScoreSums
from holmes.index.engine.gallery import Gallery
from holmes.index.engine.rescoring import Pairs, score_pairs
from holmes.index.engine.scan import Probes, scan

CAUTION = 1.05  # the K-th best score is guessed at its bound less this many usual errors of the scan
PAIRS_AT_ONCE = 2**20  # of queries and parts to score again
QUERIES_PER_THREAD = 4  # queries of one probe each that a thread takes at a time

Scored = tuple[Tensor, Tensor, Tensor, Tensor]  # parts, scores, frame and clip similarities, each Q × K


@dataclass(frozen=True)
class Nearest:
    """The best parts of every query, best first, the best videos, and what they were chosen from.

    Equal scores are ordered by the gallery's keys, and within a video by time.
    """

    parts_QK: Tensor  # numbers in the gallery
    score_QK: Tensor  # exact, in float64
    frame_QK: Tensor  # each branch's own similarity
    clip_QK: Tensor
    video_QK: Tensor  # whose part it is
    video_parts_QK: Tensor  # how many parts of that video were compared
    hit_QH: Tensor  # the best part of each of the best videos
    hit_score_QH: Tensor
    all_scores: ScoreSums  # of all parts that were compared

    def to(self, device: torch.device | str) -> Nearest:
        return Nearest(*(value.to(device) for value in vars(self).values()))


@torch.inference_mode()  # operations start faster in it
@one_thread_per_operation()  # its pieces run in threads of their own
def nearest_videos(
    gallery: Gallery, probes: Probes, top: int, candidates: int = 0, allowed_S: Tensor | None = None
) -> Nearest:
    """The `top` best live videos of every query, and at least this many candidates, the best parts of any."""
    compared_S = _compared(gallery, allowed_S)
    bound_QS, all_scores = scan(gallery, probes, compared_S)
    wanted = min(max(top, candidates), all_scores.count)
    best = prove_best(gallery, probes, bound_QS, wanted)
    hits = min(top, _count_videos(gallery, compared_S, all_scores.count))
    hit_QH, hit_score_QH = best_of_each_video(gallery, probes, bound_QS, best, hits)
    gallery.mapped_rows.release()
    video_QK = gallery.video_S[best[0]]
    video_parts_QK = _parts_of_each(gallery, compared_S)[video_QK]
    return Nearest(*best, video_QK, video_parts_QK, hit_QH, hit_score_QH, all_scores)


@one_thread_per_operation()  # its pieces run in threads of their own
def prove_best(gallery: Gallery, probes: Probes, bound_QS: Tensor, top: int) -> Scored:
    """The best `top` parts of every query, given a bound that no part's score exceeds.

    Every part is scored whose bound reaches the `top`-th score. Bounds allow for the rounding of float32.
    """
    at_once = max(1, QUERIES_PER_THREAD // probes.rows_QTD.shape[1])
    step = at_once if gallery.device.type == "cpu" else max(1, len(bound_QS))
    starts = range(0, max(1, len(bound_QS)), step)

    def prove(start: int) -> Scored:
        some = slice(start, start + step)
        return _prove(gallery, probes[some], bound_QS[some], top)

    parts, scores, frames, clips = zip(*in_threads(prove, starts, gallery.device), strict=True)
    return torch.cat(parts), torch.cat(scores), torch.cat(frames), torch.cat(clips)


def _prove(gallery: Gallery, probes: Probes, bound_QS: Tensor, top: int) -> Scored:
    """`prove_best` in one thread: guess the `top`-th score, and score more parts if it turns out lower."""
    first = bound_QS.topk(top)
    if not top:
        nothing_QK = first.values
        return first.indices, nothing_QK.double(), nothing_QK, nothing_QK
    usual_Q = CAUTION * (probes.error_Q3 @ gallery.usual_error_3)
    guess_Q1 = _finite(first.values[:, -1] - usual_Q).unsqueeze(1)
    open_QS = (bound_QS >= guess_Q1).scatter_(1, first.indices, True)
    found = _score(gallery, probes, bound_QS, open_QS)
    best_QK = _best_of(gallery, found, len(bound_QS), top)
    least_Q1 = _finite(found.score_N[best_QK[:, -1:]].float())
    if bool((least_Q1 < guess_Q1).any()):
        left_QS = (bound_QS >= least_Q1) & ~open_QS
        found = _joined([found, _score(gallery, probes, bound_QS, left_QS)])
        best_QK = _best_of(gallery, found, len(bound_QS), top)
    weight_Q12 = probes.weights_QT2.double().sum(1, keepdim=True).clamp(min=1e-12)
    branches_QK2 = found.branches_N2[best_QK] / weight_Q12
    frame_QK, clip_QK = branches_QK2.float().unbind(2)
    return found.part_N[best_QK], found.score_N[best_QK], frame_QK, clip_QK


def _finite(bound: Tensor) -> Tensor:
    """Bounds above those of parts that were set aside, which are -inf."""
    return bound.clamp(min=torch.finfo(bound.dtype).min)


def _score(gallery: Gallery, probes: Probes, bound_QS: Tensor, open_QS: Tensor) -> Pairs:
    """The exact scores of all open pairs; pairs that were set aside score -inf."""
    found = []
    for start, end in _groups(open_QS.sum(1).tolist()):
        query_N, part_N = open_QS[start:end].nonzero().unbind(1)
        query_N = query_N + start
        pairs = score_pairs(gallery, probes, query_N, part_N)
        aside_N1 = bound_QS[query_N, part_N].isneginf().unsqueeze(1)
        found.append(replace(pairs, branches_N2=pairs.branches_N2.masked_fill(aside_N1, -torch.inf)))
    return _joined(found)


def _groups(pairs_of_queries: list[int]) -> list[tuple[int, int]]:
    """Ranges of queries to score together, so that no range has too many pairs."""
    group = [total // PAIRS_AT_ONCE for total in accumulate(pairs_of_queries)]
    starts = [q for q in range(len(group)) if q == 0 or group[q] != group[q - 1]]
    return list(pairwise([*starts, len(group)]))


def _joined(found: list[Pairs]) -> Pairs:
    """All pairs in one record, those of a query in the order of their parts."""
    if len(found) == 1:
        return found[0]
    query_N, part_N = (torch.cat([getattr(some, name) for some in found]) for name in ("query_N", "part_N"))
    order_N = part_N.argsort()
    branches_N2 = torch.cat([some.branches_N2 for some in found])
    return Pairs(query_N[order_N], part_N[order_N], branches_N2[order_N])


def _best_of(gallery: Gallery, pairs: Pairs, queries: int, top: int) -> Tensor:
    """Where the best `top` pairs of every query are, best first."""
    order_N = gallery.key_S[pairs.part_N].argsort(stable=True)  # of a query's pairs in the order of parts
    for value_N, falling in ((pairs.score_N, True), (pairs.query_N, False)):
        order_N = order_N[value_N[order_N].argsort(stable=True, descending=falling)]
    count_Q = pairs.query_N.bincount(minlength=queries)
    start_Q1 = (count_Q.cumsum(0) - count_Q).unsqueeze(1)
    return order_N[start_Q1 + torch.arange(top, device=gallery.device)]


def best_of_each_video(
    gallery: Gallery, probes: Probes, bound_QS: Tensor, best: Scored, hits: int
) -> tuple[Tensor, Tensor]:
    """The best part of each of the best videos, and its score, Q × H.

    Where a few long videos own all of the best parts, those videos are set aside and the search goes on.
    """
    parts_QK, score_QK = best[:2]
    if not gallery.in_parts or not hits:
        return parts_QK[:, :hits], score_QK[:, :hits]
    hit_QH = parts_QK.new_zeros((len(parts_QK), hits + 1))  # the last column takes what is not wanted
    hit_score_QH = score_QK.new_zeros(hit_QH.shape)
    open_Q, found_Q = torch.arange(len(parts_QK), device=gallery.device), parts_QK.new_zeros(len(parts_QK))
    while True:
        first_QK = first_of_each(gallery.video_S[parts_QK]) & score_QK.isfinite()
        position_QK = (found_Q.unsqueeze(1) + first_QK.cumsum(1) - 1).clamp(max=hits)
        position_QK = position_QK.masked_fill(~first_QK, hits)
        for whole_QH, part_QK in ((hit_QH, parts_QK), (hit_score_QH, score_QK)):
            whole_QH[open_Q] = whole_QH[open_Q].scatter(1, position_QK, part_QK)
        found_Q = found_Q + first_QK.sum(1)
        left_Q = (found_Q < hits).nonzero()[:, 0]
        if not len(left_Q):
            return hit_QH[:, :hits], hit_score_QH[:, :hits]
        aside_QS = _parts_of(gallery, gallery.video_S[parts_QK[left_Q]])
        bound_QS = bound_QS[left_Q].masked_fill(aside_QS, -torch.inf)
        probes, open_Q, found_Q = probes[left_Q], open_Q[left_Q], found_Q[left_Q]
        parts_QK, score_QK = prove_best(gallery, probes, bound_QS, hits)[:2]


def _compared(gallery: Gallery, allowed_S: Tensor | None) -> Tensor | None:
    if allowed_S is None:
        return gallery.live_S if gallery.live < len(gallery) else None
    return gallery.live_S & allowed_S


def _count_videos(gallery: Gallery, compared_S: Tensor | None, count: int) -> int:
    if not gallery.in_parts:
        return count
    video_S = gallery.video_S if compared_S is None else gallery.video_S[compared_S]
    return 1 + int((video_S[1:] != video_S[:-1]).sum()) if len(video_S) else 0


def _parts_of_each(gallery: Gallery, compared_S: Tensor | None) -> Tensor:
    """How many parts of every video are compared."""
    if not gallery.in_parts:
        return torch.ones_like(gallery.video_S)
    video_S = gallery.video_S if compared_S is None else gallery.video_S[compared_S]
    return video_S.bincount(minlength=gallery.videos)


def _parts_of(gallery: Gallery, video_QK: Tensor) -> Tensor:
    """Q × S: whether a part belongs to one of the query's videos."""
    of_query_QV = torch.zeros((len(video_QK), gallery.videos), dtype=torch.bool, device=gallery.device)
    return of_query_QV.scatter(1, video_QK, True)[:, gallery.video_S]
