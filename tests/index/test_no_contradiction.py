"""No answer says two things that cannot both be true, whatever the scores and whatever was learned.

What a person reads is held against the probabilities alone: the kind, the sentence, the numbers, and the
hits with their bars.
"""

from __future__ import annotations

import re

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holmes.evidence.calibration import Calibration
from holmes.evidence.judging import CalibratedJudge, Candidates, Diagnosis
from holmes.records import Scores

NUMBERS = {"Two": 2, "Three": 3, "Four": 4, "Five": 5, "Six": 6}
WORDS = {
    "precise": "precise",
    "several_fit": "several fit",
    "too_little": "too little to go on",
    "not_here": "not here, it seems",
}
BEGINNINGS = {
    "precise": r"One video stands out[.,]|\w+ videos show the same moment[.,]",
    "several_fit": r"(Two|Three|Four|Five|Six) videos fit\.",
    "too_little": r"Too many videos fit\.",
    "not_here": r"It is probably not here; these videos come nearest\.",
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


shares = st.floats(0.001, 0.999)
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
    odds_shift=st.floats(-3, 3),
    odds_slope=st.floats(0.1, 3),
    vacuity_middle=st.floats(-9, 0),
    vacuity_spread=st.floats(0.05, 3),
    precise_floor=shares,
    group_floor=shares,
    here_floor=st.sampled_from([0.0, 0.01, 0.05, 0.2]),
    sure_floor=st.sampled_from([0.0, 0.05, 0.3, 0.9]),
)


@settings(max_examples=400)
@given(
    calibrations,
    st.integers(0, 10_000),
    st.sampled_from(["alike", "chance", "one", "few", "half"]),
    st.integers(1, 60),
    st.floats(0.001, 0.2),
    st.integers(0, 100_000),
    st.integers(1, 6),
)
def test_what_is_said_of_one_query_agrees(calibration, seed, shape, candidates, deviation, more, copies):
    scores = score_rows(seed, shape, candidates, deviation)
    videos = min(candidates, 40) + (more if candidates >= 40 else 0)
    copies_Q = torch.tensor([min(copies, videos)])
    (said,) = CalibratedJudge(calibration)(Candidates(scores, videos, copies_Q=copies_Q))
    assert not contradictions(said, videos, int(copies_Q), calibration.here_floor)


@given(calibrations, st.integers(0, 10_000), st.integers(2, 40), st.integers(1, 8))
def test_what_is_said_of_films_in_parts_agrees(calibration, seed, candidates, films):
    scores = score_rows(seed, "few", candidates, 0.05)
    video_QK = torch.from_numpy(np.random.default_rng(seed).integers(0, films, (1, candidates)))
    (said,) = CalibratedJudge(calibration)(Candidates(scores, candidates, video_QK=video_QK))
    assert not contradictions(said, candidates, 1, calibration.here_floor, in_parts=True)


def contradictions(
    said: Diagnosis, videos: int, copies: int, here_floor: float, in_parts: bool = False
) -> list[str]:
    """What cannot be true beside the probabilities, in words."""
    shares, group = said.probabilities, said.group
    held, others = sum(shares[:group]), shares[group:]
    read = re.findall(r"(?:under |over )?\d+%", said.explanation)
    begun = [kind for kind, words in BEGINNINGS.items() if re.match(words, said.explanation)]
    little = said.here < here_floor
    doubted = "on little evidence: it may be missing" in said.explanation
    true = {
        "a probability lies between 0 and 1": all(0 <= share <= 1 for share in shares),
        "all together are at most 1": sum(shares) <= 1 + 1e-4,
        "the probability is the first hit's": said.probability == shares[0],
        "the first hit is the most probable one": in_parts or shares[0] >= max(shares) - 1e-6,
        "the words are the kind's": said.words == WORDS[said.kind],
        "the sentence is the kind's": begun == [said.kind],
        "what is missing has little evidence": little or said.kind != "not_here",
        "what stands out on little evidence says so": doubted == (little and said.kind == "precise"),
    }
    if said.kind == "precise":
        alone = group == 1
        true |= {
            "it is one video, or its copies": group == copies,
            "one video is called one": ("One video stands out" in said.explanation) == alone,
            "nothing else is as probable": all(shares[0] > share for share in others),
            "the number is its probability": read == [spoken(shares[0] if alone else held)],
        }
    elif said.kind == "several_fit":
        true |= {
            "the group is small": 2 <= group <= max(2, min(6, len(shares))) or len(shares) == 1,
            "the sentence counts the group": NUMBERS[said.explanation.split()[0]] == group,
            "the numbers are the group's and the first's": read == [spoken(held), spoken(shares[0])],
            "no video has three quarters of it": shares[0] < 0.75,
        }
    else:
        small = max(2, min(6, videos // 8))
        true |= {
            "there is no group": group == 0,
            "the number is the first's": read == [spoken(shares[0])],
            "no video has three quarters of it": shares[0] < 0.75,
            "no small group holds it": said.kind != "too_little" or sum(shares[:small]) < 0.75,
        }
    return [statement for statement, holds in true.items() if not holds]


def spoken(share: float) -> str:
    """A probability as people read it: nothing is impossible, and nothing certain unless it is."""
    if share > 0 and 100 * share < 1:
        return "under 1%"
    return "over 99%" if 99 < 100 * share < 100 else f"{round(100 * share)}%"
