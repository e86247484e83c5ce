"""Figures by group, moments, alignments and partitions, against loops over single queries."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holmes.config.presets import preset
from holmes.config.schema import ScoreConfig
from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders import linear
from holmes.encoders.model import HolmesModel
from holmes.evaluation import recall, scoring
from holmes.evaluation.grid import Grid
from holmes.evaluation.intervals import over_seeds
from holmes.evaluation.literature import PUBLISHED, published_figures
from holmes.evaluation.localisation import aligned_mass, localisation, overlap, positions_inside
from holmes.evaluation.recall import Fits
from holmes.evaluation.scoring import Encoded, encode_split, score_all
from holmes.evaluation.split_report import (
    agreement,
    breakdowns,
    by_kind,
    by_length,
    by_moment_ratio,
    evaluated_split,
    partition,
    recall_by,
)
from holmes.evaluation.tables import results_grid
from holmes.moments import grow_moments
from holmes.records import QueryKind, Scores
from holmes.results import METRICS, Interval
from holmes.similarity import reference_scores
from holmes.training.setup import build_alignments, build_identifier, build_objective, fit_to_store
from small import embedded, tensor
from tiny_runs import tiny_settings, tiny_world


@dataclass(frozen=True)
class World:
    store: Store
    bank: FeatureBank
    model: HolmesModel


@pytest.fixture(scope="module", params=[False, True], ids=["single", "dual"])
def world(request, tmp_path_factory) -> World:
    store = tiny_world(tmp_path_factory.mktemp("evaluation") / "world", frames=128, clips=32)
    torch.manual_seed(0)
    config = fit_to_store(tiny_settings(dual_query=request.param), store)
    return World(store, FeatureBank(store), HolmesModel(config.model))


def unit(vector):
    return vector / np.linalg.norm(vector)


# Scores


def test_evaluation_scores_as_the_reference_does(world):
    """At once, and with videos and queries in many small pieces."""
    split = world.store.split("test")
    frames, lengths, clips = world.bank.videos(torch.from_numpy(split.videos))
    model = world.model.eval()
    with torch.inference_mode():
        video = model.encode_videos(frames, lengths, clips)
        query = model.encode_queries(*world.bank.queries(torch.from_numpy(split.queries)))
        expected = reference_scores(query, video)
    once = score_all(encode_split(model, world.bank, split))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "VIDEO_GROUP", 3)
        patch.setattr(scoring, "SCORE_ELEMENTS", 1 << 10)
        for ours in (score_all(encode_split(model, world.bank, split)), once):
            torch.testing.assert_close(ours.frame_QV, expected.frame_QV, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(ours.clip_QV, expected.clip_QV, atol=1e-5, rtol=1e-5)


def test_evaluation_multiplies_as_training_does(world, monkeypatch):
    products, product = [], linear.product

    def watched(*inputs):
        products.append(1)
        return product(*inputs)

    monkeypatch.setattr(linear, "product", watched)
    encode_split(world.model, world.bank, world.store.split("test"))
    assert len(products) > 10


def test_both_ranks_come_from_one_encoding(world, monkeypatch):
    split, score = world.store.split("test"), ScoreConfig()
    owner = torch.from_numpy(split.owner)
    fits = Fits(torch.arange(3), (owner[:3] + 1) % len(split.videos))
    scores_QV = score_all(encode_split(world.model, world.bank, split)).combined(
        score.frame_weight, score.clip_weight
    )
    encoded = []
    monkeypatch.setattr(recall, "encode_split", lambda *given: encoded.append(1) or encode_split(*given))
    own_Q, fitting_Q = recall.both_ranks(world.model, world.bank, split, score, fits=fits)
    assert encoded == [1]
    assert torch.equal(own_Q, recall.rank_of_owner(scores_QV, owner))
    assert torch.equal(fitting_Q, recall.rank_of_fitting(scores_QV, owner, fits))
    assert not torch.equal(own_Q, fitting_Q)
    assert recall.both_ranks(world.model, world.bank, split, score)[1] is None


# Groups


def slow_recall(ranks):
    return {f"R@{k}": 100 * sum(rank <= k for rank in ranks) / len(ranks) for k in (1, 5, 10, 100)}


@given(st.lists(st.tuples(st.integers(1, 120), st.integers(-1, 2)), min_size=1, max_size=40))
def test_recall_by_kind_equals_a_loop(queries):
    ranks, kinds = [rank for rank, _ in queries], np.array([kind for _, kind in queries], np.int8)
    ours = recall_by(torch.tensor(ranks), by_kind(kinds))
    names = {0: "precise", 1: "polysemous", 2: "underdetermined"}
    assert set(ours) == {names[kind] for kind in set(kinds.tolist()) - {-1}}
    for kind, name in names.items():
        some = [rank for rank, other in queries if other == kind]
        if some:
            twin = slow_recall(some)
            assert ours[name] == pytest.approx({"queries": len(some), **twin, "SumR": sum(twin.values())})


def test_groups_by_length():
    captions = ["word " * count for count in (1, 5, 6, 10, 11, 15, 16, 20, 21, 40)]
    groups = {name: np.flatnonzero(member).tolist() for name, member in by_length(captions).items()}
    assert groups == {
        "1-5 words": [0, 1],
        "6-10 words": [2, 3],
        "11-15 words": [4, 5],
        "16-20 words": [6, 7],
        "21+ words": [8, 9],
    }
    assert list(by_length(["one two", "three"])) == ["1-5 words"], "empty groups are left out"


def test_groups_by_moment_ratio():
    """A bound belongs to the group below it, float32 or not; unknown moments to none."""
    bounds = [(0.1, 0.3), (0.7, 0.9), (0.1, 0.31), (0.5, 0.9), (0.0, 1.0), (0.15, 0.96), (math.nan, math.nan)]
    groups = by_moment_ratio(np.array(bounds, np.float32))
    assert {name: np.flatnonzero(member).tolist() for name, member in groups.items()} == {
        "(0, .2]": [0, 1],
        "(.2, .4]": [2, 3],
        "(.8, 1]": [4, 5],
    }


def test_unknown_things_are_left_out(world):
    split = world.store.split("test")
    ranks = torch.ones(len(split.queries), dtype=torch.long)
    assert set(breakdowns(ranks, world.store, split)) == {"kind", "length", "moment_ratio"}
    blind = Store.open(world.store.path)
    blind.kinds_Q = np.full_like(blind.kinds_Q, -1)
    blind.moments_Q2 = np.full_like(blind.moments_Q2, np.nan)
    assert set(breakdowns(ranks, blind, split)) == {"length"}


# Moments


def slow_hit(position, count, moment):
    """The centre of either lies in the other."""
    centre, middle = (position + 0.5) / count, (moment[0] + moment[1]) / 2
    return moment[0] <= centre <= moment[1] or position / count <= middle < (position + 1) / count


def slow_iou(one, other):
    cells = np.linspace(0, 1, 200_001)
    cells = (cells[1:] + cells[:-1]) / 2
    first, second = (((a <= cells) & (cells <= b)) for a, b in (one, other))
    return (first & second).sum() / (first | second).sum()


def with_noise_in_padding(encoded: Encoded) -> Encoded:
    videos = encoded.videos
    noise = 50 * torch.randn(videos.frames_VFD.shape, generator=torch.Generator().manual_seed(0))
    frames = torch.where(videos.frame_mask_VF.unsqueeze(-1), videos.frames_VFD, noise)
    return replace(encoded, videos=replace(videos, frames_VFD=frames))


def test_localisation_equals_a_loop(world):
    split = world.store.split("test")
    encoded = with_noise_in_padding(encode_split(world.model, world.bank, split))
    moments = world.store.moments_Q2[split.queries].copy()
    moments[3] = np.nan
    hits_clip, hits_frame, chance, overlaps = [], [], [], []
    for row, owner in enumerate(split.owner):
        if row == 3:
            continue
        query = encoded.queries.query_QD[row].numpy()
        clips = np.array([unit(query) @ unit(clip) for clip in encoded.videos.clips_VCD[owner].numpy()])
        mask = encoded.videos.frame_mask_VF[owner].numpy()
        frames = encoded.videos.frames_VFD[owner].numpy()[mask]
        if encoded.queries.tokens_QTD is None:
            along = [query @ frame for frame in frames]
        else:
            tokens = encoded.queries.tokens_QTD[row].numpy()
            weights = encoded.queries.token_weights_QT[row].numpy()
            along = [sum(w * (t @ frame) for w, t in zip(weights, tokens, strict=True)) for frame in frames]
        moment = moments[row].astype(float)
        hits_clip.append(slow_hit(int(clips.argmax()), 32, moment))
        hits_frame.append(slow_hit(int(np.argmax(along)), len(frames), moment))
        chance.append(np.mean([slow_hit(c, 32, moment) for c in range(32)]))
        edges = np.arange(33) / 32
        best = grow_moments(clips, np.stack([edges[:-1], edges[1:]], 1), most=1)[0]
        overlaps.append(slow_iou((best.start, best.end), moment))
    assert localisation(encoded, moments) == pytest.approx(
        {
            "queries": len(split.queries) - 1,
            "clip_hit@1": 100 * np.mean(hits_clip),
            "frame_hit@1": 100 * np.mean(hits_frame),
            "chance_hit@1": 100 * np.mean(chance),
            "mIoU": 100 * np.mean(overlaps),
            "IoU>=0.5": 100 * np.mean(np.array(overlaps) >= 0.5 - 1e-4),
        },
        abs=1e-2,
    )


def test_a_model_that_knows_finds_every_moment(world):
    """Clips inside the moment say what the query says, all others the opposite."""
    split = world.store.split("test")
    encoded = encode_split(world.model, world.bank, split)
    first = split.query_offsets[:-1]  # one query of each video
    moments = world.store.moments_Q2[split.queries[first]].astype(float)
    query = encoded.queries.query_QD[first]
    inside = torch.from_numpy(positions_inside(moments, 32))
    clips = torch.where(inside.unsqueeze(-1), query.unsqueeze(1), -query.unsqueeze(1))
    knowing = Encoded(
        replace(encoded.videos, clips_VCD=clips),
        replace(encoded.queries, query_QD=query, tokens_QTD=None, token_weights_QT=None),
        torch.arange(len(first)),
    )
    found = localisation(knowing, moments)
    assert found is not None and found["clip_hit@1"] == 100
    assert found["mIoU"] > 70, "up to the rounding to clips"
    mass = aligned_mass(knowing, moments, build_alignments(tiny_settings().alignment))
    assert mass is not None and mass["best_clip"] == pytest.approx(100) and mass["softmax"] > 99


def test_a_moment_shorter_than_a_clip_can_be_hit():
    inside = positions_inside(np.array([[0.501, 0.502], [0.0, 1.0], [0.0, 0.26]]), 4)
    assert inside.tolist() == [
        [False, False, True, False],
        [True, True, True, True],
        [True, False, False, False],
    ]


@given(st.tuples(*[st.floats(0, 1)] * 4))
def test_overlap_of_intervals(bounds):
    a, b, c, d = bounds
    one, other = sorted((a, b + 0.01)), sorted((c, d + 0.01))
    shared = max(0.0, min(one[1], other[1]) - max(one[0], other[0]))
    union = (one[1] - one[0]) + (other[1] - other[0]) - shared
    ours = overlap(np.array([one]), np.array([other]))
    if union:
        assert ours[0] == pytest.approx(shared / union)


def test_nothing_is_said_of_unknown_moments(world):
    encoded = encode_split(world.model, world.bank, world.store.split("test"))
    unknown = np.full((len(encoded.owner_Q), 2), np.nan, np.float32)
    assert localisation(encoded, unknown) is None
    assert aligned_mass(encoded, unknown, {}) is None


# Alignments


def test_aligned_mass_equals_a_loop(world):
    split = world.store.split("test")
    encoded = encode_split(world.model, world.bank, split)
    moments = world.store.moments_Q2[split.queries].copy()
    moments[5] = np.nan
    alignments = build_alignments(tiny_settings().alignment)
    ours = aligned_mass(encoded, moments, alignments)
    assert ours is not None
    masses: dict[str, list[float]] = {name: [] for name in alignments}
    even = []
    for video in range(len(split.videos)):
        rows = np.flatnonzero(split.owner == video)
        cosine = np.array(
            [
                [unit(encoded.queries.query_QD[row].numpy()) @ unit(clip) for clip in clips]
                for row in rows
                for clips in [encoded.videos.clips_VCD[video].numpy()]
            ]
        )
        scaled = (cosine - cosine.min()) / (cosine.max() - cosine.min() + 1e-8)
        everyone = torch.ones(1, len(rows), dtype=torch.bool)
        for name, align in alignments.items():
            plan = align(tensor(scaled[None]), everyone)[0].numpy()
            for place, row in enumerate(rows):
                if row != 5:
                    inside = [slow_hit(c, 32, moments[row].astype(float)) for c in range(32)]
                    masses[name].append(sum(plan[place][inside]))
                    if name == "plain":
                        even.append(np.mean(inside))
    twin = {name: 100 * np.mean(mass) for name, mass in masses.items()}
    assert ours == pytest.approx({"queries": len(even), "even": 100 * np.mean(even), **twin}, abs=1e-3)


# Partitions


def test_partition_equals_one_batch_at_a_time(world):
    """In one batch of all videos, and in batches of 3 of which the last reaches back."""
    config = fit_to_store(tiny_settings(), world.store)
    identify, split = build_identifier(config), world.store.split("test")
    encoded = encode_split(world.model, world.bank, split)
    cosine, owner = score_all(encoded), torch.from_numpy(split.owner)
    whole = partition(cosine, owner, identify, batch_videos=128, seed=4)
    assert whole.tolist() == identify(cosine, owner).tolist()
    videos = len(split.videos)
    order = np.random.default_rng(4).permutation(videos)
    twin = np.full(len(owner), -1)
    for start in (0, 3, videos - 3):
        members = order[start : start + 3].tolist()
        rows = [row for row in range(len(owner)) if split.owner[row] in members]
        some = Scores(cosine.frame_QV[rows][:, members], cosine.clip_QV[rows][:, members])
        kinds = identify(some, torch.tensor([members.index(split.owner[row]) for row in rows]))
        twin[rows] = kinds.numpy()
    assert videos == 8
    assert partition(cosine, owner, identify, batch_videos=3, seed=4).tolist() == twin.tolist()


def test_the_identifier_is_that_of_training():
    batch = embedded(seed=3, spare_queries=0)
    config = tiny_settings()
    objective = build_objective(config)
    cosine, _ = objective.score(batch.query, batch.video)
    ours = build_identifier(config)(cosine, batch.owners.owner_Q)
    assert ours.tolist() == objective.identify_queries(cosine, batch.owners).tolist()


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 2)), min_size=1, max_size=40))
def test_agreement_equals_counting(pairs):
    known, found = (np.array(side) for side in zip(*pairs, strict=True))
    ours = agreement(found, known.astype(np.int8))
    pairs = [pair for pair in pairs if pair[0] >= 0]
    if not pairs:
        assert ours is None
        return
    scores = []
    for kind in QueryKind:
        right = sum(k == f == kind for k, f in pairs)
        either = sum((k == kind) + (f == kind) for k, f in pairs)
        scores.append(2 * right / either if either else 0.0)
        assert ours["confusion"][kind] == [
            sum(pair == (kind, other) for pair in pairs) for other in QueryKind
        ]
    assert ours["F1"] == pytest.approx(scores)
    assert ours["macro_F1"] == pytest.approx(np.mean(scores))
    assert ours["accuracy"] == pytest.approx(np.mean([k == f for k, f in pairs]))


def test_chance_agrees_as_little_as_drawing_lots():
    rng = np.random.default_rng(0)
    known, found = rng.choice(3, 60_000, p=(0.6, 0.3, 0.1)), rng.choice(3, 60_000, p=(0.2, 0.5, 0.3))
    ours = agreement(found, known.astype(np.int8))
    assert ours is not None
    assert ours["macro_F1"] == pytest.approx(ours["chance_macro_F1"], abs=0.01)


# The whole report, and tables


def test_a_report_holds_everything_that_is_known(world):
    split, config = world.store.split("test"), tiny_settings()
    report = evaluated_split(
        world.model,
        world.bank,
        split,
        config.score,
        build_identifier(config),
        build_alignments(config.alignment),
    ).report
    assert list(report) == [
        *("split", "videos", "queries", "metrics", "intervals", "metrics_fitting", "intervals_fitting", "by"),
        *("localisation", "aligned_mass", "partition"),
    ]
    for groups in report["by"].values():
        assert sum(group["queries"] for group in groups.values()) == len(split.queries)
        mean = sum(group["queries"] * group["R@1"] for group in groups.values()) / len(split.queries)
        assert mean == pytest.approx(report["metrics"]["R@1"])


def test_published_sums_are_sums():
    """A slip in copying a figure would show: sums agree up to the rounding of their four parts."""
    checked = 0
    for known in (PUBLISHED["activitynet"], PUBLISHED["charades"], PUBLISHED["tvr"]):
        assert list(known.ablation) == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12]
        assert known.ablation[0] == known.methods[known.ablated]
        for *parts, total in [*known.methods.values(), *known.ablation.values()]:
            if None not in parts:
                assert total == pytest.approx(sum(parts), abs=0.21)
                checked += 1
    assert checked == 54
    sums = {
        name: (known.methods["Holmes"][-1], known.methods["TRACE"][-1])
        for name, known in PUBLISHED.items()
        if "Holmes" in known.methods
    }
    assert sums["activitynet"] == (156.8, 157.3) and sums["charades"] == (80.6, 81.1)
    assert sums["tvr"] == sums["tvr_dual"] == (194.2, 194.6)
    assert published_figures("small") is None and published_figures("small_plus") is None
    assert published_figures("tvr_plus") is PUBLISHED["tvr"]
    assert published_figures("hlformer_tvr") is published_figures("tvr")


def test_figures_on_clip_features_stand_apart():
    """A preset for CLIP features is compared with what others reached with them, and only with that."""
    known = published_figures("activitynet_clip_l14")
    sums = {name: total for name, (*_, total) in known.methods.items()}
    assert sums == {
        "zero-shot, CLIP-L/14": 172.9,
        "TF-PRVR, CLIP-L/14": 193.9,
        "GMMFormerV2, CLIP-L/14": 196.9,
        "MSC-PRVR, CLIP-L/14": 202.1,
    }
    figures = dict.fromkeys(METRICS, 10.0)
    rows = results_grid("t", {"ours": figures}, known, "activitynet").rows
    assert rows[1] == ["published on ActivityNet Captions with CLIP-L/14 features"]
    assert [row[0] for row in rows[2:4]] == ["zero-shot, CLIP-L/14", "TF-PRVR, CLIP-L/14"], (
        "no epoch selected"
    )
    assert rows[4][0] == "GMMFormerV2, CLIP-L/14 †"
    empty = results_grid("t", {"ours": figures}, published_figures("tvr_clip_b32"), "tvr")
    assert empty.rows[-1] == ["no figure is published on TVR with CLIP-B/32 features"]
    assert not empty.notes, "no row is marked"
    assert preset("tvr_clip_b32").model.video_width == preset("tvr_clip_b32").model.text_width == 512
    assert preset("charades_clip_l14").model.text_width == 768


def test_deviation_needs_two_runs():
    assert over_seeds([{"R@1": 3.0}]) == {"R@1": Interval(3.0)}
    (found,) = over_seeds([{"R@1": 1.0}, {"R@1": 3.0}]).values()
    assert found.to_summary() == {"mean": 2.0, "deviation": pytest.approx(2**0.5), "low": None, "high": None}


def test_tables_say_what_is_not_comparable():
    figures = {name: 10.0 for name in ("R@1", "R@5", "R@10", "R@100", "SumR")}
    grid = results_grid("t", {"ours": figures}, published_figures("tvr"), "tvr")
    assert grid.rows[0] == ["ours", *["10.0"] * 5]
    assert ["TRACE †", "–", "–", "–", "–", "194.6"] in grid.rows
    assert not any("not comparable" in note for note in grid.notes)
    foreign = results_grid("t", {"ours": figures}, published_figures("tvr"), "planted")
    assert any("'planted', not TVR" in note for note in foreign.notes)
    own = results_grid("t", {"ours": figures}, None, "planted")
    assert len(own.rows) == 1 and "No published figures" in own.notes[0] and len(own.notes) == 1
    marked = results_grid("t", {"ours, published, 2 seeds": figures}, None, "planted")
    assert marked.rows[0][0].endswith("†") and marked.notes[1].startswith("† The best epoch")


def test_a_grid_in_markdown():
    grid = Grid("title", ["", "R@1"], [["ours", "1.0"], ["block"], ["theirs", "2.0"]], ["a note"])
    table = "|  | R@1 |\n| --- | ---: |\n| ours | 1.0 |\n| *block* |  |\n| theirs | 2.0 |"
    assert grid.markdown() == f"**title**\n\n{table}\n\na note\n"
