"""Words in an index: kept, searched, corrected, moved, removed, split and checked like its pictures."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import holmes
from forked_children import forked_children  # noqa: F401 - a fixture
from holmes.cli.main import app
from holmes.cluster.index import open_index
from holmes.cluster.write import ShardsWriter, split_index
from holmes.errors import HolmesError
from holmes.evidence.sources import SAID, WRITTEN, TextEvidence
from holmes.heard.hearing import Hearing
from holmes.index.answer import words
from holmes.index.engine.passages import PassageIndex, SegmentSearch, WordQuery
from holmes.index.ingest.hearing import hear_index, set_words
from holmes.index.storage.maintenance import compact_index, index_faults
from holmes.index.storage.manifest import PASSAGES
from holmes.index.storage.store import IndexStore
from spoken_films import film

pytestmark = pytest.mark.usefixtures("forked_children")
WORDS = {
    "boat": "The captain painted the old boat in the harbour",
    "clock": "My grandfather repaired clocks near the lighthouse",
    "train": "Nobody told us that the last train was cancelled",
    "bees": "She keeps <b>bees</b> on the roof \x1b[31mof the bank",
}
ONLY_SUBTITLES = Hearing(speech="", screen=False)


def subtitle(video: Path, text: str) -> None:
    video.with_suffix(".srt").write_text(f"1\n00:00:01,000 --> 00:00:03,000\n{text}\n")


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    looks = ["circle", "star", "heart", "square"]
    for (name, text), shape in zip(WORDS.items(), looks, strict=True):
        film(folder / f"{name}.mp4", 4.0, scene=("red", shape, "sea", "left"))
        subtitle(folder / f"{name}.mp4", text)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, films: Path) -> Path:
    """An index as earlier versions made it, then heard."""
    path = tmp_path_factory.mktemp("indexes") / "index"
    holmes.build_index(path, films, hear=False)
    before = json.loads((path / "manifest.json").read_text())
    assert before["passages"] == []
    assert open_index(path).transcript(str(films / "boat.mp4")) is None
    with pytest.raises(HolmesError, match="never heard"):
        CliRunner().invoke(app, ["transcript", str(path), "boat.mp4"], catch_exceptions=False)
    features = {file: file.stat().st_mtime_ns for file in (path / "features").rglob("*.safetensors")}
    summary = hear_index(path, ONLY_SUBTITLES)
    assert summary.heard == 4 and summary.passages == 4 and not summary.failures
    assert {file: file.stat().st_mtime_ns for file in features} == features  # pictures were not read again
    return path


@pytest.fixture
def index(tmp_path: Path, built: Path) -> Path:
    shutil.copytree(built, tmp_path / "index")
    return tmp_path / "index"


def found(path: Path, sentence: str) -> list[str]:
    return [Path(hit.video).stem for hit in open_index(path, device="cpu").search(sentence, 4)]


def test_what_is_said_is_found_and_quoted(built: Path) -> None:
    index = open_index(built, device="cpu")
    answer = index.search("someone repairs a clock near the lighthouse")
    hit = answer[0]
    assert Path(hit.video).stem == "clock" and hit.because[0] == "said"
    (quote,) = hit.quotes
    marked = {quote.passage.text[start:end] for start, end in quote.marks}
    assert {"repaired", "clocks", "lighthouse"} <= marked
    assert hit.moments[0].start <= 1.0 and hit.moments[0].end >= 3.0
    assert hit.probability is not None and hit.probability > 0.6
    plain = json.loads(json.dumps(hit.to_dict()))
    assert plain["because"][0] == "said" and plain["quotes"][0]["source"] == "subtitles"


@pytest.mark.parametrize(
    ("sentence", "film"),
    [
        ("someone mentions the harbour", "boat"),
        ("someone talks about clocks", "clock"),
        ('"cancelled"', "train"),
        ('someone says "the roof"', "bees"),
    ],
)
def test_one_word_of_a_long_sentence_is_enough_where_the_form_tells_the_source(
    built: Path, sentence: str, film: str
) -> None:
    answer = open_index(built, device="cpu").search(sentence)
    assert Path(answer[0].video).stem == film and answer[0].because == ("said",)
    assert answer.diagnosis.kind == "precise" and answer[0].probability > 0.8


@pytest.mark.parametrize(
    ("sentence", "meaning"),
    [
        ("someone mentions clocks near the lighthouse", 1),
        ('"repaired clocks near the lighthouse"', 1),
        ("someone mentions clocks and a train", 0),  # of two videos
        ("someone mentions clocks and lightning", 0),
        ("someone mentions repaired clocks near the lighthouse", 0),  # many words: their meaning tells more
        ('"clocks repaired"', 0),
        ("clocks", 0),  # perhaps seen
    ],
)
def test_a_passage_means_the_few_words_that_it_has(built: Path, sentence: str, meaning: float) -> None:
    index = PassageIndex(IndexStore.open(built))
    query = WordQuery.of(sentence)  # without a vector: every cosine is 0
    (clause,), (segment,) = query.clauses, index.segments
    cosine_N = np.zeros(segment.entry.passages, np.float32)
    features_NF = SegmentSearch(segment, None).features(clause, cosine_N, index.count([query]))
    assert features_NF[:, 3].max() == meaning


def test_words_that_nobody_says_make_the_meaning_tell_more_and_speak_against_signs(built: Path) -> None:
    index = PassageIndex(IndexStore.open(built))
    query = WordQuery.of("someone says he mended watches near the lighthouse")  # mended, watches: nobody
    (clause,), (segment,) = query.clauses, index.segments
    search, counts = SegmentSearch(segment, None), index.count([query])
    cosine_N = np.full(segment.entry.passages, 0.5, np.float32)
    unknown_N = search.features(clause, cosine_N, counts)[:, 2]
    said_N, passages = search.kind_N == SAID, counts.passages
    assert passages < 20  # so few that most words are unknown
    np.testing.assert_allclose(unknown_N[said_N], 0.5 * 2 * passages / (passages + 50), 1e-6)
    np.testing.assert_array_equal(unknown_N[search.kind_N == WRITTEN], 2)
    many_N = search.features(clause, cosine_N, replace(counts, passages=450))[:, 2]
    np.testing.assert_allclose(many_N[said_N], 0.5 * 2 * 0.9, 1e-6)
    # A passage with the same cosine has a larger ratio if the words are other ones, a sign a smaller one.
    (_, _, said, _, _), (_, _, written, _, _) = TextEvidence().slopes_SF
    assert said > 0 > written


def test_a_sentence_that_opens_like_a_description_finds_what_is_said(built: Path) -> None:
    assert found(built, "a captain painted boats")[0] == "boat"
    assert found(built, "someone mended watches near the lighthouse")[0] == "clock"


def test_quoted_words_must_be_there_one_after_the_other(built: Path) -> None:
    index = open_index(built, device="cpu")
    assert Path(index.search('"last train was"')[0].video).stem == "train"
    unsaid = index.search('"train last was"')
    assert unsaid.diagnosis.explanation.startswith("No video says or shows “train last was”.")
    assert not any(hit.quotes and "exact" in hit.because for hit in unsaid)
    stem = index.search('"clock near"')  # only "clocks near" is said
    assert stem.diagnosis.explanation.startswith("No video says")


def test_a_query_that_no_word_fits_is_answered_by_pictures_alone(built: Path, tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    shutil.copytree(built, silent)
    manifest = json.loads((silent / "manifest.json").read_text())
    from holmes.index.storage.manifest import read_manifest, write_manifest

    assert manifest["passages"]
    write_manifest(silent, replace(read_manifest(silent), passages=()))
    sentence = "xyzzy"
    heard, seen = (open_index(path, device="cpu").search(sentence, 4) for path in (built, silent))
    assert [hit.video for hit in heard] == [hit.video for hit in seen]
    for one, other in zip(heard, seen, strict=True):
        # MiniLM finds some likeness in any two texts; among four films that moves 3 points at most.
        assert one.probability == pytest.approx(other.probability, abs=0.04)


def test_operators_of_the_full_text_index_are_plain_words(built: Path) -> None:
    index = open_index(built, device="cpu")
    for sentence in (
        'NEAR("a b", 5) OR *',
        "text: ^boat AND NOT",
        '" OR 1=1 --',
        "'; DROP TABLE words;",
        "“”",
    ):
        assert len(index.search(sentence)) > 0


def test_words_go_with_their_video_and_come_back(index: Path) -> None:
    with open_index(index, device="cpu") as opened:
        (name,) = opened.remove("boat.mp4")
        assert all(Path(hit.video).stem != "boat" for hit in opened.search("painted the old boat"))
    store = IndexStore.open(index)
    assert store.heard_videos == 3 and store.heard(name) is None
    compact_index(index)
    assert IndexStore.open(index).manifest.passages[0].videos == 3
    assert not list((index / "heard").glob("boat*"))
    holmes.open_index(index).add(name)
    assert hear_index(index, ONLY_SUBTITLES).heard == 1
    assert found(index, "painted the old boat")[0] == "boat"
    assert hear_index(index, ONLY_SUBTITLES).unchanged == 4


def test_a_moved_film_keeps_its_words(tmp_path: Path, films: Path) -> None:
    folder, path = tmp_path / "films", tmp_path / "index"
    shutil.copytree(films, folder)
    holmes.build_index(path, folder, hear=False)
    set_words(path, "clock.mp4", films / "clock.srt")
    (folder / "clock.mp4").rename(folder / "renamed.mp4")
    holmes.open_index(path).sync(folder)
    assert found(path, "repaired clocks")[0] == "renamed"
    heard = open_index(path).transcript(str(folder / "renamed.mp4"))
    assert heard is not None and "corrected" in heard.sources


def test_a_correction_is_searched_and_survives_another_hearing(index: Path, tmp_path: Path) -> None:
    right = tmp_path / "right.vtt"
    right.write_text(
        "WEBVTT\n\n00:01.000 --> 00:02.000\nThe submarine sank\n\n09:00.000 --> 09:01.000\nlate\n"
    )
    kept = set_words(index, "bees.mp4", right)
    assert kept.notes == ("1 of 2 lines of right.vtt begin after the film ends",)
    assert found(index, "the submarine sank")[0] == "bees"
    hear_index(index, ONLY_SUBTITLES)
    assert found(index, "the submarine sank")[0] == "bees"
    with pytest.raises(HolmesError, match="no video"):
        set_words(index, "nothing.mp4", right)


def test_shards_answer_as_one_index_does(index: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    split_index(index, shards, 3)
    one, many = open_index(index, device="cpu"), open_index(shards, device="cpu")
    for sentence in ("grandfather repaired clocks", '"last train was"', "a red star over the sea", "xyzzy"):
        assert many.search(sentence, 4).to_dict() == one.search(sentence, 4).to_dict()
    video = one.videos[0]
    assert many.transcript(video) == one.transcript(video)
    # The shards keep no files of what was heard.
    assert hear_index(shards, ONLY_SUBTITLES, writer=ShardsWriter).heard == 4


def test_damage_is_found_and_is_one_line(index: Path) -> None:
    store = IndexStore.open(index)
    file = store.passages[0].folder / PASSAGES
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 2000] = b"\xff" * 2000
    file.write_bytes(content)
    assert any("checksum" in fault for fault in index_faults(index)[1])
    file.write_bytes(content[:-100])
    with pytest.raises(HolmesError) as told:
        open_index(index)
    assert "bytes" in str(told.value) and "\n" not in str(told.value)


def test_transcripts_are_printed_as_text(built: Path) -> None:
    runner = CliRunner()
    plain = runner.invoke(app, ["transcript", str(built), "bees.mp4"])
    assert plain.exit_code == 0 and "0:01  She keeps bees on the roof" in plain.output
    assert "\x1b" not in plain.output and "<b>" not in plain.output
    for form, begins in (("srt", "1\n00:00:01,000 --> "), ("vtt", "WEBVTT\n"), ("json", "{")):
        shown = runner.invoke(app, ["transcript", str(built), "bees.mp4", "--format", form])
        assert shown.exit_code == 0 and shown.output.startswith(begins)
    found = runner.invoke(app, ["search", str(built), "the captain painted a boat", "--top", "1"])
    assert "said at 0:01: “The captain painted the old boat" in found.output
    info = runner.invoke(app, ["index", "info", str(built)])
    assert "4 passages in 4 videos" in info.output and "subtitles: 4" in info.output


def test_words_are_the_same_in_any_wording(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = ("red tractor", "a red tractor", "there is a red tractor", "a video of a red tractor")
    read: list[str] = []
    monkeypatch.setattr(words, "encoder_digest", lambda: "e")
    monkeypatch.setattr(words, "sentence_vectors", lambda sentences: read.extend(sentences) or np.eye(4))
    assert len({query.terms for query in words.word_queries(forms, "e")}) == 1
    assert read == ["red tractor"] * 4, "and so is their meaning"


def test_an_open_index_still_finds_words_when_their_files_are_replaced(index: Path) -> None:
    """By a writer that merges segments, and in any thread of a server."""
    with open_index(index) as opened:
        with open_index(index) as writer:
            writer.remove("boat.mp4")
        before = {entry.name for entry in IndexStore.open(index).manifest.passages}
        compact_index(index)
        assert not before & {path.name for path in (index / "segments").iterdir()}
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(opened.search, ["someone paints the old boat in the harbour"] * 8))
    assert {Path(answer[0].video).name for answer in found} == {"boat.mp4"}
    assert all(answer[0].quotes for answer in found)


def test_films_that_look_alike_and_say_different_things_are_no_copies(tmp_path: Path) -> None:
    for seconds, name in enumerate(
        ("boat", "clock", "train"), start=4
    ):  # of other lengths: equal files are one
        film(tmp_path / f"{name}.mp4", float(seconds), scene=("red", "circle", "sea", "left"))
        subtitle(tmp_path / f"{name}.mp4", WORDS[name])
    holmes.build_index(tmp_path / "index", tmp_path, hear=False)
    hear_index(tmp_path / "index", ONLY_SUBTITLES)
    answer = open_index(tmp_path / "index", device="cpu").search("my grandfather repaired clocks")
    assert Path(answer[0].video).stem == "clock" and answer.diagnosis.kind == "precise"
    assert answer.diagnosis.group == 1 and "same moment" not in answer.diagnosis.explanation
