"""The commands `holmes index` and `holmes search`, as a person uses them."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from holmes.cli.index_lines import report, report_sync, say_words
from holmes.cli.main import main
from holmes.evidence.judging import Diagnosis, UncalibratedJudge
from holmes.heard.listen import NO_SOUND, NO_SPEECH
from holmes.index.ingest.builder import BuildSummary
from holmes.index.ingest.file_identity import Duplicate
from holmes.index.ingest.hearing import HearSummary
from holmes.index.ingest.sync import SyncSummary
from holmes.index.storage.maintenance import compact_index
from holmes.index.storage.manifest import Manifest
from holmes.index.storage.segments import Segment
from holmes.index.storage.writer import create_index
from holmes.media import extraction as extraction
from holmes.media.extraction import Failure
from holmes.media.feature_folder import Fingerprint
from index_fakes import FILMS, FakeJoint, every_name_loads, known_encoders, write_features
from shell import Shell


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    every_name_loads(monkeypatch, FakeJoint())  # the default one too
    monkeypatch.setenv("COLUMNS", "200")
    return Shell(monkeypatch, capsys)


def test_videos_without_speech_are_counted_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = [NO_SOUND] * 12 + [NO_SPEECH, "its sound could not be heard to the end: it is cut"]
    notes = tuple(Failure(Path(f"/films/{n}.mp4"), reason) for n, reason in enumerate(reasons))
    say_words(HearSummary(14, 0, 3, notes=notes))
    assert capsys.readouterr().err.splitlines() == [
        "12 videos have no sound",
        "1 video has sound, but no recognised speech",
        "/films/13.mp4: its sound could not be heard to the end: it is cut",
        "14 videos searched for words: 3 passages, 0 failed",
    ]


def test_copies_are_named_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    copies = tuple(Duplicate(Path(f"/films/{n}.mp4"), Path("/films/a.mp4")) for n in "bc")
    report(Path("INDEX"), BuildSummary(1, 0, (), duplicates=copies))
    report_sync(Path("INDEX"), SyncSummary(1, 3, (), duplicates=copies[:1]), quiet=False)
    named = [f"left out /films/{n}.mp4: it is the same as /films/a.mp4" for n in "bcb"]
    assert capsys.readouterr().err.splitlines() == [
        *named[:2],
        "1 video added, 0 already there, 2 copies, 0 failed: INDEX",
        named[2],
        "1 video added, 0 moved, 0 removed, 3 unchanged, 1 copy, 0 failed: INDEX",
    ]


def test_the_life_of_an_index(shell: Shell, tmp_path: Path) -> None:
    features, index = write_features(tmp_path / "features", FILMS).path, tmp_path / "index"
    code, _, said = shell("index", "build", index, features)
    assert code == 0 and "3 videos added, 0 already there, 0 failed" in said
    code, said, _ = shell("index", "info", index)
    assert code == 0 and "zero-shot" in said and "fake" in said
    code, said, _ = shell("index", "info", index, "--json")
    known = json.loads(said)
    assert known["videos"] == 3 and known["model"]["digest"] == FakeJoint.digest and len(known["names"]) == 3

    code, said, _ = shell("search", index, "dog runs beach")
    assert code == 0 and "/films/coast.mp4" in said and "█" in said
    code, said, _ = shell("search", index, "dog runs beach", "--json")
    moment = json.loads(said)["hits"][0]["moments"][0]
    assert moment["start"] == pytest.approx(20, abs=2.5) and moment["end"] == pytest.approx(30, abs=2.5)
    code, said, _ = shell("search", index, "dog runs beach", "--json", "--top", "1", "--filter", "street*")
    assert code == 0 and [hit["video"] for hit in json.loads(said)["hits"]] == ["/films/street.mp4"]
    code, said, _ = shell(
        "search", index, "--json", typed="dog runs beach\nwater boils\n\n  \ndog runs beach\n"
    )
    best = [json.loads(line)["hits"][0]["video"] for line in said.splitlines()]
    assert best == ["/films/coast.mp4", "/films/kitchen.mp4", "/films/coast.mp4"], "a blank line is nothing"
    code, said, _ = shell("search", index, typed="dog runs beach\nwater boils\n")
    order = [said.index(text) for text in ("“dog runs beach”", "coast.mp4", "“water boils”")]
    assert order == sorted(order), "each sentence stands above its answer"

    code, _, said = shell("index", "remove", index, "*/coast.mp4", "/films/street.mp4")
    assert code == 0 and "2 videos removed, 1 left" in said
    code, _, said = shell("index", "compact", index)
    assert code == 0 and "freed" in said
    code, _, said = shell("index", "check", index)
    assert code == 0 and "1 video in 1 segment, all intact" in said
    code, _, said = shell("index", "add", index, features)
    assert code == 0 and "2 videos added, 1 already there" in said


def test_below_the_wanted_probability_it_says_so(shell: Shell, tmp_path: Path) -> None:
    features, index = write_features(tmp_path / "features", FILMS).path, tmp_path / "index"
    shell("index", "build", index, features)
    sure = Diagnosis((0.9,), {}, "precise", "One fits.", "Name the dog.", 0.7, (0.7,))
    shell.monkeypatch.setattr(UncalibratedJudge, "__call__", lambda self, candidates: [sure])
    code, said, _ = shell("search", index, "dog", "--abstain-below", "0.6")
    assert code == 0 and "70%" in said and "/films/" in said
    code, said, _ = shell("search", index, "dog", "--abstain-below", "0.8")
    assert code == 0 and "/films/" not in said and "precise" not in said and "One fits" not in said
    assert (
        said
        == "I do not know  The likeliest video has 70%, less than the 80% you asked for.\nName the dog.\n"
    )


def test_mistakes_exit_with_2_and_one_line(shell: Shell, tmp_path: Path) -> None:
    features, index = write_features(tmp_path / "features", FILMS).path, tmp_path / "index"
    shell("index", "build", index, features)
    rows = next(index.rglob("rows.f16"))
    for words in (
        ["search", tmp_path / "none", "dog"],
        ["search", index, " "],
        ["search", index, "dog", "--min-probability", "0.5", "--model", tmp_path / "none"],
        ["index", "calibrate", index, tmp_path / "none.csv"],
        ["search", index, "dog", "--filter", "*.avi"],
        ["index", "info", features],
        ["index", "remove", index, "nothing"],
        ["index", "add", tmp_path / "none", features],
    ):
        code, _, said = shell(*words)
        assert code == 2 and said.startswith("holmes: ") and said.count("\n") == 1, (words, said)
    rows.write_bytes(bytes(rows.stat().st_size))
    code, _, said = shell("index", "check", index)
    assert code == 2 and str(rows) in said and said.count("\n") == 1
    assert f"Remove {index} and build it again" in said
    code, _, said = shell("index", "compact", index)
    assert code == 2 and str(rows) in said, "damage is not made to look sound"
    shutil.rmtree(index)
    assert shell("index", "build", index, features)[0] == 0 and shell("index", "check", index)[0] == 0


@pytest.mark.parametrize("typed", [True, False])
def test_a_sentence_that_is_no_text_is_one_line(shell: Shell, tmp_path: Path, typed: bool) -> None:
    features, index = write_features(tmp_path / "features", FILMS).path, tmp_path / "index"
    shell("index", "build", index, features)
    sentence = b"caf\xe9 bar"
    if typed:
        shell.stdin = io.TextIOWrapper(io.BytesIO(sentence), encoding="utf-8")
        code, _, said = shell("search", index)
    else:
        code, _, said = shell("search", index, os.fsdecode(sentence))
    assert code == 2 and "not valid UTF-8" in said and said.count("\n") == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_prompt_stays_out_of_a_file_of_answers(shell: Shell, tmp_path: Path) -> None:
    index = tmp_path / "index"
    shell("index", "build", index, write_features(tmp_path / "features", FILMS).path)
    shell.stdin = Terminal("dog runs beach\n\n")
    code, said, asked = shell("search", index, "--json")
    assert code == 0 and json.loads(said)["query"] == "dog runs beach"
    assert asked.count("what happens?") == 2


def test_nothing_to_read_from_is_no_sentence(shell: Shell, tmp_path: Path) -> None:
    index = tmp_path / "index"
    shell("index", "build", index, write_features(tmp_path / "features", FILMS).path)
    shell.monkeypatch.setattr(sys, "argv", ["holmes", "search", str(index)])
    shell.monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code


def test_a_terminal_without_the_characters_still_shows_an_answer(shell: Shell, tmp_path: Path) -> None:
    index, plain = tmp_path / "index", io.BytesIO()
    shell("index", "build", index, write_features(tmp_path / "features", FILMS).path)
    shell.monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(plain, encoding="latin-1", write_through=True))
    shell("search", index, "dog runs beach")
    assert "/films/coast.mp4" in plain.getvalue().decode("latin-1")


def test_check_reads_the_features_too(shell: Shell, tmp_path: Path) -> None:
    index = tmp_path / "index"
    shell("index", "build", index, write_features(tmp_path / "features", FILMS).path)
    kept = write_features(index / "features", FILMS)
    assert shell("index", "check", index)[0] == 0
    file = kept.file(kept.ids()[0])
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    code, _, said = shell("index", "check", index)
    assert code == 2 and f"{file} is damaged" in said


def test_names_are_shown_without_control_characters(shell: Shell, tmp_path: Path) -> None:
    strange = "a\x1b[31m\n[/red]\udce9"
    features, index = (
        write_features(tmp_path / "features", {strange: [("dog runs beach", 10)]}),
        tmp_path / "index",
    )
    features.write(replace(features[features.ids()[0]], note="it\nends"), Fingerprint(1, 1))
    features.file("bad\x1b[2J").write_bytes(b"")
    code, _, said = shell("index", "build", index, features.path)
    assert code == 1 and "\x1b" not in said and r"bad\x1b[2J.safetensors: " in said
    assert r"read in part /films/a\x1b[31m\n[/red]\udce9.mp4: it\nends" in said
    code, said, _ = shell("search", index, "dog")
    assert code == 0 and r"/films/a\x1b[31m\n[/red]\udce9.mp4" in said


def test_info_shows_any_path_of_a_model(shell: Shell, tmp_path: Path) -> None:
    backbone = {"name": "e[/bold]", "digest": "d", "width": 8, "joint": True}
    model = {"kind": "holmes", "name": "/x[/red]y\x1b", "digest": "m"}
    create_index(tmp_path / "index", Manifest(model, {"backbone": backbone, "rate": 2.0}, 8, 32))
    code, said, _ = shell("index", "info", tmp_path / "index")
    assert code == 0 and r"/x[/red]y\x1b (holmes, m)" in said and "e[/bold], 2.0 per second" in said


def test_a_name_that_is_too_long_stops_no_other_video(shell: Shell, tmp_path: Path) -> None:
    features, index = write_features(tmp_path / "features", FILMS).path, tmp_path / "index"
    known_encoders(shell.monkeypatch, FakeJoint())
    code, _, said = shell("index", "build", index, features, "x" * 300, "--workers", "1")
    assert code == 1 and "3 videos added" in said and said.count("left out") == 1


def test_an_exact_name_is_no_pattern_and_a_folder_is_its_videos(shell: Shell, tmp_path: Path) -> None:
    scenes = {name: [("dog runs beach", 4)] for name in ("clip[1]", "clip1", "day/one", "day/two", "days")}
    features, index = write_features(tmp_path / "features", scenes).path, tmp_path / "index"
    shell("index", "build", index, features)
    code, _, said = shell("index", "remove", index, "clip[1].mp4")
    assert code == 0 and "removed /films/clip[1].mp4\n" in said and "1 video removed, 4 left" in said
    code, _, said = shell("index", "remove", index, "clip[1].mp4")  # now it can only be a pattern
    assert code == 0 and "removed /films/clip1.mp4\n" in said
    code, said, _ = shell("search", index, "dog", "--json", "--filter", "/films/day")
    assert {hit["video"] for hit in json.loads(said)["hits"]} == {"/films/day/one.mp4", "/films/day/two.mp4"}
    code, _, said = shell("index", "remove", index, "/films/day")
    assert code == 0 and "2 videos removed, 1 left" in said and "/films/days.mp4" not in said
    code, _, said = shell("index", "check", index)
    assert code == 0 and "files of 1 video are gone, such as /films/days.mp4" in said
    code, said, _ = shell("search", index, "dog")
    assert "file is gone" in said


def test_check_looks_again_when_a_compaction_replaces_what_it_reads(shell: Shell, tmp_path: Path) -> None:
    index = tmp_path / "index"
    shell("index", "build", index, write_features(tmp_path / "features", FILMS).path)
    shell("index", "remove", index, "coast.mp4")
    read, compacted = Segment.faults, []

    def faults(self: Segment) -> list[str]:
        if not compacted:  # between the opening of the index and the reading of its files
            compacted.append(True)
            compact_index(index)
        return read(self)

    shell.monkeypatch.setattr(Segment, "faults", faults)
    code, _, said = shell("index", "check", index)
    assert code == 0 and compacted and "2 videos in 1 segment, all intact" in said


def test_features_that_may_not_be_read_are_not_called_sound(shell: Shell, tmp_path: Path) -> None:
    index = tmp_path / "index"
    shell("index", "build", index, write_features(tmp_path / "features", FILMS).path)
    kept = write_features(index / "features", FILMS)
    scan, stat = os.scandir, os.stat

    def denied(ask: object, place: Path) -> object:
        def guarded(path: object, *rest: object, **more: object) -> object:
            if str(path).startswith(str(place)):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return ask(path, *rest, **more)

        return guarded

    for name, guarded in (("scandir", denied(scan, kept.videos)), ("stat", denied(stat, kept.path))):
        with shell.monkeypatch.context() as patched:
            patched.setattr(os, name, guarded)
            code, _, said = shell("index", "check", index)
        assert code == 2 and "Permission denied" in said and str(kept.path) in said, (name, said)


def test_watching_reports_a_failure_once(shell: Shell, tmp_path: Path) -> None:
    def watched(sync: object, folders: list[Path], every: float) -> list[str]:
        assert callable(sync) and folders == [tmp_path] and every == 30.0
        return ["the share is not connected."] * 2

    shell.monkeypatch.setattr("holmes.index.ingest.sync.watch_folders", watched)
    code, _, said = shell("index", "sync", tmp_path / "index", tmp_path, "--watch")
    assert code == 0 and said.count("the share is not connected.") == 1
