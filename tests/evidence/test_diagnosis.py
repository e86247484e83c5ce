"""Quantities on a fixed number of candidates, kinds, sentences, and whose calibration it is."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import psi

from holmes.config.schema import ScoreConfig
from holmes.errors import HolmesError
from holmes.evidence.calibration import Calibration, read_calibration
from holmes.evidence.fitting import best_candidates, fit_calibration, fit_known_kinds, judge_all
from holmes.evidence.judging import CalibratedJudge, Candidates, Judge, judge
from holmes.evidence.kinds import AnswerKind, KindRules, kinds_of, small_group
from holmes.evidence.quantities import candidate_quantities, fit_temperature
from holmes.evidence.wording import explain
from holmes.records import Scores

WEIGHTS = (ScoreConfig().frame_weight, ScoreConfig().clip_weight)
CALIBRATION = Calibration(
    model="abc",
    candidates=20,
    frame_weight=0.4,
    clip_weight=0.6,
    temperature=0.1,
    score_temperature=0.05,
    score_offset=0.3,
    videos=50,
    queries=200,
)


def random_scores(queries: int, videos: int, seed: int = 0) -> Scores:
    """Both branches' scores of a gallery in the order of the fused score."""
    rng = np.random.default_rng(seed)
    frame, clip = rng.normal(0.2, 0.12, (2, queries, videos))
    order = np.argsort(-(0.4 * frame + 0.6 * clip), axis=1)
    taken = [np.take_along_axis(branch, order, 1) for branch in (frame, clip)]
    return Scores(*(torch.tensor(branch, dtype=torch.float32) for branch in taken))


def slow_quantities(frame: list[float], clip: list[float], candidates: int, tau: float) -> dict[str, float]:
    """From the paper's equations, in loops; Dempster's rule over all pairs."""
    evidence = []
    for branch in (frame, clip):
        amounts = [math.exp(math.tanh(s) / tau) for s in branch]
        evidence.append(amounts + [0.0] * (candidates - len(amounts)))
    beliefs, unknown = [], []
    for amounts in evidence:
        strength = sum(amounts) + candidates
        beliefs.append([e / strength for e in amounts])
        unknown.append(candidates / strength)
    conflict = sum(b * c for i, b in enumerate(beliefs[0]) for j, c in enumerate(beliefs[1]) if i != j)
    fused = [
        (b * c + b * unknown[1] + c * unknown[0]) / (1 - conflict) for b, c in zip(*beliefs, strict=True)
    ]
    u = unknown[0] * unknown[1] / (1 - conflict)
    strength = candidates / u
    alpha = [b * strength + 1 for b in fused]
    entropy = sum(a / strength * (psi(strength + 1) - psi(a + 1)) for a in alpha)
    return {
        "u": u,
        "xi": entropy / math.log(candidates),
        "delta": conflict,
        "agreement": sum(b * c for b, c in zip(*beliefs, strict=True))
        / math.sqrt(sum(b * b for b in beliefs[0]) * sum(c * c for c in beliefs[1])),
        "gap": fused[0] - fused[1],
        "frame_u": unknown[0],
        "clip_u": unknown[1],
    }


@pytest.mark.parametrize("videos", [3, 20, 35])
@pytest.mark.parametrize("tau", [0.07, 0.3])
def test_quantities_against_the_equations(videos, tau):
    scores, candidates = random_scores(4, videos), 20
    found = candidate_quantities(scores, candidates, tau)
    for row in range(4):
        frame, clip = (branch[row, :candidates].tolist() for branch in (scores.frame_QV, scores.clip_QV))
        twin = slow_quantities(frame, clip, candidates, tau)
        ours = {
            "u": found.uncertainty_Q[row],
            "xi": found.entropy_Q[row],
            "delta": found.conflict_Q[row],
            "agreement": found.agreement_Q[row],
            "gap": found.belief_gap_Q[row],
            "frame_u": found.frame.uncertainty_Q[row],
            "clip_u": found.clip.uncertainty_Q[row],
        }
        for name, value in twin.items():
            assert ours[name].item() == pytest.approx(value, rel=2e-4, abs=1e-6), name


def test_candidates_beyond_the_fixed_number_change_nothing():
    scores = random_scores(5, 40)
    cut = Scores(scores.frame_QV[:, :20], scores.clip_QV[:, :20])
    one, other = candidate_quantities(scores, 20, 0.1), candidate_quantities(cut, 20, 0.1)
    torch.testing.assert_close(one.fused.belief_QV, other.fused.belief_QV)
    torch.testing.assert_close(one.entropy_Q, other.entropy_Q)


def test_the_temperature_is_the_likeliest_of_the_choices():
    scores, owner_Q = random_scores(60, 12, seed=3), torch.arange(60) % 4
    choices = (0.03, 0.06, 0.1, 0.2, 0.5, 1.0)

    def surprise(tau: float) -> float:
        frame, clip = (
            np.exp(np.tanh(branch.double().numpy()) / tau) for branch in (scores.frame_QV, scores.clip_QV)
        )
        alpha = 1 + frame + clip + frame * clip / 50
        return -np.log(alpha[np.arange(60), owner_Q] / alpha.sum(1)).mean()

    assert fit_temperature(scores, owner_Q, 50, choices) == min(choices, key=surprise)


def test_kinds_are_what_a_person_means():
    rules = KindRules(precise=0.5, group=0.6, here=0.3)
    rows = {
        "another is as good": ([0.5, 0.45, *[0.01] * 5], 0.9, 1, AnswerKind.SEVERAL_FIT, 2),
        "one holds it": ([0.55, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05], 0.9, 1, AnswerKind.PRECISE, 1),
        "two hold it": ([0.4, 0.35, 0.01, 0.01, 0.01, 0.01, 0.01], 0.9, 1, AnswerKind.SEVERAL_FIT, 2),
        "six hold it": ([0.11, 0.11, 0.11, 0.1, 0.1, 0.1, 0.1], 0.9, 1, AnswerKind.SEVERAL_FIT, 6),
        "seven would": ([0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09], 0.9, 1, AnswerKind.TOO_LITTLE, 0),
        "two copies hold it": ([0.3, 0.3, 0.05, 0.05, 0.01, 0.01, 0.01], 0.9, 2, AnswerKind.PRECISE, 2),
        "it stands out all the same": ([0.6, *[0.01] * 6], 0.25, 1, AnswerKind.PRECISE, 1),
        "it is not here": ([0.2, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01], 0.25, 1, AnswerKind.NOT_HERE, 0),
    }
    probability_QK = torch.tensor([row[0] for row in rows.values()])
    here_Q, copies_Q = (torch.tensor([row[place] for row in rows.values()]) for place in (1, 2))
    kinds_Q, group_Q = kinds_of(probability_QK, here_Q, copies_Q, rules)
    for name, kind, group in zip(rows, kinds_Q.tolist(), group_Q.tolist(), strict=True):
        assert (AnswerKind(kind), group) == rows[name][3:], name


def test_a_small_group_is_small_in_its_gallery():
    """Six at most, and an eighth of the gallery; two are always few enough."""
    assert [small_group(videos) for videos in (1, 8, 16, 17, 24, 25, 40, 41, 90, 10**6)] == [
        2, 2, 2, 3, 3, 4, 5, 6, 6, 6,
    ]  # fmt: skip
    probability_QK = torch.tensor([[0.13] * 6 + [0.01] * 18])
    for small, kind in ((6, AnswerKind.SEVERAL_FIT), (3, AnswerKind.TOO_LITTLE)):
        rules = KindRules(small=small)
        kinds_Q, _ = kinds_of(probability_QK, torch.tensor([0.9]), torch.tensor([1]), rules)
        assert kinds_Q.item() == kind


@pytest.mark.parametrize(
    ("kind", "group", "begins"),
    [
        (
            AnswerKind.PRECISE,
            1,
            "One video stands out. If your collection contains it, the first hit is "
            "right with probability 40%.",
        ),
        (
            AnswerKind.PRECISE,
            2,
            "Two videos show the same moment. If your collection contains it, they are "
            "right with probability 60%.",
        ),
        (
            AnswerKind.SEVERAL_FIT,
            3,
            "Three videos fit. If your collection contains it, one of them is right "
            "with probability 60%, and the first with 40%.",
        ),
        (AnswerKind.SEVERAL_FIT, 14, "14 videos fit."),
        (
            AnswerKind.TOO_LITTLE,
            0,
            "Too many videos fit. If your collection contains it, the first hit is "
            "right with probability 40%.",
        ),
        (AnswerKind.NOT_HERE, 0, "It is probably not here; these videos come nearest."),
    ],
)
def test_the_sentence(kind, group, begins):
    assert explain(kind, group, 0.4, 0.6)[0].startswith(begins)


def test_what_stands_out_on_little_evidence_says_so():
    said, _ = explain(AnswerKind.PRECISE, 1, 0.78, 0.78, little=True)
    assert said == (
        "One video stands out, on little evidence: it may be missing from your collection. "
        "If it is there, the first hit is right with probability 78%."
    )


def test_a_word_or_two_are_never_said_not_to_be_here():
    """One video scores a little more than the others, and none has any evidence to speak of."""
    scores = Scores(*torch.full((2, 2, 30), 0.1))
    calibration = replace(CALIBRATION, vacuity_middle=-9.0)
    terse_Q = torch.tensor([False, True])
    sentence, word = CalibratedJudge(calibration)(Candidates(scores, 30, terse_Q=terse_Q))
    assert sentence.kind == "not_here" and word.kind == "too_little" and sentence.here == word.here < 0.05
    assert word.explanation.startswith("A word or two say little. If your collection contains it, the first")
    assert sentence.probabilities == word.probabilities


def test_only_an_absent_answer_is_said_not_to_be_here():
    for kind in AnswerKind:
        said = " ".join(explain(kind, 1, 0.4, 0.6))
        assert ("not here" in said) == (kind is AnswerKind.NOT_HERE)


def test_the_number_the_sentence_and_the_kind_are_of_one_distribution():
    calibration = fit_calibration(*world_of_kinds(400, 80, seed=0)[:2], *WEIGHTS, "m")
    assert calibration is not None
    scores = world_of_kinds(200, 90, seed=3)[0]
    best, all_scores = best_candidates(scores, calibration)
    said = CalibratedJudge(calibration)(Candidates(best, 90, all_scores))
    assert {diagnosis.kind for diagnosis in said} >= {"precise", "several_fit", "not_here"}
    for diagnosis in said:
        assert sum(diagnosis.probabilities) <= 1 + 1e-5
        unclear = diagnosis.probability < calibration.precise_floor
        assert (diagnosis.kind == "not_here") == (unclear and diagnosis.here < calibration.here_floor)
        first = diagnosis.probability
        number = "over 99%" if 0.99 < first < 1 else "under 1%" if 0 < first < 0.01 else f"{first:.0%}"
        assert f"probability {number}" in diagnosis.explanation or f"with {number}" in diagnosis.explanation
        if diagnosis.kind == "precise":
            assert diagnosis.probability >= calibration.precise_floor and diagnosis.group == 1
        if diagnosis.kind == "several_fit":
            held = np.cumsum(diagnosis.probabilities)
            assert held[diagnosis.group - 1] >= calibration.group_floor or diagnosis.group == 2


def test_a_diagnosis_says_what_was_judged():
    scores = random_scores(6, 20)
    diagnose: Judge = CalibratedJudge(CALIBRATION)
    assert diagnose.candidates == 20
    case = Candidates(scores, 20)
    said, judged = diagnose(case), judge(case, CALIBRATION)
    for row, diagnosis in enumerate(said):
        kind = AnswerKind(int(judged.kinds_Q[row]))
        assert (diagnosis.kind, diagnosis.words) == (kind.name.lower(), kind.words)
        assert diagnosis.probability == pytest.approx(judged.gallery.probability_QK[row, 0].item())
        assert sum(diagnosis.probabilities) == pytest.approx(1, rel=1e-5)
        assert diagnosis.probabilities[0] == diagnosis.probability == max(diagnosis.probabilities)
        assert diagnosis.probability_top[5] == pytest.approx(sum(diagnosis.probabilities[:5]))
        assert sum(diagnosis.beliefs) + diagnosis.quantities["uncertainty"] == pytest.approx(1, rel=1e-5)
        assert diagnosis.quantities["fits"] == sum(
            p >= diagnosis.probability / 2 for p in diagnosis.probabilities
        )
        assert json.dumps(diagnosis.quantities)
        assert diagnosis.advice.endswith(".")


def test_one_query_equals_its_row():
    scores = random_scores(4, 35)
    every = CalibratedJudge(CALIBRATION)(Candidates(scores, 5_000))
    for row in range(4):
        alone = Scores(scores.frame_QV[row : row + 1], scores.clip_QV[row : row + 1])
        (one,) = CalibratedJudge(CALIBRATION)(Candidates(alone, 5_000))
        assert one.kind == every[row].kind and one.explanation == every[row].explanation
        np.testing.assert_allclose(one.probabilities, every[row].probabilities, rtol=1e-5)
        np.testing.assert_allclose(one.beliefs, every[row].beliefs, rtol=1e-5)


def test_a_gallery_of_one_video():
    (only,) = CalibratedJudge(CALIBRATION)(
        Candidates(Scores(torch.tensor([[0.5]]), torch.tensor([[0.6]])), 1)
    )
    assert only.probability == pytest.approx(1) and only.quantities["margin"] == 0
    assert only.probability_top == {5: pytest.approx(1), 10: pytest.approx(1)}


def test_a_calibration_survives_json_and_belongs_to_its_model():
    stored = json.loads(json.dumps(CALIBRATION.to_dict()))
    assert read_calibration(stored, "abc") == CALIBRATION
    assert read_calibration(None, "abc") is None
    with pytest.raises(HolmesError, match="belongs to another model"):
        read_calibration(stored, "abd")
    for damaged in ([], {**stored, "version": 99}, {k: v for k, v in stored.items() if k != "temperature"}):
        with pytest.raises(HolmesError, match="does not know"):
            read_calibration(damaged, "abc")


def world_of_kinds(queries: int, videos: int, seed: int) -> tuple[Scores, torch.Tensor, np.ndarray]:
    """Precise queries have one good video, polysemous four, under-determined none."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(3, queries, p=[0.6, 0.25, 0.15])
    owner = rng.integers(0, videos, queries)
    scores = rng.normal(0.2, 0.06, (2, queries, videos))
    for query, kind in enumerate(kinds):
        fitting = {0: [owner[query]], 1: [owner[query], *rng.integers(0, videos, 3)], 2: []}[kind]
        scores[:, query, fitting] += 0.35
    return Scores(*torch.tensor(scores, dtype=torch.float32)), torch.tensor(owner), kinds


def test_fitted_thresholds_tell_kinds_apart_in_another_gallery():
    calibration = fit_calibration(*world_of_kinds(400, 80, seed=0)[:2], *WEIGHTS, "m")
    assert calibration is not None and (calibration.videos, calibration.queries) == (80, 400)
    scores, owner_Q, kinds = world_of_kinds(600, 300, seed=1)
    best, all_scores = best_candidates(scores, calibration)
    judged = judge(Candidates(best, 300, all_scores), calibration)
    found = judged.kinds_Q.numpy()
    assert (found[kinds == 2] >= AnswerKind.TOO_LITTLE).mean() > 0.8
    assert (found[kinds == 0] == AnswerKind.PRECISE).mean() > 0.7
    assert (found[kinds == 1] == AnswerKind.SEVERAL_FIT).mean() > 0.7
    # And the probability is true of the top hit, which was never looked at.
    right = (calibration.score(scores).argmax(1) == owner_Q).double().mean().item()
    assert judged.gallery.probability_top(1).mean().item() == pytest.approx(right, abs=0.05)


def test_too_few_queries_teach_nothing():
    scores, owner_Q, _ = world_of_kinds(5, 10, seed=0)
    assert fit_calibration(scores, owner_Q, *WEIGHTS, "m") is None


def test_quantities_stay_finite_where_right_videos_stand_far_apart():
    """The fitted τ is then at its smallest, and the product of both branches' evidence beyond float32."""
    scores = Scores(*(0.1 + 0.6 * torch.eye(30) for _ in range(2)))
    calibration = fit_calibration(scores, torch.arange(30), *WEIGHTS, "m")
    assert calibration is not None and calibration.temperature <= 0.011
    best, all_scores = best_candidates(scores, calibration)
    for diagnosis in CalibratedJudge(calibration)(Candidates(best, 30, all_scores)):
        assert all(math.isfinite(value) for value in diagnosis.quantities.values())
        assert diagnosis.beliefs[0] > 0.99 and all(math.isfinite(belief) for belief in diagnosis.beliefs)
        assert diagnosis.kind == "precise" and diagnosis.probability > 0.99


@pytest.mark.parametrize(
    "damage",
    [{"score_temperature": 0}, {"score_temperature": math.nan}, {"temperature": "a"}, {"candidates": 0},
     {"videos": 2.5}],
)  # fmt: skip
def test_a_damaged_calibration_is_refused(damage):
    scores, owner_Q, _ = world_of_kinds(100, 30, seed=0)
    calibration = fit_calibration(scores, owner_Q, *WEIGHTS, "m")
    assert calibration is not None and read_calibration(calibration.to_dict(), "m") == calibration
    with pytest.raises(HolmesError, match="the calibration is damaged"):
        read_calibration(calibration.to_dict() | damage, "m")


def test_the_floors_meet_known_kinds_as_well_as_any_that_are_tried():
    """In loops: no floors of the same choice name more kinds right, by the mean of the F1 scores."""
    rng = np.random.default_rng(4)
    known = np.repeat([0, 1, 2], 30)
    scores = random_scores(90, 25, seed=7)
    for row, kind in enumerate(known):  # one stands out, three do, none does
        scores.frame_QV[row, : (1, 3, 0)[kind]] += 0.15
        scores.clip_QV[row, : (1, 3, 0)[kind]] += 0.15
    plain = fit_calibration(scores, torch.tensor(rng.integers(0, 3, 90)), 0.4, 0.6, "abc")
    assert plain is not None
    fitted = fit_known_kinds(plain, scores, torch.from_numpy(known))
    judged = judge_all(scores, plain)
    first = judged.gallery.probability_QK[:, 0].tolist()
    group = judged.gallery.probability_QK[:, :4].sum(1).tolist()  # four of 25 are a small group

    def mean_f1(precise: float, several: float, here: float, sure: float = 0.0) -> float:
        said = [
            0 if p >= 0.75 or (p >= precise and h >= sure) else 1 if g >= several and h >= here else 2
            for p, g, h in zip(first, group, judged.here_Q.tolist(), strict=True)
        ]
        rights = [sum(s == k == kind for s, k in zip(said, known, strict=True)) for kind in range(3)]
        return float(np.mean([2 * rights[kind] / (said.count(kind) + 30) for kind in range(3)]))

    best = mean_f1(fitted.precise_floor, fitted.group_floor, fitted.here_floor, fitted.sure_floor)
    tried = [
        mean_f1(min(np.quantile(first, p), 0.75), min(np.quantile(group, g), 0.75), h, s)
        for p in np.linspace(0, 1, 42)[1:-1:3]
        for g in np.linspace(0, 1, 42)[1:-1:3]
        for h in (0.01, 0.02, 0.03, 0.05)
        for s in (0.0, 0.1, 0.3)
    ]
    assert best >= max(tried) - 1e-6 and best > mean_f1(0.99, 0.99, 0.05)
