"""Figures of a confidence against loops; corruptions; the whole evaluation of a tiny run."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from typer.testing import CliRunner

import holmes
from holmes.cli.evaluate import confidence_tables
from holmes.cli.main import app
from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint, save_checkpoint, update_extras
from holmes.errors import HolmesError
from holmes.evaluation.confidence import baselines
from holmes.evaluation.confidence.answered import answer_split
from holmes.evaluation.confidence.baselines import logistic_curve, margin, negative_entropy
from holmes.evaluation.confidence.corruptions import Corruption, corrupt_caption, corrupt_tokens
from holmes.evaluation.confidence.measure import comparable, evaluate_uncertainty
from holmes.evaluation.confidence.metrics import (
    area_under_risk_coverage,
    auroc,
    auroc_within,
    calibration_error,
    equal_bins,
    reliability,
    risk_coverage,
)
from holmes.evaluation.confidence.quantities import smaller_gallery
from holmes.evaluation.confidence.readers import planted_reader
from holmes.evaluation.intervals import bootstrap_counts, estimate
from holmes.evaluation.runs.confidence import run_uncertainty
from holmes.evaluation.runs.folders import find_runs
from holmes.evaluation.scoring import unit_queries
from holmes.evidence.calibration import EXTRA, read_calibration
from holmes.evidence.fitting import without
from holmes.records import Scores
from holmes.training.calibrate import calibrate, fitting_videos
from holmes.training.protocol import Protocol, calibration_split, choose_splits
from holmes.training.run import train
from holmes.worlds.planted import PlantSettings, plant
from small import assert_close, tiny_model
from tex import compile_tables
from tiny_runs import QUIET, tiny_settings, tiny_world

BASELINES = {"top1_score", "margin", "softmax_entropy", "softmax_entropy_tuned", "dropout_agreement"}

answers = st.lists(
    st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 3), st.integers(0, 2)), min_size=2, max_size=9
)  # confidence (with ties), right or wrong, weight, stratum


def once(queries: int) -> np.ndarray:
    return np.ones((1, queries), np.int64)


def slow_auroc(pairs) -> float:
    positives = [score for score, positive in pairs if positive]
    negatives = [score for score, positive in pairs if not positive]
    if not positives or not negatives:
        return math.nan
    wins = [(p > n) + (p == n) / 2 for p in positives for n in negatives]
    return sum(wins) / len(wins)


def repeated(rows):
    """Each query as often as its weight says."""
    return [row for row in rows for _ in range(row[2])]


@pytest.mark.parametrize("dual", [False, True])
def test_queries_sorted_by_length_are_the_same_queries(dual, monkeypatch):
    """Encoded together with others of their length, and without padding, each in its own place."""
    monkeypatch.setattr(baselines, "EQUALLY_LONG", 3)
    model = tiny_model(dual)
    lengths_Q = torch.tensor([4, 1, 6, 0, 2, 6, 3, 5])
    tokens_QTD = torch.randn(8, 6, 7) * (torch.arange(6) < lengths_Q.unsqueeze(1)).unsqueeze(-1)
    with torch.no_grad():
        ours = baselines.encode_by_length(model, tokens_QTD, lengths_Q)
        whole = unit_queries(model.encode_queries(tokens_QTD, lengths_Q))
    real = lengths_Q > 0
    assert_close(ours.query_QD[real], whole.query_QD[real], 1e-5)


@given(answers)
def test_auroc_is_the_share_of_pairs_in_order(rows):
    score, positive, weight, stratum = (np.array(column) for column in zip(*rows, strict=True))
    expected = slow_auroc([row[:2] for row in rows])
    np.testing.assert_allclose(auroc(score, positive, once(len(rows)))[0], expected)
    weighted = slow_auroc([row[:2] for row in repeated(rows)])
    np.testing.assert_allclose(auroc(score, positive, weight[None])[0], weighted)
    wins = pairs = 0.0
    for one, other in itertools.product(repeated(rows), repeat=2):
        if one[1] and not other[1] and one[3] == other[3]:
            wins, pairs = wins + (one[0] > other[0]) + (one[0] == other[0]) / 2, pairs + 1
    inside = wins / pairs if pairs else math.nan
    np.testing.assert_allclose(auroc_within(score, positive, stratum, weight[None])[0], inside)


def slow_aurc(rows) -> float:
    """The mean risk over coverages, averaged over all orders of equally confident queries."""
    values = []
    for order in itertools.permutations(rows):
        if any(one[0] < other[0] for one, other in itertools.pairwise(order)):
            continue
        risks = [sum(not row[1] for row in order[:n]) / n for n in range(1, len(order) + 1)]
        values.append(sum(risks) / len(risks))
    return sum(values) / len(values)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 2)), min_size=1, max_size=4))
def test_aurc_is_the_mean_risk_over_all_orders_of_ties(rows):
    confidence, correct, weight = (np.array(column) for column in zip(*rows, strict=True))
    np.testing.assert_allclose(
        area_under_risk_coverage(confidence, correct, once(len(rows)))[0], slow_aurc(rows)
    )
    if 0 < weight.sum() <= 6:
        weighted = area_under_risk_coverage(confidence, correct, weight[None])[0]
        np.testing.assert_allclose(weighted, slow_aurc(repeated(rows)))


def test_aurc_by_hand():
    """Right, wrong, right, wrong by falling confidence: risks 0, 1/2, 1/3, 2/4."""
    found = area_under_risk_coverage([4, 3, 2, 1], [True, False, True, False], once(4))[0]
    assert found == pytest.approx((0 + 1 / 2 + 1 / 3 + 2 / 4) / 4)
    coverage, risk = risk_coverage([4, 3, 2, 1], [True, False, True, False], points=5)
    np.testing.assert_allclose(coverage, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(risk, [0, 1 / 2, 1 / 3, 2 / 4])


def test_calibration_error_by_hand():
    said = np.array([0.1, 0.1, 0.2, 0.2, 0.9, 0.9])
    right = np.array([False, False, True, False, True, False])
    # Bins of two: |.2 - 0|, |.4 - 1|, |1.8 - 1| over six queries.
    assert calibration_error(said, right, once(6), bins=3)[0] == pytest.approx((0.2 + 0.6 + 0.8) / 6)
    bins = reliability(said, right, bins=3)
    np.testing.assert_allclose(bins.said, [0.1, 0.2, 0.9])
    np.testing.assert_allclose(bins.true, [0, 0.5, 0.5])
    assert bins.queries.tolist() == [2, 2, 2]


def test_bins_hold_equally_many_and_never_part_equals():
    rng = np.random.default_rng(0)
    assert np.bincount(equal_bins(rng.random(1000), 10)).tolist() == [100] * 10
    same = equal_bins(np.array([0.3] * 90 + [0.5] * 10), 10)
    assert len(set(same[:90])) == 1 and len(set(same)) == 2


def test_the_bootstrap_draws_videos_with_all_their_queries():
    video_Q = np.array([7, 7, 3, 3, 3, 9])
    counts_BQ = bootstrap_counts(video_Q, 2000, seed=1)
    assert (counts_BQ[0] == 1).all()
    for queries in ([0, 1], [2, 3, 4]):
        assert (counts_BQ[:, queries] == counts_BQ[:, queries[:1]]).all()
    assert (counts_BQ[:, [0, 2, 5]].sum(1) == 3).all()
    np.testing.assert_allclose(counts_BQ[1:].mean(0), 1, atol=0.06)


def test_the_interval_of_a_mean():
    """Of many independent videos the bootstrap's interval is the textbook one."""
    rng = np.random.default_rng(0)
    right_Q = rng.random(400) < 0.3
    counts_BQ = bootstrap_counts(np.arange(400), 3000, seed=2)
    found = estimate((counts_BQ * right_Q).sum(1) / counts_BQ.sum(1))
    half = 1.96 * math.sqrt(right_Q.mean() * (1 - right_Q.mean()) / 400)
    assert found.value == pytest.approx(right_Q.mean())
    assert found.high - found.low == pytest.approx(2 * half, rel=0.08)


def test_the_logistic_curve_is_the_likeliest():
    rng = np.random.default_rng(0)
    x = rng.normal(5, 3, 300)
    right = rng.random(300) < 1 / (1 + np.exp(-(x - 6) / 2))

    def surprise(params) -> float:
        logit = params[0] + params[1] * x
        return np.logaddexp(0, np.where(right, -logit, logit)).sum()

    outside = minimize(surprise, [0.0, 0.1])
    expected = 1 / (1 + np.exp(-(outside.x[0] + outside.x[1] * x)))
    np.testing.assert_allclose(logistic_curve(x, right)(x), expected, atol=2e-3)


def test_baselines_by_hand():
    score_QV = torch.tensor([[0.5, 0.2, 0.1], [0.3, 0.3, 0.3]])
    np.testing.assert_allclose(margin(score_QV), [0.3, 0], atol=1e-7)
    p = np.exp([5, 2, 1]) / np.exp([5, 2, 1]).sum()
    np.testing.assert_allclose(
        negative_entropy(score_QV, 0.1), [(p * np.log(p)).sum() / math.log(3), -1], rtol=1e-5
    )


def test_galleries_without_a_video_and_smaller_ones():
    table = torch.arange(20.0).view(4, 5)
    owner_Q = torch.tensor([0, 4, 2, 1])
    scores = Scores(table, table + 100)
    for row, gone in enumerate(owner_Q.tolist()):
        left = [5.0 * row + column for column in range(5) if column != gone]
        assert without(scores, owner_Q).frame_QV[row].tolist() == left
    some, place_Q = smaller_gallery(scores, owner_Q, 3, seed=0)
    for row in range(4):
        drawn = some.frame_QV[row].tolist()
        assert drawn[int(place_Q[row])] == table[row, owner_Q[row]].item()
        assert len(set(drawn)) == 3 and set(drawn) <= set(table[row].tolist())
        assert (some.clip_QV[row] - some.frame_QV[row]).tolist() == [100] * 3


def padded_tokens(lengths: list[int], longest: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    """Token t of query q is the number 10 q + t + 1; padding is 0."""
    tokens = torch.zeros(len(lengths), longest, 1)
    for query, length in enumerate(lengths):
        tokens[query, :length, 0] = 10 * query + 1 + torch.arange(length)
    return tokens, torch.tensor(lengths)


@pytest.mark.parametrize("how", list(Corruption))
def test_corrupted_tokens(how):
    tokens, lengths = padded_tokens([7, 4, 1, 0, 5])
    before = tokens.clone()
    found, found_lengths = corrupt_tokens(tokens, lengths, how, torch.Generator().manual_seed(1))
    assert torch.equal(tokens, before)
    for query, length in enumerate(lengths.tolist()):
        mine = before[query, :length, 0].tolist()
        now = found[query, : int(found_lengths[query]), 0].tolist()
        assert (found[query, int(found_lengths[query]) :] == 0).all()
        if how is Corruption.SHUFFLED:
            assert sorted(now) == mine
        elif how is Corruption.DROPPED:
            assert len(now) == length - (round(length / 2) if length > 1 else 0)
            assert now == [token for token in mine if token in now]
        else:
            changed = [old != new for old, new in zip(mine, now, strict=True)]
            assert sum(changed) <= max(1, round(length / 2)) and all(token > 0 for token in now)
    if how is Corruption.SHUFFLED:
        assert not torch.equal(found, before)


def test_corrupted_captions():
    rng = np.random.default_rng(0)
    caption = "a lady slowly lifts a kettle in the garden"
    words = caption.split()
    assert sorted(corrupt_caption(caption, Corruption.SHUFFLED, rng).split()) == sorted(words)
    kept = corrupt_caption(caption, Corruption.DROPPED, rng).split()
    assert len(kept) == len(words) - round(len(words) / 2) and set(kept) <= set(words)
    misspelled = corrupt_caption(caption, Corruption.MISSPELLED, rng).split()
    assert list(map(len, misspelled)) == list(map(len, words))
    assert (
        0 < sum(one != other for one, other in zip(words, misspelled, strict=True)) <= round(len(words) / 2)
    )
    assert corrupt_caption("dog", Corruption.DROPPED, rng) == "dog"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A store of 40 training videos and a run that held a quarter of them out."""
    folder = tmp_path_factory.mktemp("uncertainty")
    store = tiny_world(folder / "store", videos=40)
    train(store, tiny_settings(held_out=0.25, epochs=1), folder / "run", options=QUIET)
    return folder, store


def test_training_leaves_a_calibration_that_never_saw_the_test_split(world):
    folder, store = world
    checkpoint = load_checkpoint(folder / "run" / "best")
    stored = read_calibration(checkpoint.extras[EXTRA], checkpoint.digest)
    assert stored is not None and stored.videos == 10
    held = calibration_split(store, Protocol.HONEST, 0.25, seed=0)
    splits = choose_splits(store, Protocol.HONEST, 0.25, seed=0)
    assert held is not None and stored.queries == len(held.queries)
    for used in (splits.fit, splits.report):
        assert not np.isin(held.videos, used.videos).any()
    bank = FeatureBank(store, "cpu", splits=[held])  # of the held-out videos alone, not the run's own bank
    assert calibrate(folder / "run" / "best", checkpoint, bank, held) == stored


def test_kinds_are_learned_where_they_were_counted(tmp_path):
    """What others of the training videos fit may fit one alone of those that were held out."""
    store = tiny_world(tmp_path / "store", videos=40)
    held = choose_splits(store, Protocol.HONEST, 0.25, seed=0).calibrate
    assert held is not None and np.isin(held.videos, store.split("train").videos).all(), "val is too small"
    fits_QV = fitting_videos(store, held)
    for query, row_V in zip(held.queries, fits_QV, strict=True):
        others = set(store.also_fits.get(int(query), ())) & set(held.videos.tolist())
        assert set(held.videos[row_V.numpy()].tolist()) == others
    assert fits_QV.any()

    plant(tmp_path / "large", PlantSettings(videos=4, val_videos=60, test_videos=4))
    large = Store.open(tmp_path / "large")
    splits = choose_splits(large, Protocol.HONEST, 0.5, seed=0)
    assert splits.calibrate is not None and set(splits.calibrate.videos) == set(large.split("val").videos)
    assert set(splits.select.videos) <= set(large.split("train").videos)


def test_the_published_protocol_calibrates_on_val_or_not_at_all(world):
    _, store = world
    val = calibration_split(store, Protocol.PUBLISHED, 0.25, seed=0)
    assert val is not None and not np.isin(val.videos, store.split("test").videos).any()

    class OneSplit:
        splits = ("train", "val", "test")

        def split(self, name):
            return store.split("test")

    assert calibration_split(OneSplit(), Protocol.PUBLISHED, 0.25, seed=0) is None


def test_the_whole_evaluation(world):
    folder, store = world
    (run,) = find_runs(folder / "run")
    found = run_uncertainty(
        run,
        store,
        "test",
        torch.device("cpu"),
        other=store,
        reader_of=planted_reader,
        abstain_below=0.1,
        repeats=20,
        passes=2,
    )
    figures, details = found["uncertainty"], found["uncertainty_details"]
    assert set(figures) == {"confidence"} | BASELINES
    for of_one in figures.values():
        assert set(of_one) == {"aurc", "auroc_top1", "auroc_top10", "ece"}
        for estimate_ in of_one.values():
            assert set(estimate_) == {"value", "low", "high"}
    assert json.loads(json.dumps(found, allow_nan=False)).keys() == found.keys()
    tasks = {"unanswerable", "dropped", "shuffled", "misspelled", "other_collection"}
    assert set(details["hard_queries"]["auroc"]) == tasks
    assert details["hard_queries"]["corrupted"] == "words"
    # Its own queries as those of another collection: nothing to tell apart.
    assert details["hard_queries"]["auroc"]["other_collection"]["vacuity"]["value"] == pytest.approx(0.5)
    assert set(details["advantage"]) == BASELINES
    assert sum(sum(row) for row in details["kinds"]["agreement"]["confusion"]) == details["queries"]
    said = details["gallery_sizes"][-1]
    assert said["videos"] == details["videos"] and said["right"] == pytest.approx(details["top1"])
    advantage = details["advantage"]["top1_score"]["auroc_top1"]["value"]
    difference = figures["confidence"]["auroc_top1"]["value"] - figures["top1_score"]["auroc_top1"]["value"]
    assert advantage == pytest.approx(difference)
    assert 0 <= details["abstention"]["answered"] <= 1


def test_dropout_that_drops_nothing_always_agrees(world):
    folder, store = world
    checkpoint = load_checkpoint(folder / "run" / "best")
    for module in checkpoint.model.modules():
        if hasattr(module, "dropout_rate"):
            module.dropout_rate = 0.0
    calibration = read_calibration(checkpoint.extras[EXTRA], checkpoint.digest)
    assert calibration is not None
    asked = answer_split(checkpoint, FeatureBank(store), store.split("test"), calibration, passes=2, seed=0)
    assert (asked.top1["dropout_agreement"] == 1).all()


def test_the_command(world, tmp_path):
    folder, _ = world
    target = tmp_path / "found.json"
    command = [
        "evaluate",
        str(folder / "run"),
        "--uncertainty",
        "--abstain-below",
        "0.05",
        "--json",
        str(target),
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    found = json.loads(target.read_text())
    assert set(found["uncertainty"]) == {"confidence"} | BASELINES
    assert found["uncertainty"] == found["reports"][0]["uncertainty"]
    assert (
        "our confidence" in result.output
        and "Answering only at a probability of 0.05 or more" in result.output
    )
    same = holmes.evaluate(folder / "run", uncertainty=True, abstain_below=0.05)
    assert json.loads(json.dumps(same.to_dict())) == found
    assert same.uncertainty is not None and same.reports[0].uncertainty == same.uncertainty
    compile_tables(tmp_path, *(grid.latex() for grid in confidence_tables(found)))


def test_another_models_calibration_is_refused(world, tmp_path):
    folder, store = world
    checkpoint = load_checkpoint(folder / "run" / "best")
    with torch.no_grad():
        next(checkpoint.model.parameters()).add_(1)
    save_checkpoint(tmp_path / "other", checkpoint.model, checkpoint.config, checkpoint.extras)
    (other,) = find_runs(tmp_path / "other")
    with pytest.raises(HolmesError, match="belongs to another model"):
        run_uncertainty(other, store, "test", torch.device("cpu"))
    update_extras(tmp_path / "other", {EXTRA: None})
    with pytest.raises(HolmesError, match="no calibration"):
        run_uncertainty(other, store, "test", torch.device("cpu"))


def test_a_lone_split_needs_no_reader(world):
    """Without held-out videos the baselines stay what they are; without a reader tokens are corrupted."""
    folder, store = world
    checkpoint = load_checkpoint(folder / "run" / "best")
    calibration = read_calibration(checkpoint.extras[EXTRA], checkpoint.digest)
    assert calibration is not None
    found = evaluate_uncertainty(
        checkpoint, FeatureBank(store), store.split("test"), calibration, repeats=5, passes=1
    )
    assert "ece" in found["uncertainty"]["confidence"] and "ece" not in found["uncertainty"]["margin"]
    assert found["uncertainty_details"]["hard_queries"]["corrupted"] == "tokens"


def test_softmax_entropy_is_a_fair_baseline_in_galleries_of_other_sizes():
    """A curve fitted in a gallery of 20 videos must not call every query of 100 hopeless."""
    generator = torch.Generator().manual_seed(0)

    def scored(queries: int, videos: int) -> tuple[np.ndarray, np.ndarray]:
        score_QV = 0.3 * torch.rand(queries, videos, generator=generator)
        owner_Q = torch.randint(0, videos, (queries,), generator=generator)
        score_QV[torch.arange(queries), owner_Q] += 0.25 * torch.rand(queries, generator=generator)
        return negative_entropy(score_QV).numpy(), (score_QV.argmax(1) == owner_Q).numpy()

    (held_Q, held_right_Q), (test_Q, right_Q) = scored(400, 20), scored(800, 100)
    raw = logistic_curve(held_Q, held_right_Q)(test_Q)
    name = "softmax_entropy"
    fair = logistic_curve(comparable(name, held_Q), held_right_Q)(comparable(name, test_Q))
    assert raw.mean() < 0.15 and 0.35 < right_Q.mean() < 0.5
    assert abs(fair.mean() - right_Q.mean()) < 0.1
    assert calibration_error(fair, right_Q, once(800))[0] < calibration_error(raw, right_Q, once(800))[0] / 2
    np.testing.assert_array_equal(np.argsort(comparable(name, test_Q)), np.argsort(test_Q))
    assert comparable("margin", test_Q) is test_Q
