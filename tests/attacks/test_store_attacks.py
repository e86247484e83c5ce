"""Stores that were damaged, or made to do harm, and what comes of using them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from by_hand import reseal
from data_layouts import random_store
from holmes.base.files import sha256_file
from holmes.base.manifests import FileEntry
from holmes.data.check import check_store
from holmes.data.export import export_store
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.evaluation.runs.folders import find_runs, store_of
from holmes.training.resume import read_result
from holmes.training.run import train
from killing import contents
from tiny_runs import QUIET, tiny_settings, tiny_world


def rewritten(store: Path, name: str, content: bytes) -> None:
    """A file replaced, its size and checksum in the manifest right."""
    (store / name).write_bytes(content)
    files = json.loads((store / "store.json").read_text())["files"]
    files[name] = {"bytes": len(content), "sha256": sha256_file(store / name)}
    reseal(store / "store.json", files=files)


@pytest.mark.parametrize("what", ["visual", "collection", "text"])
@pytest.mark.parametrize("name", ["../../escaped", "/escaped", "..", "a/../../b", "nul\0", "x" * 300])
def test_an_export_stays_in_its_folder(tmp_path: Path, what: str, name: str) -> None:
    random_store(tmp_path / "store")
    reseal(tmp_path / "store/store.json", **{what: name.replace("/escaped", f"{tmp_path}/escaped")})
    before = contents(tmp_path)
    if what == "collection" and name == "..":  # only the beginning of a name
        export_store(Store.open(tmp_path / "store"), tmp_path / "out")
        assert {path.parts[0] for path in map(Path, contents(tmp_path).keys() - before.keys())} == {"out"}
        return
    with pytest.raises(HolmesError, match=f"{what} is '.*', not "):
        export_store(Store.open(tmp_path / "store"), tmp_path / "out")
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "ids", [["/v0"], ["v0/"], [""], ["."], ["a b"], ["a\nb"], ["\udcff"], ["a", "a/b"], ["a", "a"]]
)
def test_ids_that_no_feature_folder_can_have(tmp_path: Path, ids: list[str]) -> None:
    store = random_store(tmp_path / "store")
    names = [*ids, *store.video_ids[len(ids) :]]
    rewritten(store.path, "videos.json", json.dumps(names).encode())
    with pytest.raises(HolmesError) as caught:
        export_store(Store.open(store.path), tmp_path / "out")
    assert "\n" not in str(caught.value) and sorted(p.name for p in tmp_path.iterdir()) == ["store"]


def test_every_flip_in_a_small_file_is_noticed_at_opening(tmp_path: Path) -> None:
    store = random_store(tmp_path / "store")
    large = {"frames.npy", "clips.npy", "tokens.npy"}
    chance = np.random.default_rng(0)
    for path in sorted(store.path.iterdir()):
        if path.name in large:
            continue
        sound = path.read_bytes()
        for at in chance.integers(0, len(sound), 20):
            flipped = bytearray(sound)
            flipped[at] ^= 1 << chance.integers(8)
            path.write_bytes(flipped)
            if path.name != "store.json" or sound[at : at + 1].strip():  # not the blanks of our own layout
                with pytest.raises(HolmesError):
                    Store.open(store.path)
        path.write_bytes(sound)
    Store.open(store.path)


@pytest.mark.parametrize("file", ["frames.npy", "clips.npy", "tokens.npy"])
@pytest.mark.parametrize("at", [3, 40, 200, -1])
def test_training_refuses_features_with_a_flipped_bit(tmp_path: Path, file: str, at: int) -> None:
    store = tiny_world(tmp_path / "world", videos=6)
    content = bytearray((store.path / file).read_bytes())
    content[at] ^= 1
    (store.path / file).write_bytes(content)
    settings = tiny_settings(epochs=2, warm_up_epochs=1, batch_videos=4)
    with pytest.raises(HolmesError, match=r"damaged|not finite|NaN"):
        train(store.path, settings, tmp_path / "run", options=QUIET)
    assert not (tmp_path / "run/result.json").exists() and not (tmp_path / "run/best").exists()
    with pytest.raises(HolmesError):
        check_store(Store.open(store.path))


LIES = {
    "shape": {"video_width": 7},
    "huge": {"video_width": 2**40, "frame_rows": 2**40},
    "videos": {"videos": 10},
    "queries": {"queries": 10**12},
    "rows": {"token_rows": 1},
    "split": {"splits": {"train": {"videos": 1, "queries": 1}, "val": {}, "test": {}}},
    "unlisted": {"files": {}},
}


@pytest.mark.parametrize("lie", LIES)
def test_manifests_that_contradict_the_files(tmp_path: Path, lie: str) -> None:
    store = random_store(tmp_path / "store")
    reseal(store.path / "store.json", **LIES[lie])
    with pytest.raises(HolmesError, match="damaged"):
        check_store(Store.open(store.path))


ARRAYS = {
    "pickle": ("kinds.npy", np.array([{"a": 1}], object)),
    "wide": ("kinds.npy", np.zeros(3, np.int64)),
    "falling": ("query_offsets.npy", np.arange(12)[::-1].copy()),
    "outside": ("split.train.queries.npy", np.full(1, 10**9)),
    "negative": ("split.train.videos.npy", np.full(1, -1)),
}


@pytest.mark.parametrize("lie", ARRAYS)
def test_arrays_that_lie_with_a_right_checksum(tmp_path: Path, lie: str) -> None:
    store = random_store(tmp_path / "store")
    name, array = ARRAYS[lie]
    np.save(tmp_path / "array.npy", array, allow_pickle=True)
    rewritten(store.path, name, (tmp_path / "array.npy").read_bytes())
    with pytest.raises(HolmesError, match=f"{name} is damaged"):
        check_store(Store.open(store.path))


HEADERS = [
    b"",
    b"\x93NUMPY",
    b"\x93NUMPY\x01\x00v\x00" + b"(" * 118,
    b"\x93NUMPY\x01\x00v\x00{'descr': '<i8" + b" " * 100,
]


@pytest.mark.parametrize("header", HEADERS, ids=len)
def test_array_headers_that_are_none(tmp_path: Path, header: bytes) -> None:
    store = random_store(tmp_path / "store")
    rewritten(store.path, "kinds.npy", header)
    with pytest.raises(HolmesError, match=r"kinds\.npy is damaged"):
        check_store(Store.open(store.path))


def test_stores_of_the_first_version_are_read(tmp_path: Path) -> None:
    store = random_store(tmp_path / "store")
    body = json.loads((store.path / "store.json").read_text()) | {"version": 1}
    del body["checksum"]
    (store.path / "store.json").write_text(json.dumps(body))
    assert Store.open(store.path).info == store.info
    assert isinstance(store.info.files["frames.npy"], FileEntry)


def test_flips_in_the_files_of_a_run(tmp_path: Path) -> None:
    """A state or result with a flipped bit is refused; a log is never cut short by one."""
    store = tiny_world(tmp_path / "world", videos=6)
    settings = tiny_settings(epochs=2, warm_up_epochs=1, batch_videos=4)
    train(store, settings, tmp_path / "sound", options=QUIET)
    chance = np.random.default_rng(1)
    for name in ("state.json", "state-2.safetensors", "result.json", "run.json"):
        content = (tmp_path / "sound" / name).read_bytes()
        for at in chance.integers(0, len(content), 8):
            if not content[at : at + 1].strip():
                continue
            shutil.rmtree(tmp_path / "run", ignore_errors=True)
            shutil.copytree(tmp_path / "sound", tmp_path / "run")
            if name.startswith("state"):
                (tmp_path / "run/result.json").unlink()
            flipped = bytearray(content)
            flipped[at] ^= 1 << chance.integers(8)
            (tmp_path / "run" / name).write_bytes(flipped)
            with pytest.raises(HolmesError) as caught:
                train(store, settings, tmp_path / "run", options=QUIET)
            assert "\n" not in str(caught.value)
    log = (tmp_path / "sound/metrics.jsonl").read_bytes()
    (tmp_path / "sound/metrics.jsonl").write_bytes(b"\xff" + log[1:])
    (tmp_path / "sound/result.json").unlink()
    with pytest.raises(HolmesError, match=r"metrics\.jsonl: line 1 is damaged .* delete the line"):
        train(store, settings, tmp_path / "sound", options=QUIET)
    assert (tmp_path / "sound/metrics.jsonl").read_bytes() == b"\xff" + log[1:]
    (tmp_path / "sound/metrics.jsonl").write_bytes(log)
    train(store, settings, tmp_path / "sound", options=QUIET)
    read_result(tmp_path / "sound/result.json")


def test_training_in_folders_whose_names_are_no_text(tmp_path: Path) -> None:
    """To the end: what is remembered of the paths can be written and read again."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    store = tiny_world(folder / "world", videos=6)
    settings = tiny_settings(epochs=1, warm_up_epochs=0, batch_videos=4)
    result = train(store, settings, folder / "run\udcff", options=QUIET)
    assert read_result(folder / "run\udcff/result.json") == result
    (run,) = find_runs(folder / "run\udcff")
    assert store_of(run, None).path == store.path.resolve()
