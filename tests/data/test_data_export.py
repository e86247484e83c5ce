"""A store written back in the field's layout, and packed again."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from data_layouts import Miniature, random_store
from holmes.data.check import check_store
from holmes.data.export import export_store
from holmes.data.pack import Source, pack
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.worlds.planted import PlantSettings, plant


def test_the_layout_is_the_field_s(tmp_path: Path) -> None:
    tiny = Miniature.make(tmp_path / "tiny").write()
    store = pack(Source(tiny.folder), tmp_path / "store")
    export_store(store, tmp_path / "out")
    for split, lines in tiny.captions.items():
        text = (tmp_path / f"out/TextData/tiny{split}.caption.txt").read_text()
        assert sorted(text.splitlines()) == sorted(lines)
    with h5py.File(tmp_path / "out/FeatureData/i3d/feature.hdf5") as file:
        assert set(file) == set(tiny.videos)
        assert file["d.d"].shape == (128, 6) and file["d.d"].dtype == np.float32
        np.testing.assert_array_equal(file["cat_a"], store.frames[slice(*store.frame_offsets[1:3])])
    with h5py.File(tmp_path / "out/TextData/roberta_tiny_query_feat.hdf5") as file:
        assert set(file) == set(tiny.tokens)
        np.testing.assert_array_equal(file["v_Cc#enc#1"], store.tokens[slice(*store.token_offsets[1:3])])
    assert not (tmp_path / "out/moments.json").exists()  # nothing is known, nothing is claimed


def test_a_planted_world_survives_the_round_trip(tmp_path: Path) -> None:
    settings = PlantSettings(videos=12, val_videos=4, test_videos=6, video_width=16, text_width=8)
    plant(tmp_path / "planted", settings)
    store = Store.open(tmp_path / "planted")
    export_store(store, tmp_path / "out")
    again = pack(Source(tmp_path / "out"), tmp_path / "again")
    check_store(again)
    assert again.video_ids == store.video_ids and again.query_ids == store.query_ids
    assert again.captions == store.captions and again.also_fits == store.also_fits
    assert again.kinds_Q.tolist() == store.kinds_Q.tolist()
    for name in store.splits:
        assert again.split(name).queries.tolist() == store.split(name).queries.tolist()
    np.testing.assert_allclose(again.moments_Q2, store.moments_Q2, atol=1e-4)
    np.testing.assert_allclose(again.frames, store.frames, atol=2e-3)
    np.testing.assert_allclose(again.tokens, store.tokens, atol=2e-3)


def test_an_existing_folder_is_kept(tmp_path: Path) -> None:
    store = random_store(tmp_path / "store")
    (tmp_path / "out").mkdir()
    with pytest.raises(HolmesError, match="already exists"):
        export_store(store, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
