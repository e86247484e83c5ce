"""No answer says two things that cannot both be true, whatever the scores and whatever was learned.

What a person reads is held against the distribution alone: the kind, the sentence, the numbers, the words
beside the hits and their order.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import holmes
from holmes.cluster.write import split_index
from holmes.evidence.calibration import Calibration
from holmes.evidence.distribution import EXPECT_MISSING
from holmes.evidence.judging import CalibratedJudge, Candidates, Diagnosis
from holmes.evidence.kinds import AnswerKind
from holmes.evidence.wording import explain
from holmes.records import Scores
from index_fakes import FakeJoint
from shard_fakes import ACTIONS, THINGS, bits, make_index

COUNTED = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
WORDS = {
    "precise": "precise",
    "several_fit": "several fit",
    "too_little": "too little to go on",
    "not_here": "not here, it seems",
}
BEGINNINGS = {
    "precise": r"(Likely|Best guess): the first hit \(|\w+ videos show the same moment",
    "several_fit": r"(\d+%|Over 99%) chance that it is one of (two|three|four|five|six) videos \(",
    "too_little": r"Not enough to tell\. ",
    "not_here": r"(Likely|Perhaps) not in your collection \(",
}


def score_rows(seed: int, shape: str, candidates: int, deviation: float) -> Scores:
    """Both branches' scores of one query, best first: alike, chance, one or some ahead, two halves."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0.3, deviation, (2, candidates))
    ahead = {"alike": 0, "chance": 0, "one": 1, "few": rng.integers(2, 9), "half": candidates // 2}[shape]
    rows[:, :ahead] += rng.uniform(0, 12) * deviation
    if shape == "alike":
        rows[:] = rng.uniform(0, 0.6)
    order = np.argsort(-(0.4 * rows[0] + 0.6 * rows[1]), kind="stable")
    return Scores(*torch.tensor(rows[:, order], dtype=torch.float32).unsqueeze(1))


calibrations = st.builds(
    Calibration,
    model=st.just("m"),
    candidates=st.just(40),
    frame_weight=st.just(0.4),
    clip_weight=st.just(0.6),
    temperature=st.just(0.07),
    score_temperature=st.floats(0.002, 0.5),
    score_offset=st.floats(-0.5, 0.8),
    videos=st.integers(2, 5000),
    queries=st.just(100),
    score_spread=st.floats(0.005, 0.3),
    spread_power=st.floats(-1, 1),
    score_lead=st.floats(0.5, 8),
    lead_power=st.floats(-1, 2),
    absence_shift=st.floats(-4, 6),
    absence_slope=st.floats(0, 2),
    absence_middle=st.floats(-12, 0),
    absence_size_power=st.floats(-1, 1),
    absence_outweighs=st.floats(0, 10_000),
    part_rest=st.floats(0, 2),
    fit_shift=st.floats(-12, 3),
    fit_slope=st.floats(0, 2),
    fit_behind=st.floats(-1, 3),
)
shapes = st.sampled_from(["alike", "chance", "one", "few", "half"])
more = st.integers(0, 500)
priors = st.sampled_from([0.0, 0.05, 0.2, 0.5, 1.0])
not_here = st.sampled_from([None, 0.0, 0.5, 0.9, 1.0])


@settings(max_examples=400)
@given(
    calibrations,
    st.integers(0, 10_000),
    shapes,
    st.integers(1, 60),
    st.floats(0.001, 0.2),
    st.integers(0, 100_000),
    st.integers(1, 6),
    priors,
    not_here,
)
def test_what_is_said_of_one_query_agrees(
    calibration, seed, shape, candidates, deviation, more, copies, prior, not_here_below
):
    scores = score_rows(seed, shape, candidates, deviation)
    videos = min(candidates, 40) + (more if candidates >= 40 else 0)
    copies_Q = torch.tensor([min(copies, videos)])
    asked = Candidates(scores, videos, copies_Q=copies_Q, expect_missing=prior, not_here_below=not_here_below)
    (said,) = CalibratedJudge(calibration)(asked)
    assert not contradictions(said, int(copies_Q), not_here_below)


@settings(max_examples=300)
@given(calibrations, st.integers(0, 10_000), shapes, st.integers(2, 40), st.integers(1, 8), more)
def test_what_is_said_of_films_in_parts_agrees(calibration, seed, shape, candidates, films, more):
    scores, rng = score_rows(seed, shape, candidates, 0.05), np.random.default_rng(seed)
    video_QK = torch.from_numpy(rng.integers(0, films, (1, candidates)))
    # The parts that are no candidates belong to these films, or to others.
    unseen_F = rng.multinomial(more, np.full(films + 1, 1 / (films + 1)))[:films]
    parts_F = torch.from_numpy(unseen_F) + video_QK[0].bincount(minlength=films)
    asked = Candidates(
        scores,
        candidates + more if candidates == 40 else candidates,
        video_QK=video_QK,
        video_parts_QK=parts_F[video_QK] if candidates == 40 and more else None,
    )
    (said,) = CalibratedJudge(calibration)(asked)
    assert not contradictions(said, 1)
    assert sum(said.probabilities) <= said.here + 1e-4
    assert sorted(said.order) == list(range(len(set(video_QK[0].tolist()))))


@settings(max_examples=600)
@given(
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 9, 10, 20, 40]), min_size=2, max_size=20),
    st.integers(1, 80),
    st.integers(1, 4),
)
@example([9, 2, 9], 19, 2)  # two copies and none have 47.5% each, and less in float32
def test_what_is_said_of_any_shares_agrees(parts, none, copies):
    """Small whole numbers as shares: many lie on a border of the rules, where chance hardly leads."""
    parts = sorted([parts[0] + 1, *parts[1:]], reverse=True)
    missing = none / (sum(parts) + none)
    calibration = Calibration(
        model="m",
        candidates=40,
        frame_weight=0.4,
        clip_weight=0.6,
        temperature=0.07,
        score_temperature=0.05,
        score_offset=0.3,
        videos=len(parts),
        queries=100,
        absence_shift=math.log(missing / (1 - missing) * (1 - EXPECT_MISSING) / EXPECT_MISSING),
    )
    score_K = [0.3 + 0.05 * math.log(1e6 * part) if part else -1.0 for part in parts]
    score_QK = torch.tensor([score_K], dtype=torch.float64)
    copies = min(copies, len(parts))
    asked = Candidates(Scores(score_QK, score_QK), len(parts), copies_Q=torch.tensor([copies]))
    (said,) = CalibratedJudge(calibration)(asked)
    np.testing.assert_allclose(said.probabilities, np.array(parts) / (sum(parts) + none), atol=1e-4)
    assert not contradictions(said, copies)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Films in parts, short ones, and some under two names; whole and in three shards."""
    place = tmp_path_factory.mktemp("films")
    split_index(make_index(place, videos=30), place / "shards", 3)
    return place


@settings(max_examples=60)
@given(
    calibrations,
    st.lists(st.sampled_from([*THINGS, *ACTIONS, "xyzzy", "?!"]), min_size=1, max_size=4),
    st.sets(st.integers(0, 32), min_size=1),
    st.integers(1, 40),
    priors,
    not_here,
)
def test_what_an_index_says_agrees(folder, calibration, words, some, top, prior, not_here_below):
    """Also behind a filter and in shards, where the sentence names the videos."""
    asked = {"top": top, "expect_missing": prior, "not_here_below": not_here_below}
    judge = CalibratedJudge(calibration)
    with (
        holmes.open_index(folder / "index", device="cpu", model=FakeJoint(), diagnose=judge) as whole,
        holmes.open_index(folder / "shards", device="cpu", model=FakeJoint(), diagnose=judge) as shards,
    ):
        names = [sorted(whole.videos)[at] for at in some]
        for filter in (None, names):
            answer = whole.search(" ".join(words), filter=filter, **asked)
            assert bits(answer) == bits(shards.search(" ".join(words), filter=filter, **asked))
            assert filter is None or {hit.video for hit in answer} <= set(names)
            said = answer.diagnosis
            if said.probability is None:
                assert len(names) == 1 and filter is names, "a single video is compared with nothing"
                continue
            shown = [hit.probability for hit in answer if hit.probability is not None]
            assert shown == list(said.probabilities[: len(shown)])
            assert len({hit.video for hit in answer}) == len(answer)
            if len(shown) == len(said.order):  # each number stands at the video that it was computed for
                scores = [hit.score for hit in answer][: len(shown)]
                ranked = sorted(scores, reverse=True)
                assert [ranked[at] for at in said.order] == scores
            assert said.copies > 1 or Path(answer[0].video).name in said.explanation
            kind = AnswerKind[said.kind.upper()]
            unnamed, _ = explain(kind, said.group, said.probabilities, 1 - said.here)
            assert re.findall(r"\d+%", unnamed) == re.findall(r"\d+%", said.explanation)
            assert not contradictions(replace(said, explanation=unnamed), said.copies, not_here_below)


def contradictions(said: Diagnosis, copies: int, not_here_below: float | None = None) -> list[str]:
    """What cannot be true beside the probabilities, in words."""
    shares, group, none = said.probabilities, said.group, 1 - said.here
    held, first = sum(shares[:group]), shares[0]
    rest = max([0.0, *shares[copies:]])
    shown_first, shown_none, shown_rest = (round(100 * share) for share in (first, none, rest))
    one = round(100 * sum(shares[:copies]))
    words = "perhaps not here" if said.kind == "not_here" and shown_none < 50 else WORDS[said.kind]
    missing = shown_none >= 30 if not_here_below is None else 100 - shown_none < 100 * not_here_below
    read = re.findall(r"(?:under |over )?\d+%", said.explanation, re.IGNORECASE)
    read = [number.lower() for number in read]
    begun = [kind for kind, words in BEGINNINGS.items() if re.match(words, said.explanation)]
    true = {
        "a probability lies between 0 and 1": all(0 <= share <= 1 for share in (*shares, none)),
        "all together are at most 1": sum(shares) + none <= 1 + 1e-4,
        "hits are in the order of their probability": list(shares) == sorted(shares, reverse=True),
        "the probability is the first hit's": said.probability == first,
        "the words are the kind's": said.words == words,
        "the sentence is the kind's": begun == [said.kind],
        "likely means at least 60%": ("Likely" in said.explanation) == (likely_of(said, first, none) >= 60),
        "every sentence has a capital": all(s[0] == s[0].upper() for s in said.explanation.split(". ")),
        "a video that is surely meant fits": first < 0.5 or said.fits[0] == "fits",
        "nothing fits of what is not here": said.kind != "not_here" or set(said.fits) == {"nearest"},
        "what is said to be meant fits": said.kind != "precise" or set(said.fits[:group]) == {"fits"},
        "where several fit, each may": said.kind != "several_fit" or "nearest" not in said.fits[:group],
    }
    if said.kind == "precise":
        true |= {
            "it is one video, or its copies": group == min(copies, len(shares)),
            "it has at least half": one >= 50,
            "it has twice as much as the next": one >= 2 * shown_rest,
            "none is not likelier": shown_none <= one,
            "the numbers are its own and none's": read == [spoken(sum(shares[:group])), spoken(none)],
        }
    elif said.kind == "several_fit":
        true |= {
            "the group is small": 2 <= group <= 6,
            "the sentence counts the group": f" one of {COUNTED[group]} videos (" in said.explanation,
            "it holds at least half": round(100 * held) >= 50,
            "it is as small as can be": group == 2 or round(100 * sum(shares[: group - 1])) < 50,
            "every member has a quarter of the first's": 4 * round(100 * shares[group - 1]) >= shown_first,
            "none is not likelier": shown_none <= round(100 * held),
            "the numbers are its own, the first's and none's": read
            == [spoken(held), spoken(first), spoken(none)],
        }
    elif said.kind == "not_here":
        true |= {
            "none is the likeliest": shown_none > one,
            "none has at least 30%, or what was asked for": missing,
            "there is no group": group == 0,
            "the numbers are none's and the first's": read == [spoken(none), spoken(first)],
        }
    else:
        true |= {
            "there is no group": group == 0,
            "nothing stands out": shown_first < 50 or 2 * shown_rest > shown_first,
            "none is not the likeliest from 30% on": not missing or shown_none <= one,
            "the numbers are the first's and none's": read == [spoken(first), spoken(none)],
        }
    return [statement for statement, holds in true.items() if not holds]


def likely_of(said: Diagnosis, first: float, none: float) -> int:
    """The whole percents that a sentence may call likely: of the one video, or of none."""
    one = first if said.kind == "precise" and said.group == 1 else 0.0
    return round(100 * (none if said.kind == "not_here" else one))


def spoken(share: float) -> str:
    """A probability as people read it: nothing is impossible, and nothing certain unless it is."""
    if share > 0 and 100 * share < 1:
        return "under 1%"
    return "over 99%" if 99 < 100 * share < 100 else f"{round(100 * share)}%"
