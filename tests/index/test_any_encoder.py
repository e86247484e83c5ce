"""Any joint model says how sure it is: folders as `transformers` writes them, from the first command on.

The models are tiny and know nothing; what is tested is what a person is told, never which video comes first.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("av")
pytest.importorskip("onnxruntime")
pytest.importorskip("transformers")

from holmes.media.backbones import load_visual
from holmes.media.extraction import extract
from holmes.media.feature_folder import FeatureFolder
from media_files import video
from shell import Shell
from tiny_models import tiny_clip, tiny_siglip

SENTENCES = ["a dog runs", "snow", "two people are talking in a kitchen"]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setenv("COLUMNS", "200")
    return Shell(monkeypatch, capsys)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four films of noise, each with a tint of its own."""
    folder, rng = tmp_path_factory.mktemp("films"), np.random.default_rng(0)
    for number in range(4):
        tint = rng.integers(0, 200, 3)
        images = [np.uint8(tint + rng.integers(0, 56, (48, 64, 3))) for _ in range(8)]
        video(folder / f"film{number}.mp4", images, [second / 2 for second in range(8)])
    return folder


@pytest.fixture(scope="module")
def clip(films: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FeatureFolder]:
    """A CLIP folder, and the films' features."""
    folder = tmp_path_factory.mktemp("clip")
    tiny_clip(folder / "model")
    extract([films], folder / "features", load_visual(str(folder / "model")))
    return folder / "model", FeatureFolder.open(folder / "features")


def test_from_videos_to_an_answer_with_a_clip_folder(shell: Shell, films: Path, clip, tmp_path: Path) -> None:
    index = tmp_path / "index"
    code, _, said = shell("index", "build", index, films, "--model", clip[0], "--workers", "1")
    assert code == 0 and "4 videos added" in said
    assert not (index / "calibration.json").exists()
    check_no_probability(shell, index)

    captions = [f"{sentence},film{number}.mp4" for number in range(4) for sentence in SENTENCES * 2]
    (tmp_path / "captions.csv").write_text("\n".join(["sentence,video", *captions]))
    code, _, said = shell("index", "calibrate", index, tmp_path / "captions.csv")
    assert code == 0, said
    code, said, _ = shell("search", index, "snow", "--json")
    assert 0 <= json.loads(said)["diagnosis"]["probability"] <= 1


def test_a_siglip_folder_too(shell: Shell, films: Path, tmp_path: Path) -> None:
    model, features, index = tmp_path / "model", tmp_path / "features", tmp_path / "index"
    tiny_siglip(model)
    extract([films], features, load_visual(str(model)))
    assert shell("index", "build", index, features, "--model", model)[0] == 0
    check_no_probability(shell, index)


def check_no_probability(shell: Shell, index: Path) -> None:
    """Nothing is known of the model, so nothing is claimed."""
    for sentence in SENTENCES:
        code, said, _ = shell("search", index, sentence, "--json")
        answer = json.loads(said)
        assert code == 0 and answer["diagnosis"]["kind"] == "unknown"
        assert {hit["probability"] for hit in answer["hits"]} == {None}


def test_weights_in_a_pickle_are_refused_with_a_remedy_that_helps(
    shell: Shell, films: Path, tmp_path: Path
) -> None:
    folder, index = tmp_path / "model", tmp_path / "index"
    weights = tiny_clip(folder).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    code, _, said = shell("index", "build", index, films, "--model", folder)
    assert (code, len(said.splitlines())) == (2, 1) and not index.exists()
    assert f"{folder} keeps its weights in pytorch_model.bin" in said
    remedy = re.search(r'python -c "(.*)"', said)
    assert remedy is not None
    exec(remedy[1], {})  # as a person would who trusts the folder
    assert load_visual(str(folder)).width == 12


def test_a_model_that_has_moved_is_named_with_the_way_to_say_where_it_is(
    shell: Shell, clip, tmp_path: Path
) -> None:
    before, now, index = tmp_path / "before", tmp_path / "now", tmp_path / "index"
    shutil.copytree(clip[0], before)
    assert shell("index", "build", index, clip[1].path, "--model", before)[0] == 0
    _, answer, _ = shell("search", index, "snow", "--json")
    before.rename(now)
    (tmp_path / "captions.csv").write_text("sentence,video\n" + "snow,film0\n" * 20)
    for words in (
        ("search", index, "snow"),
        ("index", "add", index, clip[1].path),
        ("index", "sync", index, tmp_path),
        ("index", "calibrate", index, tmp_path / "captions.csv"),
    ):
        code, out, said = shell(*words)
        assert (code, out, len(said.splitlines())) == (2, "", 1)
        assert f"no longer in {before}; say with --model where it is now." in said
    code, again, _ = shell("search", index, "snow", "--json", "--model", now)
    assert (code, again) == (0, answer)
    tiny_clip(now, seed=1)
    code, _, said = shell("search", index, "snow", "--model", now)
    assert (code, len(said.splitlines())) == (2, 1) and "use that model, or build another index" in said
