"""A sharded index is the index: the same answers to the last bit, whole or refused, snapshot by snapshot."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import holmes
from holmes.base.files import write_json
from holmes.cli.main import main
from holmes.cluster import query
from holmes.cluster import write as calibrating
from holmes.cluster.calls import LocalClient
from holmes.cluster.index import QUERIES_PER_CALL, ShardedIndex
from holmes.cluster.location import Location
from holmes.cluster.manifest import FILE_NAME, read_shards
from holmes.cluster.shard import Shard
from holmes.cluster.snapshots import Snapshot
from holmes.cluster.write import (
    ShardsWriter,
    build_shards,
    publish_shards,
    shard_name,
    shard_of,
    split_index,
)
from holmes.errors import HolmesError
from holmes.evidence.calibration import Calibration
from holmes.index.answer.calibration import FILE as CALIBRATION
from holmes.index.answer.calibration import read_values
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.storage.manifest import CODES, NAMES, ROWS
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter
from holmes.serve.settings import ServeSettings
from index_fakes import FakeJoint, known_encoders, write_features
from serve_fakes import PLENTY, client_of
from shard_fakes import ACTIONS, SENTENCES, THINGS, bits, make_index, scenes_of

CALIBRATED = Calibration(
    model=FakeJoint.digest,
    candidates=24,
    frame_weight=0.4,
    clip_weight=0.6,
    temperature=0.05,
    score_temperature=0.07,
    score_offset=0.4,
    videos=40,
    queries=50,
    score_spread=0.2,
    spread_power=-0.3,
    absence_shift=0.9,
    absence_slope=0.3,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    index = make_index(folder)
    write_json(index / CALIBRATION, CALIBRATED.to_dict())
    return folder


@pytest.fixture(autouse=True)
def fake_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    known_encoders(monkeypatch, FakeJoint())


@pytest.fixture
def shards(made: Path, tmp_path: Path) -> Path:
    split_index(made / "index", tmp_path / "shards", 5)
    return tmp_path / "shards"


def in_shards(path: Path, **more: Any) -> ShardedIndex:
    opened = holmes.open_index(path, device="cpu", **more)
    assert isinstance(opened, ShardedIndex)
    return opened


QUESTIONS: list[dict[str, Any]] = [
    {},
    {"top": 1},
    {"top": 200},
    {"filter": "*film*1.mp4"},
    {"filter": {"/films/film003.mp4", "/films/nowhere.mp4"}},
    {"not_here_below": 0.5},
    {"abstain_below": 0.4},  # of a calibrated index
]


def answers_to(index: Any, questions: list[dict[str, Any]]) -> list[list[str]]:
    return [[bits(answer) for answer in index.search_many(SENTENCES, **how)] for how in questions]


@pytest.fixture(scope="module")
def expected(made: Path) -> list[list[str]]:
    with pytest.MonkeyPatch.context() as patch:
        known_encoders(patch, FakeJoint())
        whole = holmes.open_index(made / "index", device="cpu")
        assert whole.gallery.in_parts, "long videos are part of the question"
        scores = [hit.score for hit in whole.search("dog", top=200).hits]
        assert len(set(scores)) < len(scores), "equal scores are part of the question"
        return answers_to(whole, QUESTIONS)


@pytest.mark.parametrize("count", [1, 7, 40])
def test_answers_are_those_of_one_index_to_the_last_bit(
    made: Path, expected: list[list[str]], tmp_path: Path, count: int
) -> None:
    split_index(made / "index", tmp_path / "shards", count)
    assert answers_to(in_shards(tmp_path / "shards"), QUESTIONS) == expected


def test_so_are_those_without_a_calibration(made: Path, tmp_path: Path) -> None:
    index = shutil.copytree(made / "index", tmp_path / "index")
    (index / CALIBRATION).unlink()
    split_index(index, tmp_path / "shards", 7)
    whole, parts = holmes.open_index(index, device="cpu"), in_shards(tmp_path / "shards")
    assert answers_to(parts, QUESTIONS[:-1]) == answers_to(whole, QUESTIONS[:-1])


@pytest.mark.parametrize("share", [1, 5])
def test_a_shard_that_has_more_than_its_share_is_asked_again(
    made: Path, shards: Path, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards are asked for too little on purpose: what is lacking is noticed, and asked for."""
    monkeypatch.setattr(query, "_expected", lambda wanted, fraction: min(wanted, share))
    whole, parts = holmes.open_index(made / "index", device="cpu"), in_shards(shards)
    client, asked = parts.current.client, list[int]()
    really = client.call

    def noted(shards: Any, calls: Any, *rest: Any) -> dict[str, Any]:
        nearest = (call for call in calls.values() if call.method is Shard.nearest)
        asked.extend(len(call.arguments[0][0]) for call in nearest)
        return really(shards, calls, *rest)

    parts.search("dog")  # what is usual is known now
    monkeypatch.setattr(client, "call", noted)
    for how in ({}, {"top": 3}, {"top": 200}, {"filter": "*film*1.mp4"}):
        expected, found = whole.search_many(SENTENCES, **how), parts.search_many(SENTENCES, **how)
        assert [bits(answer) for answer in found] == [bits(answer) for answer in expected]
    assert len(asked) > 4 * 5, "some were asked again"


def test_videos_that_lie_together_by_their_topic_are_found_all_the_same(made: Path, tmp_path: Path) -> None:
    """All that fits a sentence in one shard of three, which then has far more than its share."""
    split_index(made / "index", tmp_path / "shards", 3)
    whole = holmes.open_index(made / "index", device="cpu")
    best = {hit.video for hit in whole.search("dog runs", top=20).hits}
    videos = {name: whole.store[name] for name in whole.videos}
    for number in range(3):
        with IndexWriter(tmp_path / "shards" / shard_name(number)) as writer:
            wanted = {name for name in videos if (0 if name in best else 1 + shard_of(name, 2)) == number}
            writer.remove([name for name in writer.store.positions if name not in wanted])
            writer.add([videos[name] for name in sorted(wanted - set(writer.store.positions))])
    publish_shards(tmp_path / "shards")
    parts = in_shards(tmp_path / "shards")
    for sentence in SENTENCES:
        assert bits(parts.search(sentence)) == bits(whole.search(sentence))


def captions_of(videos: int) -> list[tuple[str, str]]:
    scenes = [(scene, number) for number in range(videos) for scene, _ in scenes_of(number)[:1]]
    return [(scene, f"film{number:03d}.mp4") for scene, number in scenes]


def test_calibrating_shards_is_calibrating_the_index(
    made: Path, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = shutil.copytree(made / "index", tmp_path / "index")
    before, pairs = read_shards(Location(shards)), captions_of(40)
    searched = in_shards(shards)
    file = tmp_path / "captions.csv"
    file.write_text("sentence,video\n" + "".join(f"{said},{video}\n" for said, video in pairs))
    for command in (["holmes", "index", "calibrate", str(path), str(file)] for path in (index, shards)):
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
    taught = read_values(index / CALIBRATION)
    after = read_shards(Location(shards))
    assert taught != CALIBRATED.to_dict() and after.calibration == taught
    assert after.shards == before.shards and after.generation == before.generation + 1
    assert all(read_values(shards / entry.name / CALIBRATION) == taught for entry in after.shards)
    whole = holmes.open_index(index, device="cpu")
    assert bits(searched.search("dog runs")) != bits(whole.search("dog runs")), "still the last generation"
    assert searched.refresh()
    for sentence in SENTENCES:
        assert bits(searched.search(sentence)) == bits(whole.search(sentence))


def test_a_calibration_of_shards_that_changed_meanwhile_is_not_written(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = calibrating.learn

    def meanwhile(*order: Any) -> Any:
        with IndexWriter(shards / shard_name(0)) as writer:
            writer.remove(list(writer.store.positions)[:1])
        publish_shards(shards)
        return learn(*order)

    monkeypatch.setattr(calibrating, "learn", meanwhile)
    with pytest.raises(HolmesError, match=r"was changed meanwhile; nothing was written, run it again\."):
        calibrating.calibrate_shards(shards, captions_of(40))
    assert read_shards(Location(shards)).calibration == CALIBRATED.to_dict()
    with pytest.raises(HolmesError, match="is not a folder; calibrate the index before it is split"):
        calibrating.calibrate_shards("memory://somewhere", captions_of(40))


def test_single_sentences_too(made: Path, shards: Path) -> None:
    whole, parts = holmes.open_index(made / "index", device="cpu"), in_shards(shards)
    for sentence in SENTENCES:
        assert bits(parts.search(sentence)) == bits(whole.search(sentence))


def test_more_sentences_than_are_asked_at_once(made: Path, shards: Path) -> None:
    whole, parts = holmes.open_index(made / "index", device="cpu"), in_shards(shards)
    sentences = [f"{thing} {action}" for thing in THINGS for action in ACTIONS][: QUERIES_PER_CALL + 5]
    expected, found = whole.search_many(sentences), parts.search_many(sentences)
    assert len(found) == len(sentences) == QUERIES_PER_CALL + 5
    assert [bits(answer) for answer in found] == [bits(answer) for answer in expected]


def test_like_timelines_and_durations_are_those_of_one_index(made: Path, shards: Path) -> None:
    whole, parts = holmes.open_index(made / "index", device="cpu"), in_shards(shards)
    assert parts.durations == whole.durations and len(parts) == len(whole)
    assert set(parts.videos) == set(whole.videos)
    assert parts.like("/films/film004.mp4", 9.0) == whole.like("/films/film004.mp4", 9.0)
    names = ["/films/film007.mp4", "/films/film004.mp4", "/films/film001.mp4"]
    pairs = zip(parts.timelines("dog runs", names), whole.timelines("dog runs", names), strict=True)
    for ours, expected in pairs:
        assert np.array_equal(ours.similarity_F, expected.similarity_F)
        assert np.array_equal(ours.spans_F2, expected.spans_F2)
    assert parts.duration("/films/film004.mp4") == whole.duration("/films/film004.mp4")
    about = parts.describe()
    assert about.videos == len(whole) and about.hours == pytest.approx(whole.describe().hours)
    with pytest.raises(HolmesError, match="contains no video named 'x'"):
        parts.like("x", 1.0)
    with pytest.raises(HolmesError, match=r"no video of .* matches 'x'"):
        parts.search("dog", filter="x")


def test_every_shard_is_an_ordinary_index(made: Path, shards: Path) -> None:
    held: list[str] = []
    for number in range(5):
        alone = holmes.open_index(shards / shard_name(number), device="cpu")
        assert all(shard_of(name, 5) == number for name in alone.videos)
        assert alone.search("dog runs").diagnosis.probability is not None
        held += alone.videos
    assert sorted(held) == sorted(IndexStore.open(made / "index").positions)


class Silent(LocalClient):
    """Some shards do not reply to some calls."""

    silent: ClassVar[dict[str, set[str]]] = {}

    def call(self, shards: Any, calls: Any, *rest: Any) -> dict[str, Any]:
        heard = {
            name: call
            for name, call in calls.items()
            if name not in self.silent.get(call.method.__name__, set())
        }
        return super().call(shards, heard, *rest)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("method", ["nearest", "found"])
def test_a_silent_shard_is_named_and_counts_as_not_searched(
    made: Path, shards: Path, method: str, together: bool
) -> None:
    client = Silent(Location(shards))
    Silent.silent = {method: {"shard-0002"}}
    published = read_shards(Location(shards))
    client.prepare(published)
    parts = ShardedIndex(Location(shards), Snapshot(published, client))
    whole = holmes.open_index(made / "index", device="cpu")
    without = [name for name in whole.videos if shard_of(name, 5) != 2]
    asked = [SENTENCES] if together else [[sentence] for sentence in SENTENCES]
    answers = [answer for some in asked for answer in parts.search_many(some, 3)]
    known = [answer for some in asked for answer in whole.search_many(some, 3, filter=without)]
    for answer, expected in zip(answers, known, strict=True):
        if method == "found" and not answer.missing:
            continue  # it had no hit there, so nobody asked
        assert answer.missing == ("shard-0002",)
        assert answer.hits == expected.hits and answer.diagnosis.probability == expected.diagnosis.probability
        said = " This covers only the shards that answered: shard-0002 did not."
        assert answer.diagnosis.explanation == expected.diagnosis.explanation + said
        assert answer.to_dict()["missing"] == ["shard-0002"]
    assert any(answer.missing for answer in answers)
    Silent.silent = {"nearest": {shard_name(n) for n in range(5)}}
    with pytest.raises(HolmesError, match="none of the shards answered"):
        parts.search("dog")


def test_shards_behind_the_page(made: Path, shards: Path) -> None:
    """The page and its API take a sharded index for an index, and say what was not searched."""
    settings = ServeSettings(limits=PLENTY, manage=True)
    whole = holmes.open_index(made / "index", device="cpu")
    Silent.silent = {}
    calling, published = Silent(Location(shards)), read_shards(Location(shards))
    calling.prepare(published)
    with client_of(ShardedIndex(Location(shards), Snapshot(published, calling)), settings) as client:  # type: ignore[arg-type]
        answer = client.get("/api/search", params={"q": "dog runs", "timelines": True}).json()
        expected = whole.search("dog runs").hits
        assert [(hit["video"], hit["score"]) for hit in answer["hits"]] == [
            (h.video, h.score) for h in expected
        ]
        assert answer["missing"] == [] and answer["hits"][0]["timeline"]["similarity"]
        about = client.get("/api/index").json()
        assert (about["videos"], about["shards"], about["generation"]) == (len(whole), 5, 1)
        refused = client.delete(f"/api/videos/{answer['hits'][0]['id']}")
        assert refused.status_code == 409 and "is not a single folder" in refused.json()["error"]
        Silent.silent = {"nearest": {"shard-0001"}}
        answer = client.get("/api/search", params={"q": "dog runs"}).json()
        assert answer["missing"] == ["shard-0001"] and "only the shards that answered" in str(
            answer["diagnosis"]
        )
    Silent.silent = {}


def test_building_in_shards_gives_what_splitting_gives(made: Path, tmp_path: Path) -> None:
    embedder: Any = ZeroShot(FakeJoint())  # type: ignore[arg-type]
    summary = build_shards(tmp_path / "built", [made / "made"], embedder, 5)
    whole = IndexStore.open(made / "index")
    assert summary.added == len(whole) and not summary.failures
    shutil.copytree(made / "index", tmp_path / "index")
    (tmp_path / "index" / CALIBRATION).unlink()
    split_index(tmp_path / "index", tmp_path / "split", 5)
    built, split = in_shards(tmp_path / "built"), in_shards(tmp_path / "split")
    assert built.current.shards.calibration is None
    for name in whole.positions:
        folder = shard_name(shard_of(name, 5))
        ours, theirs = (IndexStore.open(tmp_path / made / folder)[name] for made in ("built", "split"))
        for field in ("rows_SPD", "codes_SPD", "numbers_S3", "spans_SP2"):
            assert np.array_equal(getattr(ours, field), getattr(theirs, field))
    assert list(map(bits, built.search_many(SENTENCES))) == list(map(bits, split.search_many(SENTENCES)))
    before = (tmp_path / "built" / FILE_NAME).read_bytes()
    again = build_shards(tmp_path / "built", [made / "made"], embedder, 5)
    assert again.added == 0 and again.unchanged == len(whole)
    assert (tmp_path / "built" / FILE_NAME).read_bytes() == before
    with pytest.raises(HolmesError, match="has 5 shards, not 4; continue with --shards 5"):
        build_shards(tmp_path / "built", [made / "made"], embedder, 4)


def test_a_new_generation_is_taken_up_whole(shards: Path) -> None:
    """Whatever happens to single shards, searches see one snapshot or the next."""
    parts = in_shards(shards)
    first, videos = bits(parts.search("dog runs", top=200)), len(parts)
    gone = [next(iter(IndexStore.open(shards / shard_name(n)).positions)) for n in range(5)]
    for number, name in enumerate(gone):
        with IndexWriter(shards / shard_name(number)) as writer:
            writer.remove([name])
            writer.compact()  # would delete the segments of the snapshot
        assert not parts.refresh()
        assert bits(parts.search("dog runs", top=200)) == first
        assert bits(in_shards(shards).search("dog runs", top=200)) == first, "opened anew it is the same"
    publish_shards(shards)
    assert bits(parts.search("dog runs", top=200)) == first
    assert parts.refresh() and not parts.refresh()
    assert len(parts) == videos - 5 and not set(gone) & set(parts.videos)
    with IndexWriter(shards / shard_name(0)) as writer:
        left = len(writer.store)
    publish_shards(shards)
    assert len(list((shards / shard_name(0)).glob("sealed-*.json"))) == 2, "the previous snapshot stays"
    assert len(IndexStore.open(shards / shard_name(0))) == left


def test_what_was_copied_for_a_generation_goes_with_it(shards: Path, tmp_path: Path) -> None:
    parts = in_shards(shards, cache=tmp_path / "cache")

    def copied() -> set[str]:
        return {path.name for path in (tmp_path / "cache").glob("shard-0000-*/segments/*")}

    before = copied()
    with IndexWriter(shards / shard_name(0)) as writer:
        writer.remove(list(writer.store.positions)[:3])
        writer.compact()
    publish_shards(shards)
    assert parts.refresh()
    expected = in_shards(shards).search("dog runs")
    assert bits(parts.search("dog runs")) == bits(expected)
    assert len(before) == len(copied()) == 1 and before != copied()


def test_shards_in_object_storage_are_copied_once_and_verified(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    url = f"memory://{tmp_path.name}/films"
    split_index(made / "index", url, 3)
    whole = holmes.open_index(made / "index", device="cpu")
    expected = [bits(answer) for answer in whole.search_many(SENTENCES)]
    cache = tmp_path / "cache"
    parts = in_shards(url, cache=cache)  # type: ignore[arg-type]
    assert [bits(answer) for answer in parts.search_many(SENTENCES)] == expected
    copied: list[str] = []
    really = Location.copy
    monkeypatch.setattr(
        Location, "copy", lambda self, name, *a: (copied.append(name), really(self, name, *a))
    )
    assert [bits(a) for a in in_shards(url, cache=cache).search_many(SENTENCES)] == expected  # type: ignore[arg-type]
    assert copied == []
    damaged = next(cache.rglob(ROWS))
    damaged.write_bytes(bytes(damaged.stat().st_size))
    assert [bits(a) for a in in_shards(url, cache=cache).search_many(SENTENCES)] == expected  # type: ignore[arg-type]
    assert [Path(name).name for name in copied] == [ROWS], "a file damaged here is copied again"
    memory = fsspec.filesystem("memory")
    path = next(path for path in memory.find("/") if path.endswith(f"{CODES}") and tmp_path.name in path)
    content = bytearray(memory.cat(path))
    content[7] ^= 1
    memory.pipe(path, bytes(content))
    with pytest.raises(HolmesError, match=rf"shard-\d+/segments/\d+/{CODES} is damaged"):
        in_shards(url, cache=tmp_path / "another")  # type: ignore[arg-type]
    with pytest.raises(HolmesError, match="is already a sharded index"):
        split_index(made / "index", url, 3)
    with pytest.raises(HolmesError, match=r"say where to copy its shards \(cache=FOLDER\)"):
        holmes.open_index(url)
    with pytest.raises(HolmesError, match=f"{url} is not on this machine"):
        holmes.open_index(Path(url))  # as a command line has it
    with pytest.raises(HolmesError, match="is not a sharded index"):
        holmes.open_index("memory://nothing/here", cache=cache)


def remove_a_shard(shards: Path) -> None:
    shutil.rmtree(shards / "shard-0003")


def put_another_shard_there(shards: Path) -> None:
    shutil.rmtree(shards / "shard-0003")
    shutil.copytree(shards / "shard-0002", shards / "shard-0003")


def cut_a_file(shards: Path) -> None:
    file = next((shards / "shard-0003").rglob(NAMES))
    file.write_bytes(file.read_bytes()[:-3])


def remove_a_segment(shards: Path) -> None:
    shutil.rmtree(next((shards / "shard-0003" / "segments").iterdir()))


def change_the_manifest(shards: Path) -> None:
    text = (shards / FILE_NAME).read_text()
    (shards / FILE_NAME).write_text(text.replace('"generation": 1', '"generation": 2'))


def from_the_future(shards: Path) -> None:
    body = json.loads((shards / FILE_NAME).read_text())
    (shards / FILE_NAME).write_text(json.dumps({**body, "version": 9}))


def out_of_here(shards: Path) -> None:
    body = json.loads((shards / FILE_NAME).read_text())
    body["shards"][0]["name"] = "../index"
    body.pop("checksum")
    from holmes.base.manifests import checksum

    (shards / FILE_NAME).write_text(json.dumps({**body, "checksum": checksum(body)}))


WRONG = {
    remove_a_shard: "the shard .*shard-0003 is missing; restore it, or split the index again.",
    put_another_shard_there: "shard-0003 does not match shards.json",
    cut_a_file: "shard-0003.*names.bin is damaged",
    remove_a_segment: "shard-0003 does not match shards.json",
    change_the_manifest: "shards.json is damaged",
    from_the_future: "a sharded index of version 9; this version of Holmes reads version 1",
    out_of_here: "shards.json is damaged: shards.0.name is '../index', not the name of a shard",
}


@pytest.mark.parametrize("damage", WRONG, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("copying", [False, True])
def test_a_wrong_shard_is_refused_and_named(shards: Path, damage: Any, copying: bool, tmp_path: Path) -> None:
    damage(shards)
    said = WRONG[damage] if not (copying and damage is cut_a_file) else "names.bin is damaged"
    with pytest.raises(HolmesError, match=said):
        holmes.open_index(shards, device="cpu", cache=tmp_path / "cache" if copying else None)


def test_sealing_refuses_foreign_shards_and_a_video_that_is_there_twice(
    made: Path, shards: Path, tmp_path: Path
) -> None:
    put_another_shard_there(shards)
    with pytest.raises(HolmesError, match=r"is in shard-0002 and in shard-0003; remove it from one"):
        publish_shards(shards)
    manifest = shards / "shard-0003" / "manifest.json"
    from dataclasses import replace

    from holmes.index.storage.manifest import read_manifest, write_manifest

    write_manifest(manifest.parent, replace(read_manifest(manifest.parent), model={"name": "other"}))
    with pytest.raises(HolmesError, match=r"shard-0003 does not belong to this sharded index \(its model"):
        publish_shards(shards)
    remove_a_shard(shards)
    with pytest.raises(HolmesError, match="shard-0003 is missing"):
        publish_shards(shards)


def test_what_is_written_is_published_unless_an_error_ends_it(shards: Path) -> None:
    before = read_shards(Location(shards))
    with pytest.raises(ZeroDivisionError), ShardsWriter(shards) as writer:
        writer.remove(list(writer.store.positions)[:2])
        raise ZeroDivisionError
    assert read_shards(Location(shards)) == before
    with ShardsWriter(shards) as writer:
        writer.remove(list(writer.store.positions)[:1])
    after = read_shards(Location(shards))
    assert (after.videos, after.generation) == (before.videos - 3, before.generation + 1)


def test_splitting_leaves_nothing_half_made(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "shards"
    monkeypatch.setattr("holmes.cluster.write.publish_shards", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        split_index(made / "index", out, 3)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    out.mkdir()
    (out / "mine").touch()
    with pytest.raises(HolmesError, match="exists and is not empty"):
        split_index(made / "index", out, 3)
    index = shutil.copytree(made / "index", tmp_path / "index")
    rows = next(index.rglob(ROWS))
    rows.write_bytes(bytes(rows.stat().st_size))
    with pytest.raises(HolmesError, match=r"rows\.f16 is damaged"):
        split_index(index, tmp_path / "other", 3)


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["holmes", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_on_the_command_line(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = tmp_path / "shards"
    assert run(monkeypatch, "index", "split", made / "index", shards, "--shards", 4) == 0
    assert "66 videos in 4 shards of " in capsys.readouterr().err
    assert run(monkeypatch, "search", made / "index", "dog runs", "--json") == 0
    expected = capsys.readouterr().out
    assert run(monkeypatch, "search", shards, "dog runs", "--json") == 0
    assert capsys.readouterr().out == expected
    assert run(monkeypatch, "search", shards, "dog runs") == 0
    assert "/films/" in capsys.readouterr().out
    assert run(monkeypatch, "index", "seal", shards) == 0
    assert capsys.readouterr().err == f"66 videos in 4 shards, snapshot 1: {shards}\n"
    assert run(monkeypatch, "index", "check", shards) == 0
    assert capsys.readouterr().err == f"66 videos in 4 shards, all intact: {shards}\n"
    assert run(monkeypatch, "index", "info", shards) == 0
    assert "shard-0003" in (said := capsys.readouterr().out) and "66 videos, snapshot 1, model fake" in said
    assert run(monkeypatch, "index", "info", shards, "--json") == 0
    about = json.loads(capsys.readouterr().out)
    assert about["videos"] == len(about["names"]) == 66 and about["shards"] == 4
    rows = next((shards / "shard-0001").rglob(ROWS))
    good = rows.read_bytes()
    rows.write_bytes(bytes(len(good)))
    assert run(monkeypatch, "index", "check", shards) == 2
    said = capsys.readouterr().err
    assert "shard-0001" in said and "rows.f16 is damaged" in said and said.count("\n") == 1
    rows.write_bytes(good)
    remove_a_shard(shards)
    assert run(monkeypatch, "search", shards, "dog runs") == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert run(monkeypatch, "index", "build", made / "index", made / "made", "--shards", 2) == 2
    assert "is a single index; make shards of it" in capsys.readouterr().err


def test_videos_are_added_and_removed_on_the_command_line(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command publishes a snapshot; one that is refused publishes none."""
    more = write_features(tmp_path / "more", {"harbour": [("ship leaves harbour", 8)]}).path
    assert run(monkeypatch, "index", "add", shards, more) == 0
    assert f"1 video added, 0 already there, 0 failed: {shards}" in capsys.readouterr().err
    assert in_shards(shards).search("ship leaves harbour").hits[0].video == "/films/harbour.mp4"
    assert run(monkeypatch, "index", "remove", shards, "*/harbour.mp4") == 0
    assert f"1 video removed, 66 left: {shards}" in capsys.readouterr().err
    assert "/films/harbour.mp4" not in in_shards(shards).durations
    assert read_shards(Location(shards)).generation == 3
    assert run(monkeypatch, "index", "remove", shards, "*/harbour.mp4") == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert read_shards(Location(shards)).generation == 3
