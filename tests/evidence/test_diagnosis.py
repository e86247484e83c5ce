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
from holmes.evidence.fitting import best_candidates, fit_calibration, judge_all, without
from holmes.evidence.judging import CalibratedJudge, Candidates, Judge, judge
from holmes.evidence.kinds import AnswerKind, fit_word, kinds_of
from holmes.evidence.quantities import candidate_quantities, fit_temperature
from holmes.evidence.wording import explain, kind_words
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
    few = [0.01] * 5
    rows = {
        "half, and twice the next": ([0.5, 0.25, *few], 0.1, 1, AnswerKind.PRECISE, 1),
        "less than half": ([0.49, 0.1, 0.05, *few[1:]], 0.2, 1, AnswerKind.TOO_LITTLE, 0),
        "another is nearly as good": ([0.5, 0.3, *few], 0.1, 1, AnswerKind.SEVERAL_FIT, 2),
        "two hold it": ([0.4, 0.35, *few], 0.1, 1, AnswerKind.SEVERAL_FIT, 2),
        "six hold it": ([0.1] * 7, 0.2, 1, AnswerKind.SEVERAL_FIT, 5),
        "seven would": ([0.08] * 7, 0.2, 1, AnswerKind.TOO_LITTLE, 0),
        "a member is too small": ([0.42, 0.1, *few], 0.2, 1, AnswerKind.TOO_LITTLE, 0),
        "two copies hold it": ([0.3, 0.3, *few], 0.2, 2, AnswerKind.PRECISE, 2),
        "none is likeliest": ([0.2, 0.1, *few], 0.35, 1, AnswerKind.NOT_HERE, 0),
        "none is likeliest with little": ([0.1, 0.08, *few], 0.25, 1, AnswerKind.TOO_LITTLE, 0),
        "none is likelier than each copy alone": ([0.2, 0.2, *few], 0.35, 2, AnswerKind.TOO_LITTLE, 0),
        "a video is likelier": ([0.38, 0.05, *few], 0.37, 1, AnswerKind.TOO_LITTLE, 0),
        "none is likelier by less than is shown": ([0.361, 0.05, *few], 0.364, 1, AnswerKind.TOO_LITTLE, 0),
        "half as shown": ([0.496, 0.1, *few], 0.2, 1, AnswerKind.PRECISE, 1),
        "29% as shown": ([0.2, 0.1, *few], 0.294, 1, AnswerKind.TOO_LITTLE, 0),
        "less than twice the next": ([0.53, 0.27, *few], 0.1, 1, AnswerKind.SEVERAL_FIT, 2),
    }
    probability_QK = torch.tensor([row[0] for row in rows.values()])
    none_Q, copies_Q = (torch.tensor([row[place] for row in rows.values()]) for place in (1, 2))
    kinds_Q, group_Q = kinds_of(probability_QK, none_Q, copies_Q)
    for name, kind, group in zip(rows, kinds_Q.tolist(), group_Q.tolist(), strict=True):
        assert (AnswerKind(kind), group) == rows[name][3:], name
    moved_Q, _ = kinds_of(probability_QK, none_Q, copies_Q, not_here_below=0.78)
    said = [AnswerKind(kind) for kind in moved_Q.tolist()]
    assert said[3] == AnswerKind.SEVERAL_FIT and said[9] == AnswerKind.NOT_HERE, "25% is enough now"
    assert said[10] == said[11] == AnswerKind.TOO_LITTLE, "a video is likelier all the same, or two copies"


def test_how_well_a_video_fits_in_words():
    fitting = [fit_word(p, AnswerKind.SEVERAL_FIT) for p in (0.8, 0.5, 0.4, 0.15, 0.1)]
    assert fitting == ["fits", "fits", "may fit", "may fit", "nearest"]
    assert fit_word(0.8, AnswerKind.NOT_HERE) == "nearest", "nothing fits of what is not here"
    vague = [fit_word(p, AnswerKind.TOO_LITTLE) for p in (0.8, 0.4, 0.1)]
    assert vague == ["may fit", "may fit", "nearest"], "it may be about nothing here"
    assert fit_word(0.1, AnswerKind.SEVERAL_FIT, meant=True) == "may fit"
    assert fit_word(0.3, AnswerKind.PRECISE, meant=True) == "fits", "one of several copies"


@pytest.mark.parametrize(
    ("kind", "group", "said"),
    [
        (AnswerKind.PRECISE, 1, "Best guess: a.mp4 (40%). 22% chance that it is not in your collection."),
        (
            AnswerKind.PRECISE,
            2,
            "Two videos show the same moment: 60% chance that one of them is right. 22% chance that "
            "it is not in your collection.",
        ),
        (
            AnswerKind.SEVERAL_FIT,
            2,
            "60% chance that it is one of two videos (a.mp4: 40%). 22% chance that it is not in your "
            "collection.",
        ),
        (
            AnswerKind.TOO_LITTLE,
            0,
            "Not enough to tell. The likeliest video is a.mp4 (40%). 22% chance that it is not in your "
            "collection.",
        ),
        (AnswerKind.NOT_HERE, 0, "Perhaps not in your collection (22%). The nearest is a.mp4 (40%)."),
    ],
)
def test_the_sentence(kind, group, said):
    assert explain(kind, group, [0.4, 0.2, 0.1], 0.22, ["a.mp4", "b.mp4"])[0] == said
    assert "the first hit" in explain(kind, group, [0.4, 0.2, 0.1], 0.22)[0] or group == 2


def test_the_advice_asks_for_what_the_answer_was_found_by() -> None:
    little = (AnswerKind.TOO_LITTLE, 1, [0.2], 0.1, ["a.mp4"])
    assert "can be seen" in explain(*little)[1] and "can be seen" in explain(*little, [(2.0, 1.0, 0.0)])[1]
    assert "said or shown" in explain(*little, [(1.0, -1.0, 2.0)])[1]


def test_an_answer_that_is_certain_asks_for_no_more_words():
    said, helps = explain(AnswerKind.PRECISE, 1, [0.995], 0.003, ["a.mp4"])
    assert said == "Likely: a.mp4 (over 99%). Under 1% chance that it is not in your collection."
    assert helps == "The moment shown is where it fits best."
    assert explain(AnswerKind.PRECISE, 1, [0.94], 0.003)[1] == "Add a detail to be more certain."
    assert explain(AnswerKind.SEVERAL_FIT, 2, [0.5, 0.499], 0.001)[0].startswith(
        "Over 99% chance that it is one of"
    )


def test_likely_is_said_from_sixty_percent_on():
    assert explain(AnswerKind.PRECISE, 1, [0.6], 0.1)[0].startswith("Likely: the first hit (60%).")
    assert explain(AnswerKind.NOT_HERE, 0, [0.1], 0.6)[0].startswith("Likely not in your collection (60%).")
    assert explain(AnswerKind.PRECISE, 1, [0.596], 0.1)[0].startswith("Likely: the first hit (60%)."), (
        "as shown"
    )
    assert explain(AnswerKind.PRECISE, 1, [0.594], 0.1)[0].startswith("Best guess: the first hit (59%).")


def test_not_here_it_seems_is_said_from_half_on():
    said = [kind_words(AnswerKind.NOT_HERE, none) for none in (0.3, 0.494, 0.496, 0.9)]
    assert said == ["perhaps not here", "perhaps not here", "not here, it seems", "not here, it seems"]
    assert kind_words(AnswerKind.PRECISE, 0.4) == "precise"


def test_only_the_evidence_counts_not_the_words():
    """A word and a sentence with the same scores get the same answer: nothing else is told to a judge."""
    scores = Scores(*torch.full((2, 2, 30), 0.1))
    one, other = CalibratedJudge(CALIBRATION)(Candidates(scores, 30))
    assert one == other


def test_a_stated_prior_moves_none_and_nothing_else():
    scores = random_scores(5, 20)
    calibration = replace(CALIBRATION, absence_shift=0.5, absence_slope=0.3)
    often = judge(Candidates(scores, 20, expect_missing=0.5), calibration)
    never = judge(Candidates(scores, 20, expect_missing=0.0), calibration)
    assert (often.gallery.none_Q > 0.3).all() and (never.gallery.none_Q == 0).all()
    left_Q1 = (1 - often.gallery.none_Q).unsqueeze(1)
    torch.testing.assert_close(often.gallery.probability_QK, never.gallery.probability_QK * left_Q1)


def test_films_are_ordered_by_the_sum_of_their_parts():
    """Two films: the first has the best part, the second more of the evidence."""
    frame = torch.tensor([[0.50, 0.49, 0.48, 0.47, 0.1]])
    video_QK = torch.tensor([[7, 3, 3, 3, 7]])
    (said,) = CalibratedJudge(CALIBRATION)(Candidates(Scores(frame, frame), 5, video_QK=video_QK))
    assert said.order == (1, 0) and said.probabilities[0] > said.probabilities[1]
    e = [1 + math.exp((s - 0.3) / 0.05) for s in frame[0].tolist()]
    assert said.probabilities[0] == pytest.approx(0.8 * sum(e[1:4]) / sum(e), rel=1e-4)


def test_a_diagnosis_says_what_was_judged():
    scores = random_scores(6, 20)
    diagnose: Judge = CalibratedJudge(CALIBRATION)
    assert diagnose.candidates == 20
    candidates = Candidates(scores, 20)
    said, judged = diagnose(candidates), judge(candidates, CALIBRATION)
    for row, diagnosis in enumerate(said):
        kind = AnswerKind(int(judged.kinds_Q[row]))
        assert (diagnosis.kind, diagnosis.words) == (kind.name.lower(), kind.words)
        assert diagnosis.probability == pytest.approx(judged.gallery.probability_QK[row, 0].item())
        assert sum(diagnosis.probabilities) == pytest.approx(diagnosis.here, rel=1e-5)
        assert diagnosis.probabilities[0] == diagnosis.probability == max(diagnosis.probabilities)
        assert diagnosis.probability_top[5] == pytest.approx(sum(diagnosis.probabilities[:5]))
        assert sum(diagnosis.beliefs) + diagnosis.quantities["uncertainty"] == pytest.approx(1, rel=1e-5)
        assert diagnosis.quantities["about_equal"] == sum(
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
    assert only.probability == pytest.approx(0.8) and only.quantities["margin"] == 0
    assert only.probability_top == {5: pytest.approx(0.8), 10: pytest.approx(0.8)}


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


def test_a_fitted_calibration_tells_kinds_apart_in_another_gallery():
    calibration = fit_calibration(*world_of_kinds(400, 80, seed=0)[:2], *WEIGHTS, "m")
    assert calibration is not None and (calibration.videos, calibration.queries) == (80, 400)
    scores, owner_Q, kinds = world_of_kinds(600, 300, seed=1)
    judged = judge_all(scores, calibration)
    found = judged.kinds_Q.numpy()
    assert (found[kinds == 2] >= AnswerKind.TOO_LITTLE).mean() > 0.8
    assert (found[kinds == 0] == AnswerKind.PRECISE).mean() > 0.7
    assert (found[kinds == 1] == AnswerKind.SEVERAL_FIT).mean() > 0.7
    # And the probability is true of the top hit, which was never looked at.
    right = (calibration.score(scores).argmax(1) == owner_Q).double().mean().item()
    here = judge_all(scores, calibration, expect_missing=0)
    assert here.gallery.probability_top(1).mean().item() == pytest.approx(right, abs=0.05)
    gone = judge_all(without(scores, owner_Q), calibration)
    assert gone.gallery.none_Q[kinds == 0].mean() > judged.gallery.none_Q[kinds == 0].mean() + 0.1


def test_what_fits_is_learned_from_queries_that_several_videos_satisfy():
    """The same score means that a video fits, where half of those that score so do."""
    rng = np.random.default_rng(0)
    scores, owner_Q, _ = world_of_kinds(300, 40, seed=2)
    fits_QV = torch.from_numpy(rng.random((300, 40)) < 0.02)
    scores.frame_QV[fits_QV] += 0.3
    scores.clip_QV[fits_QV] += 0.3
    fits_QV = fits_QV.scatter(1, owner_Q.unsqueeze(1), False)
    calibration = fit_calibration(scores, owner_Q, *WEIGHTS, "m", fits_QV)
    assert calibration is not None and calibration.fit_slope > 0
    judged = judge_all(scores, calibration)
    order_QV = calibration.score(scores).argsort(dim=1, descending=True)
    true_QV = fits_QV.scatter(1, owner_Q.unsqueeze(1), True).gather(1, order_QV)
    for low, high in ((0.0, 0.1), (0.5, 1.01)):
        some = (judged.fit_QK >= low) & (judged.fit_QK < high)
        assert true_QV[some].double().mean().item() == pytest.approx(
            judged.fit_QK[some].double().mean().item(), abs=0.12
        )
    assert (judged.fit_QK >= judged.gallery.probability_QK).all(), "the one that is meant fits"


def test_what_fits_a_vague_sentence_is_told_by_how_near_the_best_it_is():
    """Clear sentences score high at one video; vague ones low everywhere, and highest at those that fit."""
    vague_Q, found, scores, fits_QV = torch.arange(600) % 3 == 0, [], [], []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        owner_Q, score_QV = torch.from_numpy(rng.integers(0, 30, 600)), rng.normal(0.3, 0.05, (600, 30))
        fits_QV.append(torch.from_numpy(rng.random((600, 30)) < 0.3) & vague_Q.unsqueeze(1))
        fits_QV[-1][torch.arange(600), owner_Q] = True
        score_QV[fits_QV[-1].numpy()] += 0.4
        score_QV[vague_Q.numpy()] -= 0.4
        scores.append(Scores(*torch.tensor(np.stack([score_QV] * 2), dtype=torch.float32)))
        found.append(owner_Q)
    others_QV = fits_QV[0].scatter(1, found[0].unsqueeze(1), False)
    calibration = fit_calibration(scores[0], found[0], *WEIGHTS, "m", others_QV)
    assert calibration is not None
    judged = judge_all(scores[1], calibration)
    true_QK = fits_QV[1].gather(1, calibration.score(scores[1]).argsort(dim=1, descending=True))
    for some_Q in (vague_Q, ~vague_Q):
        said_QK, right_QK = judged.fit_QK[some_Q], true_QK[some_Q]
        assert said_QK[right_QK].mean() > 0.8 and said_QK[~right_QK].mean() < 0.1


def test_older_calibrations_open_with_what_they_lack_at_its_default():
    old = {
        "version": 2, "model": "abc", "candidates": 100, "frame_weight": 0.4, "clip_weight": 0.6,
        "temperature": 0.07, "score_temperature": 0.05, "score_offset": 0.18, "videos": 75, "queries": 5584,
        "odds_shift": 0.28, "odds_slope": 1.1, "vacuity_middle": -5.2, "vacuity_spread": 1.2,
        "precise_floor": 0.5, "group_floor": 0.5, "here_floor": 0.05, "rough": False,
    }  # fmt: skip
    first = {k: v for k, v in old.items() if "floor" not in k} | {"version": 1, "vacuity_ceiling": 0.4}
    for stored in (old, first):
        calibration = read_calibration(stored, "abc")
        assert calibration is not None and calibration.score_offset == 0.18
        (said,) = CalibratedJudge(calibration)(Candidates(random_scores(1, 20), 20))
        assert said.here == pytest.approx(0.8), "what it never learned of missing videos is the prior"


def test_a_calibration_is_fitted_on_the_device_of_its_scores():
    """As on a GPU: a tensor made without naming a device would land on another one than the scores."""
    scores, owner_Q, _ = world_of_kinds(100, 30, seed=0)
    with torch.device("meta"):
        there = fit_calibration(scores, owner_Q, *WEIGHTS, "m")
    assert there == fit_calibration(scores, owner_Q, *WEIGHTS, "m")


def test_what_the_other_clips_of_a_part_add_stays_when_sentences_are_given():
    """Sentences of a collection tell nothing of it; a model that was never calibrated knows nothing of it."""
    scores, owner_Q, _ = world_of_kinds(100, 30, seed=0)
    own = fit_calibration(scores, owner_Q, *WEIGHTS, "m")
    assert own is not None and own.part_rest == 0
    known = replace(own, part_rest=0.2)
    again = fit_calibration(scores, owner_Q, *WEIGHTS, "m", before=known)
    assert again is not None and again.part_rest == 0.2
    stored = {name: value for name, value in known.to_dict().items() if name != "part_rest"}
    assert read_calibration(stored, "m") == own, "written by an earlier version"


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
        assert diagnosis.kind == "precise" and diagnosis.probability > 0.9


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
