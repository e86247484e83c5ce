"""From a trained run to its page: what the figures get is what the model and the data say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import psi
from typer.testing import CliRunner

from holmes.base.progress import reported_to
from holmes.cli.main import app
from holmes.config.presets import PRESETS, preset
from holmes.config.schema import ScoreConfig, with_changes
from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.encoders.checkpoint import load_checkpoint
from holmes.encoders.model import HolmesModel
from holmes.errors import HolmesError
from holmes.evaluation.recall import rank_of_owner
from holmes.evaluation.scoring import encode_split, score_all
from holmes.records import Scores
from holmes.report.kinds import kind_examples, sample_batch
from holmes.report.moments import Seen, timelines, track, transport, typical_video
from holmes.report.run import changed_settings, one_run, report_data
from holmes.training.run import RunOptions, train
from holmes.training.setup import build_identifier, build_objective
from holmes.worlds import planted

CONFIG = with_changes(
    preset("small"),
    {"width": 16, "epochs": 2, "warm_up_epochs": 1, "batch_videos": 8, "gaussian_widths": "none,4"},
)
SETTINGS = planted.PlantSettings(
    videos=16, val_videos=2, test_videos=12, difficulty=0.2, video_width=16, text_width=16
)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("report")
    planted.plant(root / "store", SETTINGS)
    for name, config in (("run", CONFIG), ("without", with_changes(CONFIG, {"intra": 0}))):
        train(root / "store", config, root / name, options=RunOptions(device="cpu", progress=False))
    return root


@pytest.fixture(scope="module")
def store(world) -> Store:
    return Store.open(world / "store")


@pytest.fixture(scope="module")
def split(store) -> Split:
    return store.split("test")


@torch.inference_mode()
def look(model: HolmesModel, bank: FeatureBank, split: Split, weights: ScoreConfig) -> Seen:
    """A split as a model sees it."""
    encoded = encode_split(model, bank, split)
    scores = score_all(encoded)
    score_QV = scores.combined(weights.frame_weight, weights.clip_weight)
    return Seen(encoded, scores, score_QV, rank_of_owner(score_QV, encoded.owner_Q).numpy(), weights)


@pytest.fixture(scope="module")
def seen(world, store, split) -> Seen:
    checkpoint = load_checkpoint(world / "run" / "best")
    return look(checkpoint.model, FeatureBank(store, splits=[split]), split, checkpoint.config.score)


@pytest.fixture(scope="module")
def objective():
    return build_objective(CONFIG)


def test_the_planes_quantities_are_the_papers(seen, objective, split):
    """Written from the equations in float64, on the same similarities."""
    batch = sample_batch(seen, objective, batch_videos=7)
    videos, queries = batch.videos_V.numpy(), batch.queries_Q.numpy()
    assert len(set(videos)) == 7
    np.testing.assert_array_equal(queries, np.flatnonzero(np.isin(split.owner, videos)))
    own = np.array([list(videos).index(split.owner[query]) for query in queries])
    for branch, similarity_QV in ((batch.frame, seen.scores.frame_QV), (batch.clip, seen.scores.clip_QV)):
        s = similarity_QV.double().numpy()[queries][:, videos]
        alpha = np.exp(np.tanh(s) / CONFIG.evidence.inter_temperature) + 1
        total = alpha.sum(1, keepdims=True)
        entropy = (alpha / total * (psi(total + 1) - psi(alpha + 1))).sum(1)
        np.testing.assert_allclose(branch.uncertainty_Q, 7 / total[:, 0], rtol=1e-4)
        np.testing.assert_allclose(branch.entropy_Q, entropy, rtol=1e-3)
        np.testing.assert_allclose(branch.consistency_Q, s[range(len(s)), own].clip(0), rtol=1e-5)
        correct = s.argmax(1) == own
        ceiling = min(branch.uncertainty_Q[correct].max(), 0.7)
        floor = max(branch.consistency_Q[correct].min(), 0.3)
        assert branch.uncertainty_ceiling == pytest.approx(ceiling, rel=1e-5)
        assert branch.consistency_floor == pytest.approx(floor, rel=1e-5)


def test_the_batch_is_judged_as_in_training(seen, objective):
    batch = sample_batch(seen, objective, batch_videos=8)
    rows, columns = batch.queries_Q, batch.videos_V
    cosine = Scores(seen.scores.frame_QV[rows][:, columns], seen.scores.clip_QV[rows][:, columns])
    owner_Q = torch.searchsorted(columns, seen.encoded.owner_Q[rows])
    np.testing.assert_array_equal(batch.kinds_Q, build_identifier(CONFIG)(cosine, owner_Q))


def test_the_cut_along_entropy_parts_the_candidates(seen, objective):
    batch = sample_batch(seen, objective, batch_videos=12)
    for branch in (batch.frame, batch.clip):
        candidate_Q = (branch.uncertainty_Q <= branch.uncertainty_ceiling) & (
            branch.consistency_Q >= branch.consistency_floor
        )
        assert branch.entropy_cut is not None
        below_Q = branch.entropy_Q < branch.entropy_cut
        np.testing.assert_array_equal(branch.kinds_Q == 0, candidate_Q & below_Q)
    everyone = replace(objective, refine=lambda entropy, candidate, mask: candidate)
    assert sample_batch(seen, everyone, batch_videos=12).clip.entropy_cut is None


def test_examples_show_the_best_videos_and_judge_them_rightly(seen, objective, store, split):
    batch = sample_batch(seen, objective, batch_videos=12)
    examples = kind_examples(seen, batch, store, split)
    assert {example.kind for example in examples} == set(batch.kinds_Q)
    for example in examples:
        query = store.captions.index(example.caption, int(split.queries[0]))
        row = int(np.flatnonzero(split.queries == query)[0])
        scores = seen.score_QV[row].numpy()
        best = np.argsort(-scores, kind="stable")[:3]
        assert [found.video for found in example.found] == [store.video_ids[split.videos[v]] for v in best]
        np.testing.assert_allclose([found.score for found in example.found], scores[best])
        assert example.rank == (scores >= scores[split.owner[row]]).sum()
        for found, video in zip(example.found, split.videos[best], strict=True):
            if video == store.owner_Q[query]:
                assert found.verdict == "right" and found.moment == tuple(store.moments_Q2[query])
            else:
                fits = video in store.also_fits.get(query, [])
                assert found.verdict == ("fits" if fits else "wrong") and found.moment is None


def test_a_track_is_the_weighted_similarity_at_each_frame(seen, store, split):
    row, video = 5, 3
    encoded = seen.encoded
    frames = int(store.frame_offsets[split.videos[video] + 1] - store.frame_offsets[split.videos[video]])
    query_D = encoded.queries.query_QD[row].numpy()
    frame_F = encoded.videos.frames_VFD[video, :frames].numpy() @ query_D
    clip_C = encoded.videos.clips_VCD[video].numpy() @ query_D
    expected = [
        0.4 * frame_F[frame] + 0.6 * clip_C[int(32 * (frame + 0.5) / frames)] for frame in range(frames)
    ]
    found = track(seen, row, video)
    np.testing.assert_allclose(found.similarity_F, expected, rtol=1e-5, atol=1e-7)  # float32 sums near 0
    assert found.score == pytest.approx(0.4 * frame_F.max() + 0.6 * clip_C.max(), rel=1e-5)


def test_timelines_are_those_that_differ_most_least_and_in_the_middle(world, seen, store, split):
    other = load_checkpoint(world / "without" / "best")
    beside = look(other.model, FeatureBank(store, splits=[split]), split, other.config.score)

    def lead(one: Seen) -> np.ndarray:
        scores = one.score_QV.double().numpy()
        return np.array(
            [row[own] - np.delete(row, own).max() for row, own in zip(scores, split.owner, strict=True)]
        )

    leads_RQ = np.stack([lead(seen), lead(beside)])
    gain_Q = leads_RQ[0] - leads_RQ[1]
    alone_Q = np.array([int(query) not in store.also_fits for query in split.queries])
    ordered = np.sort(gain_Q[alone_Q])
    found = timelines([seen, beside], store, split)
    assert [one.why for one in found] == ["helped most", "typical", "hurt most"]
    gains = [ordered[-1], ordered[round((len(ordered) - 1) / 2)], ordered[0]]
    names = [store.video_ids[video] for video in split.videos]
    captions = np.array([store.captions[query] for query in split.queries])
    for one, expected in zip(found, gains, strict=True):
        own = names.index(one.own.name)
        (row,) = np.flatnonzero((captions == one.caption) & (split.owner == own))
        assert gain_Q[row] == pytest.approx(expected, abs=1e-6)
        troubled = (seen, beside)[leads_RQ[:, row].argmin()].score_QV[row].numpy().copy()
        troubled[own] = -1
        assert one.rival.name == names[troubled.argmax()]
        assert one.own.moment == tuple(store.moments_Q2[split.queries[row]]) and one.rival.moment is None
        assert one.own.seconds == store.durations_V[split.videos[own]]
    assert [one.why for one in timelines([seen], store, split)] == ["clear", "typical", "hard"]
    (chosen,) = timelines([seen], store, split, chosen=4)
    assert chosen.caption == store.captions[split.queries[4]]


def test_the_rival_is_that_of_the_run_in_trouble(seen, store, split):
    row, own = 4, int(split.owner[4])
    first, second = (own + 1) % 12, (own + 2) % 12

    def scored(rival: int, score: float) -> Seen:
        score_QV = torch.zeros_like(seen.score_QV)
        score_QV[row, own], score_QV[row, rival] = 0.5, score
        return replace(seen, score_QV=score_QV)

    for troubled, pair in (
        (first, [scored(first, 0.9), scored(second, 0.3)]),
        (second, [scored(first, 0.3), scored(second, 0.9)]),
    ):
        (found,) = timelines(pair, store, split, chosen=row)
        assert found.rival.name == store.video_ids[split.videos[troubled]]


def test_transport_keeps_its_marginals(seen, store, split):
    plans = transport(seen, store, split, CONFIG.alignment, video=2)
    queries = split.queries[split.owner == 2]
    assert list(plans.captions) == [store.captions[query] for query in queries]
    np.testing.assert_array_equal(plans.moments_M2, store.moments_Q2[queries])
    np.testing.assert_allclose(plans.plain_MC.sum(1), 1, rtol=1e-4)
    np.testing.assert_allclose(plans.flexible_MC.sum(1), 1, rtol=1e-4)
    # Standard transport spreads the queries evenly over clips, so columns of the plan are even too.
    np.testing.assert_allclose(plans.plain_MC.sum(0), len(queries) / 32, rtol=1e-2)
    assert plans.dustbin_C.mean() == pytest.approx(32 / (32 + len(queries)), rel=1e-3)
    assert ((plans.dustbin_C > 0) & (plans.dustbin_C < 1)).all()


def test_the_typical_video_lies_in_the_middle(seen, store, split):
    some = [1, 3, 4, 6, 9]

    def inside(video: int) -> float:
        plans = transport(seen, store, split, CONFIG.alignment, video)
        edges = np.arange(33) / 32
        shares = []
        for (start, end), row in zip(plans.moments_M2, plans.flexible_MC, strict=True):
            covered = [max(0, min(end, edges[clip + 1]) - max(start, edges[clip])) * 32 for clip in range(32)]
            shares.append(np.dot(row, covered))
        return float(np.mean(shares))

    expected = sorted(some, key=inside)[2]
    assert typical_video(seen, store, split, CONFIG.alignment, some) == expected


def test_unknown_names_are_refused_in_one_line(world):
    """Before anything is evaluated."""
    reported = partial(report_data, [one_run(world / "run")], None, "test", device_name="cpu")
    with pytest.raises(HolmesError, match="no video 'nowhere'; it has 'planted_test00000'"):
        reported(video="nowhere", query=None)
    with pytest.raises(HolmesError, match="no query 'nothing'; it has 'planted_test00000#enc#0'"):
        reported(video=None, query="nothing")


def run_report(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["report", *map(str, arguments), "--device", "cpu"])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_the_command_writes_a_page_and_figures(world, tmp_path, monkeypatch):
    monkeypatch.setattr("holmes.report.figures.page.data_uri", lambda figure: "data:image/svg+xml,")
    before = sorted(path.name for path in (world / "run").iterdir())
    out = run_report(
        world / "run", "--compare", world / "without", "--out", tmp_path / "page.html",
        "--figures", tmp_path / "figures", "--video", "planted_test00003",
        "--query", "planted_test00001#enc#2",
    )  # fmt: skip
    assert out.strip() == str(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    for words in ("planted_test00003", "with L_intra", "this run, honest", "Left: recall on the split"):
        assert words in html
    assert "Left out" not in html and not re.search(r"https?:", html)
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    figures = ("progress", "losses", "recall", "plane", "examples", "timeline", "transport")
    assert names == {f"{name}.{suffix}" for name in figures for suffix in ("svg", "pdf")}
    assert sorted(path.name for path in (world / "run").iterdir()) == before


def test_progress_is_reported_in_the_order_of_the_work(world, tmp_path, monkeypatch):
    steps: list[str] = []
    monkeypatch.setattr("holmes.report.figures.page.data_uri", lambda figure: "data:image/svg+xml,")
    monkeypatch.setattr("holmes.cli.report.say", lambda line: steps.append(line.split()[0]))

    def report(what: str, done: int, total: int) -> None:
        steps.append(f"{what} {done}/{total}")

    with reported_to(report):
        run_report(world / "run", "--out", tmp_path / "page.html")
    assert steps[:2] == ["evaluating", "measuring the confidence 0/8"], "which this tiny run is too small for"
    pictures = int(steps[-1].split("/")[1])
    assert pictures and steps[2:] == [f"drawing {done}/{pictures}" for done in range(pictures + 1)]


def test_the_page_lists_changed_settings_and_repeats_warnings(world, store, tmp_path, monkeypatch):
    """A preset's name alone would hide that stage 2 never ran. Confidence is left out where that is asked."""
    monkeypatch.setattr("holmes.report.figures.page.data_uri", lambda figure: "data:image/svg+xml,")
    short = with_changes(CONFIG, {"epochs": 1, "warm_up_epochs": 5})
    train(store, short, tmp_path / "short", options=RunOptions(device="cpu", progress=False))
    run_report(tmp_path / "short", "--no-confidence", "--out", tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    usual = PRESETS[CONFIG.name]().training
    assert f"training.epochs = 1 ({usual.epochs})" in html
    assert f"training.warm_up_epochs = 5 ({usual.warm_up_epochs})" in html
    assert "model.video_width =" not in html, "the widths are the store's"
    assert "stage 2 is not reached: stage 1 takes 5 epochs (warm_up_epochs) of 1" in html
    assert "it was not asked for (--no-confidence)" in html
    assert changed_settings(PRESETS[CONFIG.name]()) == ()


def test_a_store_without_moments_and_kinds_and_a_lone_checkpoint(world, tmp_path, monkeypatch):
    """The page is made all the same, beside the checkpoint, and says what is missing."""
    whole = planted.generate.catalogue

    def bare(plans, captions):
        known = whole(plans, captions)
        queries = len(known.captions)
        return replace(
            known, moments_Q2=np.full((queries, 2), np.nan, np.float32),
            durations_V=np.full(len(known.video_ids), np.nan, np.float32),
            kinds_Q=np.full(queries, -1, np.int8), also_fits={},
        )  # fmt: skip

    monkeypatch.setattr(planted.generate, "catalogue", bare)
    monkeypatch.setattr("holmes.report.figures.page.data_uri", lambda figure: "data:image/svg+xml,")
    planted.plant(tmp_path / "bare", SETTINGS)
    checkpoint = world / "run" / "best"
    run_report(checkpoint, "--store", tmp_path / "bare", "--out", tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    for words in (
        "Left out: the run has no metrics.jsonl",
        "Left out: recall by kind of query and by moment / video",
        "Left out: the timelines",
        "not known to be trained on this store",
    ):
        assert words in html
    figures = re.findall(r'<figure id="(\w+)"', html)
    assert figures == ["plane", "examples", "transport"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{world}/run", "--split", "tset"], "did you mean 'test'"),
        (["{world}/nowhere"], "contains neither a run nor a checkpoint"),
        (["{world}"], "holds 2 runs .run, without.; a report is about one of them"),
        (["{world}/run", "--video", "x"], "no video 'x'"),
        (["{world}/run/best"], "give one with --store"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(world, tmp_path, arguments, message):
    filled = [argument.format(world=world) for argument in arguments]
    with pytest.raises(HolmesError, match=message):
        run_report(*filled, "--out", tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


WHEN_TORCH_LOADS = """
import os, sys
from holmes.cli.main import app

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Finder())
app(sys.argv[1:])
"""


@pytest.mark.parametrize("command", ["report", "evaluate"])
@pytest.mark.parametrize(("given", "then"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_idle_threads_sleep_unless_the_environment_says_otherwise(command, given, then):
    """OpenMP reads it once, when torch is loaded."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if given is None else {"OMP_WAIT_POLICY": given}
    words = [sys.executable, "-c", WHEN_TORCH_LOADS, command, "nowhere"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == f"{then}\n", done.stderr
