"""The importer of published checkpoints: reads them, executes nothing."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import holmes
from holmes.base.files import read_json
from holmes.cli import main
from holmes.data.export import export_store
from holmes.data.pack import Source, pack
from holmes.data.pooling import query_tokens, video_clips, video_frames
from holmes.data.store import Store
from holmes.encoders.checkpoint import Checkpoint
from holmes.encoders.model import HolmesModel
from holmes.encoders.released import load_released, released_config, released_state
from holmes.errors import HolmesError
from holmes.index.embedders.loading import load_embedder
from holmes.records import FRAMES, TOKENS
from holmes.worlds.planted import PlantSettings, plant
from index_fakes import FILMS, FakeJoint, known_encoders, write_features

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name: str) -> tuple[dict[str, torch.Tensor], dict, np.lib.npyio.NpzFile]:
    """Published weights, published settings and what the model answers."""
    arrays = np.load(GOLDEN / f"{name}.npz", allow_pickle=False)
    state = {key[6:]: torch.from_numpy(arrays[key]) for key in arrays.files if key.startswith("state/")}
    return state, json.loads(str(arrays["config"])), arrays


@pytest.fixture
def easydict(monkeypatch):
    """A stand-in for the package that published settings were pickled with; it must not be needed to read."""

    class EasyDict(dict):
        """Attributes and items are the same, as in the real one."""

        def __init__(self, values):
            super().__init__()
            for name, value in values.items():
                setattr(self, name, value)

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            super().__setitem__(name, value)

    module = types.ModuleType("easydict")
    EasyDict.__module__, EasyDict.__qualname__ = "easydict", "EasyDict"
    module.EasyDict = EasyDict
    monkeypatch.setitem(sys.modules, "easydict", module)
    yield EasyDict
    assert "easydict" not in sys.modules


def save(path: Path, state, config, **options) -> Path:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([parameter], lr=1e-3)
    parameter.sum().backward()
    optimizer.step()
    saved = {
        "state_dict": state,
        "config": config,
        "epoch": 41,
        "model_val": np.float64(156.8),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(saved, path, **options)
    return path


def check(path: Path, name: str) -> None:
    """Loaded as ours, it answers as the published model did."""
    loaded = load_released(path)
    _, settings, arrays = golden(name)
    lengths = torch.from_numpy(arrays["batch/query_mask"]).sum(1).long()
    with torch.no_grad():
        query = loaded.model.encode_queries(torch.from_numpy(arrays["batch/query_tokens"]), lengths)
    assert np.abs(query.query_QD.numpy() - arrays["out/query"]).max() < 1e-5
    assert loaded.extras["epoch"] == 41
    assert not loaded.model.training
    ours, (clip, frame, diversity, intra, inter) = loaded.config, settings["loss_factor"][:5]
    assert ours.evidence.inter_temperature == settings["edl_tau"]
    assert ours.evidence.intra_temperature == settings["edl_intra_video_tau"]
    assert ours.model.mixing_temperature == settings["sft_factor"]
    assert ours.model.dual_query == name.startswith("dual")
    assert ours.score.clip_weight == settings["clip_scale_w"]
    assert ours.score.frame_weight == settings["frame_scale_w"]
    assert (ours.loss.contrastive_clip, ours.loss.contrastive_frame) == (clip, frame)
    assert (ours.loss.diversity, ours.loss.intra, ours.loss.inter) == (diversity, intra, inter)
    assert (ours.loss.diversity_margin, ours.loss.diversity_scale) == tuple(settings["neg_factor"][:2])


@pytest.mark.parametrize("name", ["single_mixed", "dual_full"])
@pytest.mark.parametrize("zipped", [True, False])
def test_plain_settings(tmp_path, name, zipped):
    state, config, _ = golden(name)
    check(save(tmp_path / "m.ckpt", state, config, _use_new_zipfile_serialization=zipped), name)


def test_settings_in_a_namespace(tmp_path):
    state, config, _ = golden("single_mixed")
    check(save(tmp_path / "m.ckpt", state, argparse.Namespace(**config)), "single_mixed")


def test_settings_in_an_easydict(tmp_path, easydict):
    state, config, _ = golden("single_mixed")
    path = save(tmp_path / "m.ckpt", state, easydict(config | {"nested": easydict({"a": 1})}))
    del sys.modules["easydict"]
    check(path, "single_mixed")


def test_numpy_numbers_under_their_old_module_name(tmp_path):
    """Files written with NumPy 1 call it numpy.core."""
    state, config, _ = golden("single_mixed")
    new, old = save(tmp_path / "new.ckpt", state, config), tmp_path / "old.ckpt"
    with zipfile.ZipFile(new) as source, zipfile.ZipFile(old, "w") as target:
        for item in source.infolist():
            content = source.read(item)
            if item.filename.endswith("data.pkl"):
                assert b"numpy._core.multiarray" in content
                content = content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
            target.writestr(item.filename, content)
    check(old, "single_mixed")


def test_dead_parameters_are_left_out_and_everything_else_is_used():
    state, settings, _ = golden("dual_full")
    config = released_config(settings, state)
    ours = released_state(state, config.model)
    assert set(ours) == set(HolmesModel(config.model).state_dict())
    kept = sum(value.numel() for value in ours.values())
    width = state["weight_token"].numel()
    assert sum(value.numel() for value in state.values()) - kept == width + 96 * width


class Trap:
    """Unpickling this would make a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("place", ["config", "state_dict", "epoch", "model_val"])
@pytest.mark.parametrize("kind", ["zip", "legacy", "pickle"])
def test_a_malicious_file_is_refused_and_runs_nothing(tmp_path, place, kind):
    state, config, _ = golden("single_mixed")
    saved = {"state_dict": state, "config": config, "epoch": 1, "model_val": 0.0}
    saved[place] = Trap(tmp_path / "executed")
    path = tmp_path / "m.ckpt"
    if kind == "pickle":
        path.write_bytes(pickle.dumps({place: saved[place]}, protocol=2))
    else:
        torch.save(saved, path, _use_new_zipfile_serialization=kind == "zip")
    with pytest.raises(HolmesError, match=r"cannot be read safely: it asks for \w+\.mkdir") as refusal:
        load_released(path)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "executed").exists()


def test_the_trap_works(tmp_path):
    """Ordinary unpickling does run it, so the test above can fail."""
    pickle.loads(pickle.dumps(Trap(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()


def test_files_that_are_not_published_checkpoints(tmp_path):
    state, config, _ = golden("single_mixed")
    path = tmp_path / "m.ckpt"

    def refused(message: str) -> None:
        with pytest.raises(HolmesError, match=message) as refusal:
            load_released(path)
        assert "\n" not in str(refusal.value)

    refused("does not exist")
    path.write_bytes(b"")
    refused("cannot be read safely")
    path.write_bytes(b"some text that is not a checkpoint")
    refused("cannot be read safely")
    torch.save([1, 2, 3], path)
    refused("has no 'state_dict'")
    torch.save({"config": {}}, path)
    refused("has no 'state_dict'")
    torch.save({"state_dict": {}, "config": config}, path)
    refused("is not a published Holmes model")
    torch.save({"state_dict": 5, "config": config}, path)
    refused("is not a published Holmes model")
    torch.save({"state_dict": state, "config": 5}, path)
    refused("is not a published Holmes model")
    torch.save({"state_dict": dict(list(state.items())[:-1]), "config": config}, path)
    refused("is not a published Holmes model")
    torch.save({"state_dict": state | {"another.weight": torch.ones(2)}, "config": config}, path)
    refused("is not a published Holmes model")
    whole = save(path, state, config).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused("cannot be read safely")


def widened(state: dict[str, torch.Tensor], wide: int) -> dict[str, torch.Tensor]:
    """A state that declares a model this wide, of tensors that take no memory."""
    narrow = state["clip_input_proj.net.1.weight"].shape[0]
    return {
        name: torch.zeros(1).expand([wide if side == narrow else side for side in tensor.shape])
        for name, tensor in state.items()
    }


def test_tensors_that_share_one_number_are_refused(tmp_path):
    """A file of some KB would otherwise become a model of many GB."""
    state, config, _ = golden("single_mixed")
    path = tmp_path / "m.ckpt"
    for changes in (widened(state, 4096), {"query_input_proj.net.1.bias": torch.ones(1).expand(8)}):
        torch.save({"state_dict": state | changes, "config": config}, path)
        assert path.stat().st_size < 1 << 21
        with pytest.raises(HolmesError, match=r"stores 1 of the .* numbers that its shape declares"):
            load_released(path)


def test_compressed_tensors_are_refused(tmp_path):
    """Zeros in a ZIP shrink a thousandfold."""
    state, config, _ = golden("single_mixed")
    path = tmp_path / "m.ckpt"
    torch.save({"state_dict": state | {"weight_token": torch.zeros(1 << 20)}, "config": config}, path)
    with zipfile.ZipFile(path) as stored, zipfile.ZipFile(tmp_path / "z.ckpt", "w") as packed:
        for entry in stored.infolist():
            packed.writestr(entry.filename, stored.read(entry), zipfile.ZIP_DEFLATED)
    load_released(path)
    with pytest.raises(HolmesError, match="its parts are compressed"):
        load_released(tmp_path / "z.ckpt")


def test_a_width_that_one_tensor_claims_builds_no_model(tmp_path, monkeypatch):
    """Shapes are compared before a model of that width gets memory."""
    state, config, _ = golden("single_mixed")
    projection = "clip_input_proj.net.1.weight"
    state[projection] = torch.ones(1 << 16, state[projection].shape[1])
    path = save(tmp_path / "m.ckpt", state, config)
    built = []

    def build(config):
        built.append(torch.empty(0).device.type)
        return HolmesModel(config)

    monkeypatch.setattr("holmes.encoders.released.build_model", build)
    with pytest.raises(HolmesError, match=r"is not a published Holmes model: .* has shape"):
        load_released(path)
    assert built == ["meta"]


@pytest.fixture(scope="module")
def released_and_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A published file, and a planted world whose features are as wide and as many as it wants them."""
    folder = tmp_path_factory.mktemp("released")
    state, config, _ = golden("single_mixed")
    path = save(folder / "published.ckpt", state, config)
    widths = load_released(path).config.model
    settings = PlantSettings(
        videos=8, val_videos=2, test_videos=10, video_width=widths.video_width, text_width=widths.text_width
    )
    plant(folder / "world", settings)
    export_store(Store.open(folder / "world"), folder / "exported")
    pack(Source(folder / "exported", tokens=widths.tokens), folder / "store")
    return path, folder / "store"


def test_a_published_file_is_evaluated_from_the_command_line(
    released_and_store, monkeypatch, tmp_path, capsys
):
    path, store = released_and_store
    report = tmp_path / "found.json"
    arguments = ["holmes", "evaluate", str(path), str(store), "--device", "cpu", "--json", str(report)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert not ended.value.code
    assert "R@1" in capsys.readouterr().out
    (found,) = read_json(report)["reports"]
    assert found["checkpoint"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found["metrics"]["R@5"] == pytest.approx(slow_recall(path, store, 5))


@torch.no_grad()
def slow_recall(path: Path, store: Path, cutoff: int) -> float:
    """Every query against every video, one after the other, with cosines written out."""
    loaded, opened = load_released(path), Store.open(store)
    model, split, weights = loaded.model, opened.split("test"), loaded.config.score
    hits = []
    videos = []
    for video in split.videos:
        rows = torch.from_numpy(opened.frames[slice(*opened.frame_offsets[video : video + 2])]).float()
        padded = torch.zeros(1, loaded.config.model.frames, rows.shape[1])
        padded[0, : len(rows)] = rows
        clips = torch.from_numpy(opened.clips[video : video + 1]).float()
        seen = model.encode_videos(padded, torch.tensor([len(rows)]), clips)
        videos.append((seen.frames_VFD[0, : len(rows)], seen.clips_VCD[0]))
    for query, owner in zip(split.queries, split.owner, strict=True):
        tokens = torch.from_numpy(opened.tokens[slice(*opened.token_offsets[query : query + 2])]).float()
        asked = model.encode_queries(tokens[None], torch.tensor([len(tokens)])).query_QD[0]
        scores = [
            weights.frame_weight * max(torch.cosine_similarity(asked, row, 0) for row in frames)
            + weights.clip_weight * max(torch.cosine_similarity(asked, row, 0) for row in clips)
            for frames, clips in videos
        ]
        hits.append(sum(score >= scores[owner] for score in scores) <= cutoff)
    return 100 * sum(map(bool, hits)) / len(hits)


def test_a_published_file_opens_as_a_checkpoint(released_and_store):
    path, store = released_and_store
    loaded = holmes.load_checkpoint(path)
    assert (
        loaded.config.name == "published" and loaded.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    )
    assert holmes.evaluate(path, store, device="cpu").reports[0].queries > 10
    with pytest.raises(HolmesError, match="remembers no store"):
        holmes.evaluate(path)


def test_a_published_file_serves_an_index(tmp_path, monkeypatch):
    """Made as wide and as long as the fake encoder and an index want it; its encoders must be named."""
    state, config, _ = golden("single_mixed")
    short = save(tmp_path / "short.ckpt", state, config)
    with pytest.raises(HolmesError, match="takes 128 frames, 32 clips and 12 tokens; an index is made for"):
        load_embedder(str(short), "fake", "fake")
    generator = torch.Generator().manual_seed(0)
    positions = "query_pos_embed.position_embeddings.weight"
    for name, tensor in state.items():
        wanted = list(tensor.shape)
        if "_input_proj." in name and wanted[-1] in (20, 24):
            wanted[-1] = FakeJoint.width
        elif name == positions:
            wanted[0] = TOKENS
        if wanted != list(tensor.shape):
            state[name] = torch.randn(wanted, generator=generator)
    path = save(tmp_path / "published.ckpt", state, config)
    with pytest.raises(HolmesError, match=r"does not know which encoder .* --visual"):
        load_embedder(str(path))
    known_encoders(monkeypatch, FakeJoint())
    features = write_features(tmp_path / "features", FILMS)
    summary = holmes.build_index(
        tmp_path / "index", features.path, path, visual="fake", text="fake", device="cpu"
    )
    assert summary.added == len(FILMS)
    index = holmes.open_index(tmp_path / "index", device="cpu")
    assert index.describe().model["digest"] == hashlib.sha256(path.read_bytes()).hexdigest()
    (answer,) = index.search_many(["dog runs beach"], 3)
    model = load_released(path)
    for hit in answer.hits:
        rows = next(video for video in features if str(video.source) == hit.video).rows
        assert hit.score == pytest.approx(slow_score(model, rows, "dog runs beach"), abs=2e-3)


@torch.no_grad()
def slow_score(loaded: Checkpoint, rows: np.ndarray, sentence: str) -> float:
    """One video and one sentence through the network, with cosines written out."""
    frames = torch.from_numpy(video_frames(rows)).float()
    padded = torch.zeros(1, FRAMES, rows.shape[1])
    padded[0, : len(frames)] = frames
    clips = torch.from_numpy(video_clips(rows)).float()
    seen = loaded.model.encode_videos(padded, torch.tensor([len(frames)]), clips[None])
    tokens = torch.from_numpy(query_tokens(FakeJoint().tokens([sentence])[0])).float()
    asked = loaded.model.encode_queries(tokens[None], torch.tensor([len(tokens)])).query_QD[0]
    best_frame = max(torch.cosine_similarity(asked, row, 0) for row in seen.frames_VFD[0, : len(frames)])
    best_clip = max(torch.cosine_similarity(asked, row, 0) for row in seen.clips_VCD[0])
    weights = loaded.config.score
    return float(weights.frame_weight * best_frame + weights.clip_weight * best_clip)


def test_two_stores_are_one_too_many(released_and_store, monkeypatch, capsys):
    path, store = released_and_store
    monkeypatch.setattr(sys, "argv", ["holmes", "evaluate", str(path), str(store), "--store", "other"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2 and "two stores are named" in capsys.readouterr().err
