"""Every key of the files that only help, altered in every way: without harm, or refused in one line.

Those that say what a store, a run, a checkpoint or an index is are altered in `test_files_that_lie`. These
are the others that are read again: a calibration, the notes on what was left out, a sweep, a rendered world,
the journal of a store that is being written, a film half extracted, the ranks of a run, a sharded index.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")
from altering import VALUES, altered, key_paths, run_holmes
from data_layouts import Miniature
from holmes.base.manifests import checksum
from holmes.base.printing import printable
from holmes.cluster.location import Location
from holmes.cluster.manifest import read_shards
from holmes.cluster.write import split_index
from holmes.data.check import check_store
from holmes.data.pack import Source, pack
from holmes.data.store import Store
from holmes.data.writer import StoreWriter
from holmes.errors import HolmesError
from holmes.evaluation.intervals import read_ranks, save_ranks
from holmes.index.answer.searcher import open_single_index
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import build_index
from holmes.index.ingest.file_identity import Duplicate
from holmes.index.ingest.skipped import read_skipped, record_skipped
from holmes.media.extraction import Failure
from holmes.media.pictures import ThumbnailStrip
from holmes.media.reader import ReadingPosition
from holmes.media.saved_progress import SavedProgress, load_progress, save_progress
from holmes.report.experiments import read_sweeps, write_sweeps
from holmes.report.figures.sweep_curves import sweep_figure
from holmes.worlds.rendered import RenderedWorld, RenderSettings, render_world
from index_fakes import FILMS, FakeJoint, every_name_loads, write_features

METRICS = {"SumR": {"mean": 101.5, "deviation": 0.5, "low": 99.0, "high": None}}
LINE = {
    "parameter": "tau",
    "setting": "evidence.tau",
    "default": 0.1,
    "points": [{"value": value, "metrics": METRICS} for value in (0.1, 0.2)],
}
PLANE = {
    "settings": ["a", "b"],
    "default": {"a": 1, "b": "x"},
    "points": [{"values": {"a": a, "b": b}, "metrics": METRICS} for a in (1, 2) for b in "xy"],
}
SWEPT = {"sweeps": {"tau": LINE}, "grids": {"a × b": PLANE}}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("lesser")
    features = write_features(folder / "features", FILMS)
    with pytest.MonkeyPatch.context() as patch:
        every_name_loads(patch, FakeJoint())
        build_index(folder / "index", [features.path], ZeroShot(FakeJoint()))
        scenes = [(scene, f"{name}.mp4") for name, scenes in FILMS.items() for scene, _ in scenes]
        open_single_index(folder / "index", device="cpu").calibrate(scenes * 3)
        partial = Failure(Path("/films/coast.mp4"), "in part")
        empty, copy = Failure(Path("/films/x.mp4"), "empty"), Duplicate(Path("/films/y.mp4"), partial.source)
        record_skipped(folder / "index", [empty], [partial], {str(partial.source)}, [copy])
        split_index(folder / "index", folder / "shards", 2)
        write_sweeps(folder / "sweep.json", SWEPT)
        render_world(folder / "world", RenderSettings(2, 2, scenes=(1, 1), seconds=(1.0, 1.0), size=(16, 16)))
        yield folder


READERS: dict[str, Callable[[Path], object]] = {
    "index/calibration.json": lambda folder: open_single_index(folder / "index", device="cpu").search(
        "dog runs"
    ),
    "index/left_out.json": lambda folder: json.dumps(read_skipped(folder / "index")),
    "shards/shards.json": lambda folder: read_shards(Location(folder / "shards")),
    "sweep.json": lambda folder: drawn(read_sweeps(folder / "sweep.json")),
    "world/world.json": lambda folder: RenderedWorld.open(folder / "world"),
}


def drawn(swept: dict[str, Any]) -> None:
    """What differs: drawing takes longest."""
    changed = {kind: found for kind, found in swept.items() if found != SWEPT[kind]}
    if any(changed.values()):
        sweep_figure(changed.get("sweeps", {}), changed.get("grids", {}))


@pytest.mark.filterwarnings("ignore")  # of matplotlib, about what the lies make it draw
@pytest.mark.parametrize("name", READERS)
def test_every_key_in_every_way(sound: Path, name: str) -> None:
    """As damage, and with a checksum that is right again."""
    path, read = sound / name, READERS[name]
    whole = path.read_text()
    body = json.loads(whole)
    read(sound)
    try:
        for at in key_paths(body):
            for what, new in VALUES.items():
                text = altered(body, at, new)
                variants = {"damage": text}
                if "checksum" in body and what != "there twice" and at != ("checksum",):
                    lie = {key: value for key, value in json.loads(text).items() if key != "checksum"}
                    variants["lie"] = json.dumps(lie | {"checksum": checksum(lie)})
                for kind, content in variants.items():
                    path.write_text(content)
                    try:
                        read(sound)
                        changed = what == "there twice" or json.loads(content) != body
                        sealed = "checksum" in body and at != ("checksum",) and changed
                        assert not (kind == "damage" and sealed), (at, what)
                    except HolmesError as error:
                        assert "\n" not in printable(str(error)) and len(str(error)) < 1000, (at, what)
    finally:
        path.write_text(whole)


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 60_000, b"\xff", b"null", b"[]", b'"text"'])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_such_file_at_all(sound: Path, name: str, content: bytes) -> None:
    path = sound / name
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        if name == "index/left_out.json":  # decides nothing
            assert read_skipped(sound / "index") == {"left_out": [], "partial": [], "copies": []}
        elif (name, content) != ("index/calibration.json", b"null"):
            with pytest.raises(HolmesError):
                READERS[name](sound)
    finally:
        path.write_bytes(whole)


def test_a_search_with_a_calibration_that_lies(sound: Path) -> None:
    """Of all that can be said, by the command itself."""
    path = sound / "index/calibration.json"
    whole = path.read_text()
    body = json.loads(whole)
    del body["checksum"]
    try:
        for what in ("huge", "NaN", "markup", "deep"):
            key = next(key for key in body if isinstance(body[key], float))
            lie = json.loads(altered(body, (key,), VALUES[what]))
            path.write_text(json.dumps(lie | {"checksum": checksum(lie)}))
            run_holmes("search", sound / "index", "dog runs").check(refused=False)
    finally:
        path.write_text(whole)


def test_journals_that_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that goes on from a damaged journal is the store that never stopped."""
    tiny = Miniature.make(tmp_path / "source").write()
    reference = pack(Source(tiny.folder), tmp_path / "reference")

    def stop(self: StoreWriter, provenance: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(StoreWriter, "finish", stop)
        pack(Source(tiny.folder), tmp_path / "store")
    building = tmp_path / ".store.building"
    journal = building / "journal.json"
    shutil.copytree(building, tmp_path / "before")
    body = json.loads(journal.read_text())
    for at in [("videos",), ("queries",), ("fingerprint",), ("checksum",), ("format",), ("version",)]:
        for what in ("deleted", "there twice", "zero", "huge"):
            shutil.rmtree(building, ignore_errors=True)
            shutil.copytree(tmp_path / "before", building)
            journal.write_text(altered(body, at, VALUES[what]))
            store = pack(Source(tiny.folder), tmp_path / "store")
            check_store(Store.open(store.path))
            assert store.info.digest == reference.info.digest, (at, what)
            shutil.rmtree(tmp_path / "store")


def test_half_extracted_films_that_lie(tmp_path: Path) -> None:
    """Whatever is altered, the film is extracted from its beginning."""
    path, position = tmp_path / ".film.unfinished", ReadingPosition(7, 8, 1.5, 0.0, 0.0, 3, 3)
    rows = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    strip = ThumbnailStrip.resumed([(0.25, b"jpeg"), (1.25, b"more")], 1, 3)
    save_progress(path, "made of this", SavedProgress(rows, np.arange(3.0), strip, position))
    assert load_progress(path, "made of this").position == position
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    record = json.loads(header["__metadata__"]["unfinished"])

    def write(header: str) -> None:
        text = header.encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])

    for new in VALUES.values():
        for at in key_paths(record):
            lie = altered(record, at, new)
            if new is VALUES["there twice"] or json.loads(lie) == record:
                continue
            write(json.dumps(header | {"__metadata__": {"unfinished": lie}}))
            assert load_progress(path, "made of this") is None, (at, new)
        for at in key_paths(header):
            write(altered(header, at, new))
            found = load_progress(path, "made of this")
            assert (
                found is None or found.rows.tobytes() == rows.astype(np.float16).astype(np.float32).tobytes()
            )


def test_ranks_with_flipped_bits(tmp_path: Path) -> None:
    """A zip file has a checksum of each part: read as they were, or not at all."""
    path = tmp_path / "ranks.npz"
    save_ranks(path, np.arange(50) + 1, np.arange(50) // 5)
    content, before = path.read_bytes(), read_ranks(path)
    for bit in np.random.default_rng(0).choice(8 * len(content), 400, replace=False).tolist():
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        found = read_ranks(path)
        assert found is None or all(np.array_equal(a, b) for a, b in zip(found, before, strict=True)), bit
