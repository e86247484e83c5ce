"""Feature files and annotations of strangers: whatever they hold, one line, and nothing outside is read."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from data_layouts import Miniature
from holmes.data.annotations import read_annotations
from holmes.data.feature_files import BigFile, HDF5Features
from holmes.data.pack import Source, pack
from holmes.errors import HolmesError
from holmes.media.feature_folder import FeatureFolder
from index_fakes import FILMS, write_features
from killing import contents

ROWS = np.ones((3, 6), np.float32)


def refusal(work: Callable[[], object]) -> str:
    signal.alarm(60)  # what hangs ends the tests
    with pytest.raises(HolmesError) as caught:
        work()
    signal.alarm(0)
    said = str(caught.value)
    assert "\n" not in said and len(said) < 600
    return said


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file with secrets that has the right shape."""
    with h5py.File(tmp_path / "secret.hdf5", "w") as file:
        file["cat_a"] = ROWS
    (tmp_path / "secret.bin").write_bytes(ROWS.tobytes())
    return tmp_path / "secret.hdf5"


def external_link(file: h5py.File, outside: Path) -> None:
    file["cat_a"] = h5py.ExternalLink(str(outside), "/cat_a")


def soft_link_to_external(file: h5py.File, outside: Path) -> None:
    file["away"] = h5py.ExternalLink(str(outside), "/")
    file["cat_a"] = h5py.SoftLink("/away/cat_a")


def soft_link(file: h5py.File, outside: Path) -> None:
    file["cat_a"] = h5py.SoftLink("/dog-b")


def virtual(file: h5py.File, outside: Path) -> None:
    layout = h5py.VirtualLayout(shape=ROWS.shape, dtype="f4")
    layout[:] = h5py.VirtualSource(str(outside), "cat_a", shape=ROWS.shape)
    file.create_virtual_dataset("cat_a", layout)


def external_storage(file: h5py.File, outside: Path) -> None:
    file.create_dataset(
        "cat_a", ROWS.shape, "f4", external=[(str(outside.with_suffix(".bin")), 0, ROWS.nbytes)]
    )


@pytest.mark.parametrize(
    "lead_away", [external_link, soft_link_to_external, soft_link, virtual, external_storage]
)
def test_nothing_is_read_from_outside_a_file(tmp_path: Path, outside: Path, lead_away: Callable) -> None:
    tiny = Miniature.make(tmp_path / "tiny").write()
    path = tiny.folder / "FeatureData/i3d/feature.hdf5"
    with h5py.File(path, "a") as file:
        del file["cat_a"]
        lead_away(file, outside)
    said = refusal(lambda: pack(Source(tiny.folder), tmp_path / "store"))
    assert "'cat_a' leads to another place or file, which is not followed" in said
    assert not (tmp_path / "store").exists()


def test_a_group_that_is_a_link(tmp_path: Path, outside: Path) -> None:
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file["away"] = h5py.ExternalLink(str(outside), "/")
    with HDF5Features(tmp_path / "f.hdf5") as features:
        assert "is not followed" in refusal(lambda: features.shape("away/cat_a"))
        assert features.shape("nowhere") is None


def test_ten_declared_terabytes(tmp_path: Path) -> None:
    tiny = Miniature.make(tmp_path / "tiny").write()
    with h5py.File(tiny.folder / "FeatureData/i3d/feature.hdf5", "a") as file:
        del file["cat_a"]
        file.create_dataset("cat_a", (10**13 // 24, 6), "f4", chunks=(1024, 6))
    said = refusal(lambda: pack(Source(tiny.folder), tmp_path / "store"))
    assert "declares 416666666666 × 6 numbers, more than the 1024 MiB" in said


def test_a_chunk_larger_than_its_item(tmp_path: Path) -> None:
    """A reader unpacks whole chunks: 15 rows in a chunk of 3 GiB would take 3 GiB."""
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        open_ended = {"maxshape": (None, 6), "compression": "gzip"}
        file.create_dataset("huge", (15, 6), "f4", chunks=((3 << 30) // 24, 6), **open_ended)
        file.create_dataset("usual", (15, 6), "f4", chunks=(4096, 6), **open_ended)
    with HDF5Features(tmp_path / "f.hdf5") as features:
        assert "'huge' is stored in chunks of 3072 MiB, more than the 64 MiB" in refusal(
            lambda: features.shape("huge")
        )
        assert features.shape("usual") == (15, 6) and len(features.rows("usual")) == 15


def test_odd_items(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file["number"], file["words"], file["cube"] = 1.0, "text", np.ones((2, 2, 2))
        file["whole"] = np.ones((2, 2), int)
        file.create_group("group")
    with HDF5Features(tmp_path / "f.hdf5") as features:
        for name in ("number", "words", "cube", "whole", "group"):
            assert "is not a table of floats" in refusal(lambda name=name: features.shape(name))
        for name in ("", ".", "/", "group//x", "whole/x", "\udcff", "nul\0"):
            try:
                assert features.shape(name) is None
            except HolmesError as error:
                assert "cannot be read" in str(error)


@pytest.mark.parametrize(
    "file",
    [
        "FeatureData/i3d/feature.hdf5",
        "TextData/roberta_tiny_query_feat.hdf5",
        "TextData/tinytrain.caption.txt",
        "also_fits.json",
        "kinds.json",
    ],
)
def test_a_pipe_in_place_of_a_file(tmp_path: Path, file: str) -> None:
    tiny = Miniature.make(tmp_path / "tiny").write()
    (tiny.folder / file).unlink(missing_ok=True)
    os.mkfifo(tiny.folder / file)
    if file.endswith(".json"):
        assert pack(Source(tiny.folder), tmp_path / "store").info.videos  # what is not a file says nothing
    else:
        assert "\n" not in refusal(lambda: pack(Source(tiny.folder), tmp_path / "store"))
        assert not (tmp_path / "store").exists()


def test_a_pipe_of_annotations(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert "is not a regular file" in refusal(lambda: read_annotations([tmp_path / "pipe.json"]))


@pytest.mark.parametrize("size", ["9" * 5000 + " 6", "1 " + "9" * 30, "-1 6", "0 6", "3", "a b", "3 6 1", ""])
def test_sizes_that_none_has(tmp_path: Path, size: str) -> None:
    folder = Miniature.make(tmp_path).write_bigfile("i3d")
    (folder / "shape.txt").write_text(size)
    assert "shape.txt" in refusal(lambda: BigFile(folder))


HOSTILE = {
    "huge.json": json.dumps({"v": {"duration": 10**400, "timestamps": [], "sentences": []}}),
    "infinite.json": '{"v": {"duration": Infinity, "timestamps": [], "sentences": []}}',
    "negative.json": '{"v": {"duration": -3, "timestamps": [], "sentences": []}}',
    "true.json": '{"v": {"duration": true, "timestamps": [], "sentences": []}}',
    "nan.json": '{"v": {"duration": 9, "timestamps": [[NaN, 2]], "sentences": ["x"]}}',
    "far.json": '{"v": {"duration": 9, "timestamps": [[0, 1e300]], "sentences": ["x"]}}',
    "few.json": '{"v": {"duration": 9, "timestamps": [[0, 1]], "sentences": []}}',
    "number.json": '{"v": {"duration": 9, "timestamps": 3, "sentences": 4}}',
    "no-text.json": '{"v": {"duration": 9, "timestamps": [[0, 1]], "sentences": [[]]}}',
    "no-frames.json": '{"q": [0, 1, 0]}',
    "many.json": '{"q": [0, 1, 2, 3]}',
    "words.json": '{"q": "abc"}',
    "null.json": "null",
    "twice.json": '{"q": [0, 1, 2], "q": [0, 1, 3]}',
    "deep.json": "[" * 100_000,
    "deep.jsonl": "[" * 100_000,
    "list.jsonl": "[1]",
    "unhashable.jsonl": '{"vid_name": [], "duration": 3, "ts": [0, 1], "desc": "x"}',
    "huge.jsonl": '{"vid_name": "v", "duration": %s, "ts": [0, 1], "desc": "x"}' % ("9" * 400),
    "ts.jsonl": '{"vid_name": "v", "duration": 3, "ts": [0, 1, 2], "desc": "x"}',
    "none.csv": "a,b\n1,2",
    "nul.csv": "id,length\n\0,\0",
    "wide.csv": "id,length\n" + "x" * 200_000 + ",3",
    "no-number.csv": "id,length\nv,long",
    "words.txt": "v 1 2 no mark",
    "nan.txt": "v nan 2##x",
    "many.txt": "v 1 2 3##x",
    "bytes.txt": b"\xff\xfe\x00##",
    "markup.json": '{"[/red]\\u001b[31m": 3}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_annotations_that_are_none(tmp_path: Path, name: str) -> None:
    content = HOSTILE[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert name in refusal(lambda: read_annotations([tmp_path / name]))


@pytest.mark.parametrize(
    "value", ["3", "[]", '{"cat_a#enc#0": 3}', '{"cat_a#enc#0": [[]]}', '{"cat_a#enc#0": "d.d"}']
)
@pytest.mark.parametrize("name", ["also_fits.json", "kinds.json"])
def test_knowledge_that_is_none(tmp_path: Path, name: str, value: str) -> None:
    tiny = Miniature.make(tmp_path / "tiny").write()
    (tiny.folder / name).write_text(value)
    before = contents(tmp_path)
    assert name in refusal(lambda: pack(Source(tiny.folder), tmp_path / "store"))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("value", [1e30, -3e38, 1e300])
@pytest.mark.filterwarnings("error")
def test_finite_features_that_would_overflow(tmp_path: Path, value: float) -> None:
    """Their length is infinite in float32: the row would become zeros, or NaN."""
    tiny = Miniature.make(tmp_path / "tiny").write()
    with h5py.File(tiny.folder / "FeatureData/i3d/feature.hdf5", "a") as file:
        rows = file["dog-b"][()].astype(np.float64)
        del file["dog-b"]
        rows[7, 2] = value
        file["dog-b"] = rows
    said = refusal(lambda: pack(Source(tiny.folder), tmp_path / "store"))
    assert f"video 'dog-b', row 7, holds {value:g}, too large a number" in said


def test_paths_that_are_no_text(tmp_path: Path) -> None:
    """A folder named in another encoding: its bytes survive in what is remembered."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    tiny = Miniature.make(folder / "tiny").write()
    store = pack(Source(tiny.folder), folder / "store\udcff")
    assert store.info.provenance["packed"] == str(tiny.folder.resolve())
    (store.path / "store.json").read_bytes().decode()  # still UTF-8, for all who read JSON
    pack(Source(tiny.folder), folder / "store\udcff", overwrite=True)


def test_features_in_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    written = write_features(folder, FILMS)
    assert [video.id for video in FeatureFolder.open(folder)] == written.ids()
