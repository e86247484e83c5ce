"""Seen, said and written: the fusion against Dempster's rule written out, and the fit on planted queries."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from holmes.evidence.distribution import EXPECT_MISSING, GalleryDistribution
from holmes.evidence.sources import (
    ClauseKind,
    HeldOut,
    TextEvidence,
    Told,
    fit_text_evidence,
    fuse_sources,
    log_probabilities,
    numbers_of,
    read_text_evidence,
    stated_none,
)
from holmes.records import Scores

INF = float("-inf")
NONE = 99


def dempster(one: dict[int, float], other: dict[int, float]) -> dict[int, float]:
    """Masses of single answers, and of "any of them" (-1), combined set by set; NONE is an answer too."""
    total: dict[int, float] = {}
    for (a, mass), (b, more) in itertools.product(one.items(), other.items()):
        meet = b if a == -1 else a if b in (-1, a) else None
        if meet is not None:
            total[meet] = total.get(meet, 0.0) + mass * more
    whole = sum(total.values())
    return {video: mass / whole for video, mass in total.items()}


def mended(found: dict[int, float], prior: dict[int, float], words: float, videos: int) -> dict[int, float]:
    """The odds of "none of them" moved by the number of videos, and ratios among videos raised to a power."""
    shipped = TextEvidence()
    odds = found[NONE] / (1 - found[NONE]) * (videos / 40) ** (words * shipped.size)
    power = math.exp(words * shipped.power)
    raised = {v: prior[v] * (p / prior[v]) ** power for v, p in found.items() if v != NONE}
    whole = sum(raised.values()) * (1 + odds)
    return {**{v: p / whole for v, p in raised.items()}, NONE: odds / (1 + odds)}


def opinion(ratios: dict[int, float], lost: float, videos: int) -> dict[int, float]:
    """Masses under which each video is as possible as its ratio says, and every other one as `lost` does.

    "None of them" has the ratio 1, and gains by what videos say but for the one that says most.
    """
    others = sorted(ratios.values())[:-1]
    gain = math.exp(TextEvidence().shared) * (1 - EXPECT_MISSING) / videos * sum(others)
    return {**ratios, NONE: 1 + gain - lost, -1: lost}


def gallery_of(probabilities: list[float], none: float, videos: int) -> GalleryDistribution:
    """Pictures that give these probabilities to the candidates; the rest belongs to videos not seen."""
    alpha = torch.tensor([probabilities], dtype=torch.float64) / (1 - none) * videos
    return GalleryDistribution(
        alpha.log(), torch.tensor([math.log(videos)], dtype=torch.float64), torch.tensor([none]), videos
    )


def told_of(
    videos: list[int],
    log_ratios: list[list[tuple[float, float]]],
    candidates: list[int],
    clauses: tuple[ClauseKind, ...],
) -> Told:
    one = torch.zeros(1, len(videos))
    return Told(
        torch.tensor([candidates]),
        torch.tensor([videos]),
        torch.tensor([log_ratios], dtype=torch.float64),
        torch.tensor([clauses]),
        Scores(one, one),
        torch.ones(1, len(videos), dtype=torch.int64),
    )


def test_the_fusion_is_dempsters_rule_written_out() -> None:
    """Six videos, of which pictures know three one by one; a clause about what is said, one about a sign.

    Words speak for one of these videos and for another. Forms never mislead here.
    """
    videos, none, left = 6, 0.3, 0.1 / 3
    pictures = {0: 0.4, 1: 0.15, 2: 0.05, 3: left, 4: left, 5: left, NONE: none}
    said, written = {1: 9.0, 4: 2.0}, {1: 0.5, 4: 30.0}
    lost_said, lost_written = (math.exp(value) for value in TextEvidence().lost)
    sure = (0.95, 0.05)  # that each clause is about what its form says, and about the other source
    ratios = []
    for by_form, lost, other_lost in ((said, lost_said, lost_written), (written, lost_written, lost_said)):
        floor = sure[0] * lost + sure[1] * other_lost
        ratios.append(({v: sure[0] * t for v, t in by_form.items()}, floor))
    prior = {**dict.fromkeys(range(videos), (1 - EXPECT_MISSING) / videos), NONE: EXPECT_MISSING}
    expected = dempster(prior, opinion(*ratios[0], videos))
    expected = dempster(expected, opinion(*ratios[1], videos))
    expected = dempster(expected, {video: (0.95 * p / prior[video] + 0.05) for video, p in pictures.items()})
    expected = mended(expected, prior, 1.0, videos)  # each clause of words is surely about words
    log = {n: math.log(n) for n in (9.0, 2.0, 0.5, 30.0)}
    told = told_of(
        [1, 4],
        [[(INF, INF), (log[9.0], INF), (INF, log[0.5])], [(INF, INF), (log[2.0], INF), (INF, log[30.0])]],
        [0, 1, 2],
        (ClauseKind.BESIDE, ClauseKind.SAID, ClauseKind.WRITTEN),
    )
    # Both sources were heard in every clause: in the others, next to nothing.
    told.log_ratio_QMCS[0, :, 1, 1], told.log_ratio_QMCS[0, :, 2, 0] = -300.0, -300.0
    log_alpha = torch.tensor([[0.0, math.log(left / (1 - none) * videos)]])
    gallery = gallery_of([0.4, 0.15, 0.05], none, videos)
    fused = fuse_sources(gallery, torch.tensor([[0, 1, 2]]), told, log_alpha, torch.tensor([none]))
    found = fused.gallery.probability_QK[0].tolist()
    for column, video in ((0, 0), (1, 1), (2, 2), (4, 4)):
        assert found[column] == pytest.approx(expected[video], rel=1e-6)
    assert found[3] == 0  # video 1 has its column among the candidates
    assert float(fused.gallery.none_Q) == pytest.approx(expected[NONE], rel=1e-6)
    assert int(fused.videos_Q) == 4
    np.testing.assert_allclose(fused.log_sources_QK3[0, 1, 1:].exp(), [0.95 * 9.0, 0.95 * 0.5], rtol=1e-6)


@pytest.mark.parametrize(
    "clauses",
    [
        (ClauseKind.BARE,),
        (ClauseKind.DESCRIBED,),
        (ClauseKind.SAID,),
        (ClauseKind.WRITTEN,),
        (ClauseKind.QUOTED,),
        (ClauseKind.SAID, ClauseKind.WRITTEN),
    ],
)
def test_a_source_without_a_word_changes_nothing(clauses: tuple[ClauseKind, ...]) -> None:
    gallery = gallery_of([0.4, 0.15, 0.05], 0.3, 6)
    ratios = [[(INF, INF)] * len(clauses), [(5.0, 5.0)] * len(clauses)]
    told = told_of([1, -1], ratios, [0, 1, 2], clauses)
    log_alpha, none = torch.zeros(1, 2), torch.tensor([0.3])
    fused = fuse_sources(gallery, torch.tensor([[0, 1, 2]]), told, log_alpha, none).gallery
    np.testing.assert_allclose(fused.probability_QK[0, :3], gallery.probability_QK[0], rtol=1e-6)
    assert float(fused.none_Q) == pytest.approx(0.3, rel=1e-6)


def test_words_that_fit_nowhere_leave_a_bare_query_to_pictures_and_a_quote_to_none() -> None:
    gallery, none = gallery_of([0.4, 0.15, 0.05], 0.3, 6), torch.tensor([0.3])
    every = [0, 1, 2, 3, 4, 5]
    found = {}
    for clause in (ClauseKind.BARE, ClauseKind.SAID):
        told = told_of(every, [[(-6.0, -6.0)]] * 6, [0, 1, 2], (clause,))
        log_alpha = torch.full((1, 6), math.log(0.1 / 3 / 0.7 * 6))
        found[clause] = fuse_sources(gallery, torch.tensor([[0, 1, 2]]), told, log_alpha, none).gallery
    bare, said = found[ClauseKind.BARE], found[ClauseKind.SAID]
    np.testing.assert_allclose(bare.probability_QK[0, :3], gallery.probability_QK[0], rtol=1e-3)
    assert float(said.none_Q) > 0.9


@pytest.mark.parametrize(
    ("kind", "for_pictures"), [(ClauseKind.BARE, 0.24 / 0.96), (ClauseKind.DESCRIBED, 0.76 / 0.04)]
)
@pytest.mark.parametrize("ratio", [3.0, 0.5])
@pytest.mark.parametrize(("none", "said_by"), [(0.05, 1), (0.5, 1), (0.05, 0), (0.5, 0)])
def test_a_bare_clause_is_shared_by_what_each_source_finds(
    none: float, said_by: int, ratio: float, kind: ClauseKind, for_pictures: float
) -> None:
    """Four videos; pictures find the first one, more or less surely, and a passage fits one of them. All is
    written out: the mixture of the sources, then "none of them" and the power for what is about words.
    """
    shipped, videos = TextEvidence(), 4
    pictures = [(1 - none) * share for share in (0.7, 0.1, 0.1, 0.1)]
    prior = (1 - EXPECT_MISSING) / videos
    claims = [
        for_pictures * (1 - none) / none,
        math.exp(shipped.bare_said) * ratio ** (shipped.bare_lead * (1 if ratio > 1 else 2)),
    ]
    seen, said = (claim / sum(claims) for claim in claims)
    words = [ratio if video == said_by else 0.0 for video in range(videos)]
    found = {
        video: prior * (seen * pictures[video] / prior + said * (words[video] + math.exp(shipped.lost_said)))
        for video in range(videos)
    } | {NONE: EXPECT_MISSING * (seen * none / EXPECT_MISSING + said)}
    whole = sum(found.values())
    found = {video: p / whole for video, p in found.items()}
    expected = mended(found, {**dict.fromkeys(range(videos), prior), NONE: EXPECT_MISSING}, said, videos)
    told = told_of([said_by], [[(math.log(ratio), INF)]], [0, 1, 2, 3], (kind,))
    gallery = gallery_of(pictures, none, videos)
    fused = fuse_sources(gallery, torch.arange(4)[None], told, torch.zeros(1, 1), torch.tensor([none]))
    np.testing.assert_allclose(
        fused.gallery.probability_QK[0, :4], [expected[video] for video in range(videos)], rtol=1e-6
    )
    assert float(fused.gallery.none_Q) == pytest.approx(expected[NONE], rel=1e-6)


@pytest.mark.parametrize("silent", [0, 1])
def test_a_quote_is_left_to_the_source_that_heard_something(silent: int) -> None:
    """Four videos, of which one has the quoted words; the other source heard nothing at all."""
    videos, none, ratio = 4, 0.3, 9.0
    prior = (1 - EXPECT_MISSING) / videos
    pictures = [0.7 * share for share in (0.7, 0.1, 0.1, 0.1)]
    lost = math.exp(TextEvidence().lost[1 - silent])
    found = {
        video: prior * (0.05 * pictures[video] / prior + 0.95 * (lost + (ratio if video == 1 else 0)))
        for video in range(videos)
    } | {NONE: EXPECT_MISSING * (0.05 * none / EXPECT_MISSING + 0.95)}
    whole = sum(found.values())
    found = {video: p / whole for video, p in found.items()}
    expected = mended(found, {**dict.fromkeys(range(videos), prior), NONE: EXPECT_MISSING}, 0.95, videos)
    heard = (INF, math.log(ratio)) if silent == 0 else (math.log(ratio), INF)
    told = told_of([1], [[heard]], [0, 1, 2, 3], (ClauseKind.QUOTED,))
    gallery = gallery_of(pictures, none, videos)
    fused = fuse_sources(gallery, torch.arange(4)[None], told, torch.zeros(1, 1), torch.tensor([none]))
    np.testing.assert_allclose(
        fused.gallery.probability_QK[0, :4], [expected[video] for video in range(videos)], rtol=1e-6
    )
    assert float(fused.gallery.none_Q) == pytest.approx(expected[NONE], rel=1e-6)


def test_a_query_alone_is_its_row_in_a_batch() -> None:
    gallery = gallery_of([0.4, 0.15, 0.05], 0.3, 6)
    both = GalleryDistribution(
        gallery.log_alpha_QK.repeat(2, 1), gallery.log_strength_Q.repeat(2), gallery.none_Q.repeat(2), 6
    )
    alone = told_of([4], [[(3.0, INF)]], [0, 1, 2], (ClauseKind.SAID,))
    more = [[[(3.0, INF), (INF, INF)], [(INF, INF)] * 2], [[(1.0, 1.0), (0.5, INF)], [(2.0, INF)] * 2]]
    padded = Told(
        torch.tensor([[0, 1, 2]] * 2),
        torch.tensor([[4, -1], [5, 3]]),
        torch.tensor(more, dtype=torch.float64),
        torch.tensor([[ClauseKind.SAID, ClauseKind.ABSENT], [ClauseKind.BARE, ClauseKind.SAID]]),
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
    """Pictures know nothing; the right answer is drawn as one passage of each video makes it probable."""
    meaning = rng.uniform(0, 1, (queries, videos))
    shipped, sure = TextEvidence(), 0.95  # of which pictures have the rest
    text = np.exp(slope * meaning + shipped.said)
    ratio = sure * (text + math.exp(shipped.lost_said)) + 1 - sure
    others = 0.8 / videos * (text.sum(1) - text.max(1))
    missing = EXPECT_MISSING * (1 + sure * math.exp(shipped.shared) * others)
    owner = []
    prior = dict.fromkeys(range(videos), 0.8 / videos) | {NONE: EXPECT_MISSING}
    for row, none in zip(ratio, missing, strict=True):
        found = dict(enumerate(0.8 / videos * row)) | {NONE: float(none)}
        whole = sum(found.values())
        found = mended({v: p / whole for v, p in found.items()}, prior, sure, videos)
        owner.append(rng.choice(list(found), p=list(found.values())))
    features = torch.zeros(queries, 1, videos, 5, dtype=torch.float64)
    features[:, 0, :, 3] = torch.from_numpy(meaning)
    return HeldOut(
        torch.full((queries, videos), 0.8 / videos, dtype=torch.float64),
        torch.full((queries,), EXPECT_MISSING, dtype=torch.float64),
        torch.ones(queries, videos, dtype=torch.bool),
        features,
        (2 * torch.arange(videos)).expand(queries, videos),
        torch.full((queries, 1), int(ClauseKind.SAID)),
        torch.from_numpy(np.where(np.array(owner) == NONE, -1, owner)),
        torch.ones(queries, dtype=torch.float64),
    )


def test_the_fit_finds_how_much_meaning_tells() -> None:
    rng = np.random.default_rng(0)
    galleries = [planted(1500, videos, 5.0, rng) for videos in (4, 12, 40)]
    fitted = fit_text_evidence(galleries)
    assert fitted.size == pytest.approx(TextEvidence().size, abs=0.15)
    assert fitted.power == pytest.approx(TextEvidence().power, abs=0.15)
    assert fitted.meaning_said == pytest.approx(5.0, abs=0.6)
    assert fitted.said == pytest.approx(TextEvidence().said, abs=0.5)
    assert fitted.words == TextEvidence().words

    def likelihood(numbers: TextEvidence) -> float:
        found = [log_probabilities(held, numbers_of(numbers)).mean() for held in galleries]
        return float(sum(found))

    assert likelihood(fitted) > likelihood(TextEvidence())


def test_numbers_out_of_bounds_are_refused() -> None:
    from holmes.errors import HolmesError

    assert read_text_evidence(None) == TextEvidence()
    assert read_text_evidence({"words": 2.0, "other": 1}).words == 2.0
    with pytest.raises(HolmesError):
        read_text_evidence({"words": "many"})
    with pytest.raises(HolmesError):
        read_text_evidence({"said": 1e9})
