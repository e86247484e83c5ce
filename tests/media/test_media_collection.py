from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
from holmes.data.pack import Source, pack
from holmes.errors import HolmesError
from holmes.media.collection import VideoCaption, write_collection
from holmes.media.extraction import extract
from holmes.media.feature_folder import FeatureFolder, video_id
from holmes.worlds.rendered import RenderSettings, render_world, world_captions
from mean_colour import MeanColour, seconds_of_gray


class Letters:
    """A toy text encoder: a token per word, with its length and first letter."""

    name, digest, width = "letters", "a" * 64, 2

    def tokens(self, sentences: list[str]) -> list[np.ndarray]:
        return [np.array([[len(w), ord(w[0])] for w in s.split()], np.float32) for s in sentences]

    def sentences(self, sentences: list[str]) -> np.ndarray:
        return np.stack([rows.mean(axis=0) for rows in self.tokens(sentences)])


def test_a_collection_packs_into_a_store_that_knows_it_all(tmp_path: Path) -> None:
    films = [seconds_of_gray(tmp_path / f"{n}.mp4", 40 * n, 80, 120) for n in (1, 2, 3)]
    features = extract(films, tmp_path / "features", MeanColour()).folder
    one, two, three = (video_id(film) for film in films)
    sentences = [
        VideoCaption(one, "a dark gray", "train", (0.0, 1.0), "precise"),
        VideoCaption(one, "gray\nall over ", "train", (1.0, 2.0), "polysemous", (two, three)),
        VideoCaption(two, "a lighter gray", "train"),
        VideoCaption(three, "something gray", "test", (0.0, 3.0), "underdetermined"),
    ]
    write_collection(tmp_path / "collection", "mine", features, sentences, Letters())
    store = pack(Source(tmp_path / "collection", rows_per_second=features.rate), tmp_path / "store")
    assert store.info.collection == "mine" and store.info.visual == "mean"
    assert store.captions == ["a dark gray", "gray all over", "a lighter gray", "something gray"]
    assert [store.video_ids[v] for v in store.owner_Q] == [one, one, two, three]
    np.testing.assert_allclose(store.moments_Q2[:2], [[0, 1 / 3], [1 / 3, 2 / 3]], atol=0.03)
    assert np.isnan(store.moments_Q2[2]).all()
    assert store.kinds_Q.tolist() == [0, 1, -1, 2]
    assert store.also_fits == {1: [store.video_ids.index(two), store.video_ids.index(three)]}
    np.testing.assert_allclose(store.durations_V, 3.0, atol=0.01)
    assert len(store.split("val").queries) == len(store.split("test").queries) == 1
    assert np.diff(store.token_offsets).tolist() == [3, 3, 3, 2]


def test_what_cannot_become_a_collection_is_refused_whole(tmp_path: Path) -> None:
    film = seconds_of_gray(tmp_path / "film.mp4", 40)
    features = extract([film], tmp_path / "features", MeanColour()).folder
    with pytest.raises(HolmesError, match="lacks 1 captioned videos, such as 'other'"):
        write_collection(tmp_path / "c", "mine", features, [VideoCaption("other", "x", "train")], Letters())
    with pytest.raises(HolmesError, match="no sentences"):
        write_collection(tmp_path / "c", "mine", features, [], Letters())
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    "wrong,reason",
    [
        ({"split": "trian"}, "'trian'; did you mean 'train'"),
        ({"text": " \n "}, "is blank"),
        ({"kind": "precize"}, "'precize'; did you mean 'precise'"),
        ({"moment": (19.0, -3.0)}, "moment .19.0, -3.0. of 'gray'"),
        ({"moment": (-1.0, 3.0)}, "moment"),
        ({"moment": (float("nan"), 3.0)}, "moment"),
        ({"moment": (1.0, float("inf"))}, "moment"),
    ],
)
def test_a_wrong_sentence_among_right_ones_is_named(tmp_path: Path, wrong: dict, reason: str) -> None:
    film = seconds_of_gray(tmp_path / "film.mp4", 40)
    features = extract([film], tmp_path / "features", MeanColour()).folder
    right = VideoCaption(video_id(film), "gray", "train", (0.0, 1.0))
    with pytest.raises(HolmesError, match=reason) as caught:
        write_collection(tmp_path / "c", "mine", features, [right, replace(right, **wrong)], Letters())
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features", "film.mp4"]


def test_the_rendered_world_becomes_a_collection(tmp_path: Path) -> None:
    world = render_world(tmp_path / "world", RenderSettings(train_videos=2, test_videos=2, size=(64, 48)))
    extract([world.folder], tmp_path / "features", MeanColour())
    features = FeatureFolder.open(tmp_path / "features")
    sentences = world_captions(world, features)
    assert [s.text for s in sentences] == [c.text for c in world.captions]
    write_collection(tmp_path / "collection", "rendered", features, sentences, Letters())
    store = pack(Source(tmp_path / "collection", rows_per_second=features.rate), tmp_path / "store")
    for query, caption in enumerate(world.captions):
        video = store.owner_Q[query]
        start, end = store.moments_Q2[query] * store.durations_V[video]
        assert (start, end) == pytest.approx((caption.start, caption.end), abs=0.3)
        assert store.kinds_Q[query] == caption.kind
