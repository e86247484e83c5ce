"""Other methods of the field: their sizes and settings, and their parts against loops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from holmes.config.presets import PRESETS, preset
from holmes.config.schema import to_dict
from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.build import build_model
from holmes.encoders.checkpoint import load_checkpoint
from holmes.encoders.gaussian import gaussian_weights, gaussian_windows
from holmes.encoders.slim_blocks import SlimBlocks
from holmes.errors import HolmesError
from holmes.evaluation.runs.evaluate import evaluate_run
from holmes.evaluation.runs.folders import find_runs
from holmes.evaluation.scoring import encode_split, score_all
from holmes.losses.diversity import pooled_diversity_loss
from holmes.records import QueryEmbedding, VideoEmbedding
from holmes.report.experiments import ablation_tables
from holmes.similarity import guided_cosine_and_dot, window_means
from holmes.training.experiments import Study, ablate
from holmes.training.logbook import read_metrics
from holmes.training.run import train
from small import assert_close, embedded, features, tiny_config
from tex import compile_tables
from tiny_runs import QUIET, tiny_settings, tiny_world

METHODS = ("ms_sl", "gmmformer", "gmmformer_v2", "hlformer", "dreamprvr")
UNUSED_PLACES = 96 * 384  # they have 128 positions for 32 clips
FIXED = {
    "hlformer": 1,
    "dreamprvr": 10 * 384,
}  # a curvature, a table of times
# The sizes of the released models.
PUBLISHED = {
    "ms_sl_tvr": 4_852_992,
    "ms_sl_activitynet": 3_370_752,
    "ms_sl_charades": 3_370_752,
    "gmmformer_tvr": 12_848_256,
    "gmmformer_activitynet": 11_366_016,
    "gmmformer_charades": 11_366_016,
    "gmmformer_v2_tvr": 32_273_440,
    "gmmformer_v2_activitynet": 30_791_200,
    "gmmformer_v2_charades": 30_791_200,
    "hlformer_tvr": 29_911_484,
    "hlformer_activitynet": 28_429_244,
    "hlformer_charades": 28_429_244,
    "dreamprvr_tvr": 37_622_976,
    "dreamprvr_activitynet": 36_139_200,
    "dreamprvr_charades": 36_139_968,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return tiny_world(tmp_path_factory.mktemp("baselines") / "world")


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones_less_the_dead(name):
    with torch.device("meta"):
        model = build_model(preset(name).model)
    fixed = FIXED.get(preset(name).model.encoder, 0)
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name] - UNUSED_PLACES - fixed


@pytest.mark.parametrize(
    "name, expected",
    [
        ("ms_sl_tvr", {"margin": 0.1, "dropout": 0.1, "learning_rate": 2.5e-4, "diversity": 0}),
        ("ms_sl_activitynet", {"margin": 0.2, "dropout": 0.1, "contrastive_clip": 0.02}),
        ("ms_sl_charades", {"margin": 0.2, "learning_rate": 2.5e-4, "contrastive_frame": 0.04}),
        ("gmmformer_tvr", {"margin": 0.1, "learning_rate": 3e-4, "diversity": 1e-3, "warm_up_epochs": 30}),
        ("gmmformer_activitynet", {"dropout": 0.2, "diversity": 0.015, "diversity_margin": 0.2}),
        ("gmmformer_charades", {"dropout": 0.15, "contrastive_frame": 0.02, "warm_up_epochs": 100}),
        ("gmmformer_v2_tvr", {"mixing_temperature": 0.09, "extra": ("matching:0.09",), "diversity": 8e-5}),
        ("gmmformer_v2_activitynet", {"extra": ("matching:0.11",), "dropout": 0.31, "diversity": 0.003}),
        ("gmmformer_v2_charades", {"extra": ("matching:0.1",), "dropout": 0.25, "learning_rate": 2e-4}),
        ("hlformer_tvr", {"extra": ("entailment:0.001",), "contrastive_clip": 0.05, "margin": 0.1}),
        ("hlformer_activitynet", {"mixing_temperature": 0.6, "dropout": 0.31, "diversity_margin": 0.2}),
        ("hlformer_charades", {"extra": ("entailment:0.001",), "learning_rate": 2e-4, "margin": 0.2}),
        ("dreamprvr_tvr", {"registers": 8, "text_temperature": 0.09, "epochs": 150, "dropout": 0.2}),
        ("dreamprvr_activitynet", {"registers": 4, "text_temperature": 0.08, "epochs": 100}),
        ("dreamprvr_charades", {"registers": 6, "text_temperature": 0.01, "epochs": 100}),
    ],
)
def test_settings_are_those_of_the_releases(name, expected):
    sections = to_dict(PRESETS[name]())
    flat = {key: value for part in sections.values() if isinstance(part, dict) for key, value in part.items()}
    assert {key: flat[key] for key in expected} == expected
    weights = {"ms_sl_charades": 0.5, "dreamprvr_tvr": 0.5} | dict.fromkeys(
        ("dreamprvr_activitynet", "dreamprvr_charades"), 0.6
    )
    patience = 20 if name == "dreamprvr_tvr" else 10
    expected = (0, 0, weights.get(name, 0.7), patience)
    assert (flat["inter"], flat["intra"], flat["clip_weight"], flat["patience"]) == expected
    assert name in PUBLISHED
    assert sections["name"] == name


@pytest.mark.parametrize("width", [None, 0.5, 5.0])
def test_a_slim_block_is_attention_projection_and_norm(width):
    """Against loops over positions and heads, with a Gaussian window as GMMFormer defines it."""
    torch.manual_seed(0)
    block = SlimBlocks([width], 7, 8, 2, 0.0).eval()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(2, 7, 8)
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    (wq, wk, wv), (bq, bk, bv) = block.attention_input.weight_KGIO[:, 0], block.attention_input.bias_KGO[:, 0]
    twin = np.zeros((2, 7, 8))
    for n in range(2):
        q, k, v = (x[n] @ w + b for w, b in ((wq, bq), (wk, bk), (wv, bv)))
        context = torch.zeros(7, 8)
        for h in (slice(0, 4), slice(4, 8)):
            for i in range(7):
                logits = []
                weights = [1.0] * 7
                if width is not None:
                    sigma = width / 9
                    weights = [math.exp(-((j / 6 - i / 7) ** 2) / (2 * sigma**2)) for j in range(7)]
                    weights = [weight / max(weights) for weight in weights]
                for j in range(7):
                    logit = (q[i, h] @ k[j, h]).item() / 2 * weights[j]
                    logits.append(logit + (0 if mask[n, j] else -10000))
                share = torch.tensor(logits).softmax(0)
                context[i, h] = share @ v[:, h]
        out = context @ block.project.weight_GIO[0] + block.project.bias_GO[0]
        normal = F.layer_norm(x[n] + out, (8,), block.norm.weight_GD[0], block.norm.bias_GD[0])
        twin[n] = normal.detach()
    assert_close(block(x, mask).detach(), twin, 2e-5)


def test_windows_are_the_means_of_all_runs_of_clips():
    torch.manual_seed(0)  # the differences of sums are 1.7e-6 off at worst, and with most draws below 1e-6
    clips = torch.randn(2, 32, 5)
    windows = window_means(clips)
    twin = [clips[:, i : i + n].mean(1) for n in range(1, 33) for i in range(33 - n)]
    assert windows.shape[1] == 528
    assert_close(windows, torch.stack(twin, 1), 2e-6)
    assert torch.equal(windows[:, :32], clips) or (windows[:, :32] - clips).abs().max() < 1e-6


def test_ms_sl_gathers_frames_through_every_window():
    config = tiny_config(encoder="ms_sl", gaussian_widths=(None,))
    torch.manual_seed(1)
    model = build_model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    given = features(config)
    with torch.no_grad():
        video = model.encode_videos(given.frames_VFD, given.frame_lengths_V, given.clips_VCD)
        mask = torch.arange(config.frames) < given.frame_lengths_V[:, None]
        frames = model.frame_branch(given.frames_VFD, mask)
        clips = model.clip_branch(given.clips_VCD)
    twin = np.zeros(video.frames_VFD.shape)
    for v, length in enumerate(given.frame_lengths_V.tolist()):
        some = frames[v, :length]
        for w, window in enumerate(window_means(clips)[v]):
            share = (some @ model.key.weight.T @ window).softmax(0)
            twin[v, w] = (share @ (some @ model.value.weight.T)).detach()
    assert_close(video.frames_VFD, twin, 1e-5)
    noisy = given.frames_VFD + 9 * (~mask).unsqueeze(-1)  # what stands in padded places changes nothing
    with torch.no_grad():
        again = model.encode_videos(noisy, given.frame_lengths_V, given.clips_VCD)
    assert_close(again.frames_VFD, video.frames_VFD, 1e-5)


def test_guided_scores_take_the_frame_vector_of_the_best_window():
    torch.manual_seed(0)
    query, clips, frames = torch.randn(4, 6), torch.randn(3, 10, 6), torch.randn(3, 10, 6)
    video = VideoEmbedding(frames, torch.ones(3, 10, dtype=torch.bool), clips)
    cosine, dot = guided_cosine_and_dot(QueryEmbedding(query), video)
    for q in range(4):
        for v in range(3):
            similarity = [F.cosine_similarity(query[q], clip, dim=0).item() for clip in clips[v]]
            key = int(np.argmax(similarity))
            assert cosine.clip_QV[q, v].item() == pytest.approx(similarity[key], abs=1e-6)
            expected = F.cosine_similarity(query[q], frames[v, key], dim=0).item()
            assert cosine.frame_QV[q, v].item() == pytest.approx(expected, abs=1e-6)
            assert dot.frame_QV[q, v].item() == pytest.approx((query[q] @ frames[v, key]).item(), abs=1e-5)
            assert dot.clip_QV[q, v].item() == pytest.approx((clips[v] @ query[q]).max().item(), abs=1e-5)


def test_evaluation_scores_ms_sl_as_training_does(store, monkeypatch):
    from holmes.evaluation import scoring

    monkeypatch.setattr(scoring, "VIDEO_GROUP", 3)
    monkeypatch.setattr(scoring, "SCORE_ELEMENTS", 3 * 528 * 4)
    sizes = {"frames": store.info.frames, "clips": store.info.clips, "video_width": 16, "text_width": 12}
    config = tiny_settings("ms_sl_tvr", gaussian_widths="none", **sizes)
    torch.manual_seed(0)
    model, split, bank = build_model(config.model), store.split("test"), FeatureBank(store)
    encoded = encode_split(model, bank, split)
    ours = score_all(encoded)
    model.eval()
    with torch.no_grad():
        video = model.encode_videos(*bank.videos(torch.from_numpy(split.videos)))
        query = model.encode_queries(*bank.queries(torch.from_numpy(split.queries)))
        cosine, _ = guided_cosine_and_dot(query, video)
    assert_close(ours.clip_QV, cosine.clip_QV, 1e-5)
    assert_close(ours.frame_QV, cosine.frame_QV, 1e-4)


def test_pooled_diversity_by_loops():
    world = embedded(3, (3, 1, 2), spare_queries=2, spare_slots=1)
    query_VMD, mask_VM = world.owners.by_video(world.query.query_QD, 3)
    total = 0.0
    for group in world.groups:
        unit = group / np.linalg.norm(group, axis=1, keepdims=True)
        for i in range(len(unit)):
            partners = [math.exp(32 * (unit[i] @ unit[j] + 0.15)) for j in range(len(unit)) if j != i]
            total += math.log(1 + sum(partners))
    loss = pooled_diversity_loss(query_VMD, mask_VM, 0.15)
    assert loss.item() == pytest.approx(total / 6, rel=2e-5)
    query_VMD = query_VMD.clone().requires_grad_()
    pooled_diversity_loss(query_VMD, mask_VM, 0.15).backward()
    assert torch.isfinite(query_VMD.grad).all()


def test_the_windows_of_gmmformer_follow_the_longest_video_of_a_batch():
    """As if the batch were padded to it; a longer video beside a short one changes the short one."""
    config = tiny_config(encoder="gmmformer", gaussian_widths=(None, 0.5, 5.0))
    torch.manual_seed(0)
    model = build_model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    frames, clips = torch.randn(3, config.frames, 10), torch.randn(3, config.clips, 10)

    def whole(*lengths: int) -> torch.Tensor:
        some = len(lengths)
        with torch.no_grad():
            return model.encode_videos(frames[:some], torch.tensor(lengths), clips[:some]).frames_VFD

    for longest in (1, 2, 5, config.frames):
        exact = gaussian_weights(config.gaussian_widths, longest)
        assert_close(
            gaussian_windows(config.gaussian_widths, torch.tensor(longest), config.frames)[
                :, :longest, :longest
            ],
            exact,
            1e-7,
        )
    assert_close(whole(4, 6)[0], whole(4, 6, 3)[0], 1e-6)
    assert (whole(4, 6)[0] - whole(4, 12)[0]).abs().max() > 1e-4


def test_a_loss_that_an_encoder_cannot_serve_is_refused():
    with pytest.raises(HolmesError, match="the loss 'entailment' needs the encoder 'hlformer'; this is"):
        preset("gmmformer_tvr").with_changes(extra="entailment:0.1")
    assert preset("tvr").with_changes(extra="matching:0.1").loss.extra == ("matching:0.1",)


@pytest.mark.parametrize("method", METHODS)
def test_a_baseline_trains_and_is_evaluated_with_and_without_evidence(method, store, tmp_path):
    for name, changes in {"plain": {}, "evidence": {"loss.inter": 0.2, "loss.intra": 0.1}}.items():
        config = tiny_settings(f"{method}_tvr", epochs=2, warm_up_epochs=1, **changes)
        result = train(store, config, tmp_path / name, options=QUIET)
        report = evaluate_run(find_runs(tmp_path / name)[0], store, "test", torch.device("cpu")).report
        assert report["metrics"] == pytest.approx(result.metrics)
        frames = method not in ("ms_sl", "gmmformer")  # the others have no vector per frame
        assert "clip_hit@1" in report["localisation"] and ("frame_hit@1" in report["localisation"]) == frames
        assert 0 < report["aligned_mass"]["flexible"] < 100


def test_the_table_of_baselines_is_one_call(store, tmp_path):
    study = Study(store, tiny_settings("small", epochs=2, warm_up_epochs=1), tmp_path, options=QUIET)
    rows = ablate(study, "baselines")
    assert [row["title"] for row in rows] == [
        "Holmes", "MS-SL", "MS-SL + evidence", "GMMFormer", "GMMFormer + evidence",
        "GMMFormerV2", "GMMFormerV2 + evidence", "HLFormer", "HLFormer + evidence",
        "DreamPRVR", "DreamPRVR + evidence", "base objective (L_sim + L_div)",
    ]  # fmt: skip
    assert (tmp_path / "gmmformer+evidence-seed0" / "result.json").exists()
    logged = [epoch["speed"]["train_seconds"] for epoch in read_metrics(tmp_path / "ms_sl-seed0")]
    assert rows[1]["seconds_per_epoch"] == pytest.approx(sum(logged) / 2), "the median of two epochs"
    trained = load_checkpoint(tmp_path / "ms_sl-seed0" / "best").model
    assert rows[1]["parameters"] == sum(parameter.numel() for parameter in trained.parameters())

    named = replace(study, config=replace(study.config, name="tvr"))
    table, costs = ablation_tables(named, rows)
    assert costs.columns == ["", "million parameters", "s/epoch"] and len(costs.rows) == len(rows)
    names = [row[0] for row in table.rows]
    seconds = f"{rows[1]['seconds_per_epoch']:.3f}"
    assert costs.rows[1] == ["MS-SL", f"{rows[1]['parameters'] / 1e6:.2f}", seconds]
    published = table.rows[names.index("MS-SL") + 4]
    assert published == ["published †", "13.5", "32.1", "43.4", "83.4", "172.4"]
    after = names[names.index("MS-SL + evidence") :]
    fitting = ["  any video that fits", "  95%"]
    assert after[1:5] == ["  95%", *fitting, "GMMFormer"], "no paper has printed figures of it"
    compile_tables(tmp_path, table.latex(), costs.latex())


@pytest.mark.parametrize("method", METHODS)
def test_half_precision_encoders_give_nearly_the_same(method):
    """As on a GPU, where encoders run in bf16."""
    widths = {"ms_sl": (None,)}.get(method, (None, 0.5, 1.0, 5.0))
    config = tiny_config(encoder=method, gaussian_widths=widths, lorentz_width=16)
    torch.manual_seed(0)
    model, given = build_model(config).eval(), features(config)
    with torch.no_grad():
        whole = model.encode_videos(given.frames_VFD, given.frame_lengths_V, given.clips_VCD)
        with torch.autocast("cpu", torch.bfloat16):
            half = model.encode_videos(given.frames_VFD, given.frame_lengths_V, given.clips_VCD)
            query = model.encode_queries(given.tokens_QTD, given.token_lengths_Q)
    for name in ("frames_VFD", "clips_VCD"):
        ours, theirs = getattr(half, name).float(), getattr(whole, name)
        assert torch.isfinite(ours).all()
        assert F.cosine_similarity(ours, theirs, dim=-1).min() > 0.98
    assert torch.isfinite(query.query_QD).all()
