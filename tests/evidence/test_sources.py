"""Seen, said and written: the fusion against Dempster's rule written out, and the fit on planted queries."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from holmes.evidence.distribution import EXPECT_MISSING, GalleryDistribution
from holmes.evidence.sources import (
    HeldOut,
    TextEvidence,
    Told,
    fit_text_evidence,
    fuse_sources,
    log_probabilities,
    read_text_evidence,
    stated_none,
)
from holmes.records import Scores

INF = float("-inf")


def dempster(one: dict[int, float], other: dict[int, float]) -> dict[int, float]:
    """Masses of single videos, and of "any of them" (-1), combined set by set."""
    total: dict[int, float] = {}
    for (a, mass), (b, more) in itertools.product(one.items(), other.items()):
        meet = b if a == -1 else a if b in (-1, a) else None
        if meet is not None:
            total[meet] = total.get(meet, 0.0) + mass * more
    whole = sum(total.values())
    return {video: mass / whole for video, mass in total.items()}


def opinion(evidence: dict[int, float], videos: int) -> dict[int, float]:
    strength = videos + sum(evidence.values())
    return {**{v: e / strength for v, e in evidence.items()}, -1: videos / strength}


def gallery_of(probabilities: list[float], none: float, videos: int) -> GalleryDistribution:
    """Pictures that give these probabilities to the candidates; the rest belongs to videos not seen."""
    alpha = torch.tensor([probabilities], dtype=torch.float64) / (1 - none) * videos
    return GalleryDistribution(
        alpha.log(), torch.tensor([math.log(videos)], dtype=torch.float64), torch.tensor([none]), videos
    )


def told_of(videos: list[int], evidence: list[tuple[float, float]], candidates: list[int]) -> Told:
    one = torch.zeros(1, len(videos))
    return Told(
        torch.tensor([candidates]),
        torch.tensor([videos]),
        torch.tensor([evidence], dtype=torch.float64),
        Scores(one, one),
        torch.ones(1, len(videos), dtype=torch.int64),
    )


def test_the_fusion_is_dempsters_rule_written_out() -> None:
    """Six videos, of which pictures know three one by one; words speak for one of these and for another."""
    videos, none, left = 6, 0.3, 0.1 / 3
    seen = {0: 0.4, 1: 0.15, 2: 0.05, 3: left, 4: left, 5: left}
    said, written = {1: 9.0, 4: 2.0}, {1: 0.5, 4: 30.0}
    least = left  # of the three that are not known one by one, their mean
    pictures = {video: max(p - least, 0.0) for video, p in seen.items()}
    pictures[-1] = none + videos * least
    expected = dempster(dempster(pictures, opinion(said, videos)), opinion(written, videos))
    missing = none / (none + videos * least)  # of what stays open
    everyone = expected.pop(-1)
    expected = {video: mass + everyone * (1 - missing) / videos for video, mass in expected.items()}
    gallery = gallery_of([0.4, 0.15, 0.05], none, videos)
    told = told_of([1, 4], [(math.log(9.0), math.log(0.5)), (math.log(2.0), math.log(30.0))], [0, 1, 2])
    log_alpha = torch.tensor([[0.0, math.log(left / (1 - none) * videos)]])
    fused = fuse_sources(gallery, torch.tensor([[0, 1, 2]]), told, log_alpha, torch.tensor([none]))
    found = fused.gallery.probability_QK[0].tolist()
    for column, video in ((0, 0), (1, 1), (2, 2), (4, 4)):
        assert found[column] == pytest.approx(expected[video], rel=1e-6)
    assert found[3] == 0  # video 1 has its column among the candidates
    assert float(fused.gallery.none_Q) == pytest.approx(everyone * missing, rel=1e-6)
    assert int(fused.videos_Q) == 4
    np.testing.assert_allclose(fused.log_sources_QK3[0, 1, 1:].exp(), [9.0, 0.5], rtol=1e-6)


def test_a_source_without_a_word_changes_nothing() -> None:
    gallery = gallery_of([0.4, 0.15, 0.05], 0.3, 6)
    told = told_of([1, -1], [(INF, INF), (5.0, 5.0)], [0, 1, 2])
    log_alpha = torch.zeros(1, 2)
    fused = fuse_sources(gallery, torch.tensor([[0, 1, 2]]), told, log_alpha, torch.tensor([0.3])).gallery
    np.testing.assert_allclose(fused.probability_QK[0, :3], gallery.probability_QK[0], rtol=1e-6)
    assert float(fused.none_Q) == pytest.approx(0.3, rel=1e-6)


def test_a_query_alone_is_its_row_in_a_batch() -> None:
    gallery = gallery_of([0.4, 0.15, 0.05], 0.3, 6)
    both = GalleryDistribution(
        gallery.log_alpha_QK.repeat(2, 1), gallery.log_strength_Q.repeat(2), gallery.none_Q.repeat(2), 6
    )
    alone = told_of([4], [(3.0, INF)], [0, 1, 2])
    padded = Told(
        torch.tensor([[0, 1, 2]] * 2),
        torch.tensor([[4, -1], [5, 3]]),
        torch.tensor([[(3.0, INF), (INF, INF)], [(1.0, 1.0), (2.0, INF)]], dtype=torch.float64),
        Scores(torch.zeros(2, 2), torch.zeros(2, 2)),
        torch.ones(2, 2, dtype=torch.int64),
    )
    columns, none = torch.tensor([[0, 1, 2]]), torch.tensor([0.3])
    one = fuse_sources(gallery, columns, alone, torch.zeros(1, 1), none).gallery
    many = fuse_sources(both, columns.repeat(2, 1), padded, torch.zeros(2, 2), none.repeat(2)).gallery
    np.testing.assert_allclose(many.probability_QK[0, :4], one.probability_QK[0], rtol=1e-9)
    assert float(many.none_Q[0]) == pytest.approx(float(one.none_Q[0]), rel=1e-9)


def test_the_stated_share_of_missing_videos_shifts_the_odds() -> None:
    none = torch.tensor([0.2, 0.6], dtype=torch.float64)
    np.testing.assert_allclose(stated_none(none, EXPECT_MISSING), none, rtol=1e-9)
    assert stated_none(none, 0.0).tolist() == [0.0, 0.0]
    odds = 0.2 / 0.8 * (0.5 / 0.5) / (EXPECT_MISSING / (1 - EXPECT_MISSING))
    assert float(stated_none(none, 0.5)[0]) == pytest.approx(odds / (1 + odds))


def planted(queries: int, videos: int, slope: float, rng: np.random.Generator) -> HeldOut:
    """Pictures know nothing; the right video is drawn with odds that the words' evidence gives."""
    features = rng.exponential(2.0, (queries, videos, 2, 3)) * np.array([1.0, 0.0, 0.0])
    features[:, :, 1] = 0
    evidence = np.exp(slope * features[:, :, 0, 0] - 2.0)
    owner = [rng.choice(videos, p=row / row.sum()) for row in evidence]
    seen, none = np.full((queries, videos), 0.5 / videos), np.full(queries, 0.5)
    has = np.zeros((queries, videos, 2), bool)
    has[:, :, 0] = True
    parts = (torch.from_numpy(array) for array in (seen, none, features, has))
    return HeldOut(*parts, torch.tensor(owner))


def test_the_fit_finds_how_much_a_word_tells() -> None:
    held = planted(1500, 12, 0.7, np.random.default_rng(0))
    fitted = fit_text_evidence(held)
    assert fitted.words == pytest.approx(0.7, abs=0.12)
    start = TextEvidence()

    def likelihood(numbers: TextEvidence) -> float:
        slopes = [math.log(x) for x in (numbers.words, numbers.coverage, numbers.meaning)]
        params = torch.tensor([*numbers.offsets, *slopes], dtype=torch.float64)
        return float(log_probabilities(held, params, False).mean())

    assert likelihood(fitted) > likelihood(start)


def test_numbers_out_of_bounds_are_refused() -> None:
    from holmes.errors import HolmesError

    assert read_text_evidence(None) == TextEvidence()
    assert read_text_evidence({"words": 2.0, "other": 1}).words == 2.0
    with pytest.raises(HolmesError):
        read_text_evidence({"words": "many"})
    with pytest.raises(HolmesError):
        read_text_evidence({"said": 1e9})
