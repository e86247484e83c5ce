"""An exported index gives our scores in a vector database's own search."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("qdrant_client")
from qdrant_client import QdrantClient

import holmes
from holmes.cli.main import main
from holmes.cluster.vector_database import export_to_qdrant, query_vectors
from holmes.errors import HolmesError
from holmes.index import embedders
from holmes.index.index_store import IndexStore
from holmes.index.scan import make_probes
from index_fakes import FakeJoint
from shard_fakes import SENTENCES, make_index


def test_a_vector_database_finds_the_same_videos_with_the_same_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embedders, "load_visual", lambda name, **how: FakeJoint())
    path = make_index(tmp_path, videos=20)
    words = ["index", "export", path, "--to", "qdrant", "--url", tmp_path / "database"]
    monkeypatch.setattr(sys, "argv", ["holmes", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    index = holmes.open_index(path, device="cpu")
    parts = len(index.gallery)
    assert f"22 videos as {parts} points of 'holmes'" in capsys.readouterr().err and parts > 22
    client = QdrantClient(path=str(tmp_path / "database"))
    for sentence in SENTENCES:
        probes = make_probes(index.embedder.queries([sentence]), 0.4, 0.6)
        asked = query_vectors(probes, 0)
        assert asked.shape == (2, index.embedder.width + 2)
        points = client.query_points("holmes", query=asked.tolist(), limit=parts).points
        best: dict[str, float] = {}
        for point in points:
            best.setdefault(point.payload["video"], point.score - len(asked))
        hits = index.search(sentence, top=22).hits
        assert set(best) == {hit.video for hit in hits}
        np.testing.assert_allclose([best[hit.video] for hit in hits], [hit.score for hit in hits], atol=1e-5)
    with pytest.raises(HolmesError, match="there is a collection 'holmes' already"):
        export_to_qdrant(IndexStore.open(path), client, "holmes")
    client.close()
