"""Damage to an index is noticed when a search reads it, and a manifest cannot name a segment twice."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from by_hand import reseal
from holmes.base.files import read_json
from holmes.errors import HolmesError
from holmes.index.answer.searcher import Index, open_single_index
from holmes.index.embedders.loading import load_embedder
from holmes.index.engine.gallery import verify_rows
from holmes.index.engine.rescoring import refuse_damaged
from holmes.index.ingest.builder import build_index
from holmes.index.storage.checksums import checksums
from holmes.index.storage.maintenance import compact_index, index_faults
from holmes.index.storage.manifest import SUMS, read_manifest, write_manifest
from holmes.index.storage.segments import Slab
from holmes.index.storage.store import IndexStore
from index_fakes import FILMS, FakeJoint, write_features

SENTENCES = ["dog runs beach", "water boils", "rain falls", "man eats soup"]


@pytest.fixture
def index(tmp_path: Path) -> Path:
    films = {f"{name}{copy}": scenes for name, scenes in FILMS.items() for copy in range(3)}
    films["long"] = [scene for scenes in FILMS.values() for scene in scenes]
    features = write_features(tmp_path / "features", films)
    build_index(tmp_path / "index", [features.path], load_embedder(FakeJoint()))
    return tmp_path / "index"


def opened(index: Path) -> Index:
    return open_single_index(index, device="cpu", model=FakeJoint())


def answers(index: Path) -> list[list[tuple]]:
    return [
        [(hit.video, hit.score, hit.moments) for hit in answer.hits]
        for answer in opened(index).search_many(SENTENCES, 5)
    ]


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x40
    path.write_bytes(content)


@pytest.mark.parametrize("width", [6, 10, 12, 384])
def test_checksums_equal_sums_by_hand(width: int) -> None:
    """Words of 8, 4 or 2 bytes, whichever fill a row; each times its own odd number, modulo 2^64."""
    rows = np.random.default_rng(0).normal(size=(5, width)).astype(np.float16)
    size = next(size for size in (8, 4, 2) if 2 * width % size == 0)
    raw = np.random.PCG64(2 * width // size).random_raw(2 * width // size)
    for row, found in zip(rows, checksums(torch.from_numpy(rows)).tolist(), strict=True):
        data = row.tobytes()
        words = [
            int.from_bytes(data[at : at + size], "little", signed=True) for at in range(0, len(data), size)
        ]
        total = sum(word * (int(weight) | 1) for word, weight in zip(words, raw, strict=True)) % 2**64
        assert found % 2**64 == total


def test_any_changed_word_changes_the_checksum() -> None:
    rows = torch.randn(64, 32, generator=torch.Generator().manual_seed(0)).half()
    sound = checksums(rows)
    for column in range(32):
        changed = rows.clone()
        changed.view(torch.int16)[:, column] ^= 1 << (column % 16)
        assert bool((checksums(changed) != sound).all())


@pytest.mark.parametrize("file", ["rows.f16", "spans.f32"])
def test_damage_never_changes_an_answer_unnoticed(index: Path, tmp_path: Path, file: str) -> None:
    sound, noticed = answers(index), 0
    (segment,) = [path.name for path in (index / "segments").iterdir()]
    size = (index / "segments" / segment / file).stat().st_size
    for at in np.random.default_rng(1).integers(0, size, 40).tolist():
        copy = tmp_path / "copy"
        shutil.copytree(index, copy)
        flip(copy / "segments" / segment / file, at)
        try:
            assert answers(copy) == sound, f"byte {at} of {file} changed an answer"
        except HolmesError as error:
            assert "does not match" in str(error) and "holmes index check" in str(error)
            noticed += 1
        shutil.rmtree(copy)
    assert noticed > 10


def test_both_readers_of_rows_refuse_damaged_ones(index: Path) -> None:
    """A search on a CPU verifies the rows it scores again, and a GPU all rows when the index is opened."""
    slab = opened(index).gallery.slabs[0]
    at_K = torch.arange(4)
    rows_KD = slab.rows_SPD.flatten(0, 1)[:4].clone()
    refuse_damaged(rows_KD, slab.sums_SP, at_K)
    rows_KD.view(torch.int16)[2, 5] ^= 1
    with pytest.raises(HolmesError, match="does not match"):
        refuse_damaged(rows_KD, slab.sums_SP, at_K)
    (segment,) = (index / "segments").iterdir()
    verify_rows(*stored_rows(index), torch.device("cpu"))
    flip(segment / "rows.f16", 100)
    with pytest.raises(HolmesError, match="does not match"):
        verify_rows(*stored_rows(index), torch.device("cpu"))


def stored_rows(index: Path) -> tuple[IndexStore, Slab]:
    store = opened(index).store
    return store, store.segments[0].slabs[0]


def test_an_index_without_checksums_of_rows_still_opens(index: Path) -> None:
    """As earlier versions wrote them; compacting adds the checksums."""
    sound, manifest = answers(index), read_manifest(index)
    entries = []
    for entry in manifest.segments:
        (index / "segments" / entry.name / SUMS).unlink()
        entries.append(replace(entry, files={n: f for n, f in entry.files.items() if n != SUMS}))
    write_manifest(index, replace(manifest, segments=tuple(entries)))
    assert answers(index) == sound and index_faults(index)[1] == []
    compact_index(index)
    assert all(SUMS in entry.files for entry in read_manifest(index).segments)
    assert answers(index) == sound and index_faults(index)[1] == []


def test_a_damaged_file_of_checksums_is_found_by_the_check(index: Path) -> None:
    (segment,) = (index / "segments").iterdir()
    flip(segment / SUMS, 3)
    assert index_faults(index)[1] == [f"{segment / SUMS} is damaged (its checksum does not match)"]


def test_a_segment_named_twice_is_refused(index: Path) -> None:
    segments = read_json(index / "manifest.json")["segments"]
    reseal(index / "manifest.json", segments=segments * 2)
    with pytest.raises(HolmesError, match="names segment 000000010000 twice"):
        read_manifest(index)


@pytest.mark.parametrize("name", ["../../../.bashrc", "/tmp/x", "more.f16", "", "a\0b"])
def test_a_manifest_names_only_the_known_files(index: Path, name: str) -> None:
    segments = read_json(index / "manifest.json")["segments"]
    segments[0]["files"][name] = {"bytes": 1, "sha256": "0" * 64}
    reseal(index / "manifest.json", segments=segments)
    with pytest.raises(HolmesError, match=r"segment .* lists .*; its files are"):
        read_manifest(index)
