"""The commands `holmes index` and `holmes search`, as a person uses them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from holmes.cli.main import main
from holmes.index import embedders
from holmes.index.diagnose import PlainDiagnose, PlainDiagnosis
from index_fakes import FILMS, FakeJoint, write_features


class Shell:
    """Runs commands in this process: exit code, standard output, standard error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *words: str | Path, typed: str = "") -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["holmes", *map(str, words)])
        self.monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        with pytest.raises(SystemExit) as ended:
            main()
            sys.exit(0)
        said = self.capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setattr(embedders, "load_visual", lambda name: FakeJoint())
    monkeypatch.setenv("COLUMNS", "200")
    return Shell(monkeypatch, capsys)


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
    code, said, _ = shell("search", index, "--json", typed="dog runs beach\nwater boils\n\nnot asked\n")
    best = [json.loads(line)["hits"][0]["video"] for line in said.splitlines()]
    assert best == ["/films/coast.mp4", "/films/kitchen.mp4"]

    code, _, said = shell("index", "remove", index, "*/coast.mp4", "/films/street.mp4")
    assert code == 0 and "2 videos removed, 1 left" in said
    code, _, said = shell("index", "compact", index)
    assert code == 0 and "freed" in said
    code, _, said = shell("index", "check", index)
    assert code == 0 and "1 video in 1 segments, all as written" in said
    code, _, said = shell("index", "add", index, features)
    assert code == 0 and "2 videos added, 1 already there" in said


def test_below_the_wanted_probability_it_says_so(shell: Shell, tmp_path: Path) -> None:
    features, index = write_features(tmp_path / "features", FILMS).path, tmp_path / "index"
    shell("index", "build", index, features)
    sure = PlainDiagnosis((0.9,), {}, "precise", "One fits.", "Name the dog.", 0.7, (0.7,))
    shell.monkeypatch.setattr(PlainDiagnose, "__call__", lambda self, *scores: [sure])
    code, said, _ = shell("search", index, "dog", "--abstain-below", "0.6")
    assert code == 0 and "probability 0.70" in said and "/films/" in said
    code, said, _ = shell("search", index, "dog", "--abstain-below", "0.8")
    assert code == 0 and "I do not know. Name the dog." in said and "/films/" not in said


def test_mistakes_exit_with_2_and_one_line(shell: Shell, tmp_path: Path) -> None:
    features, index = write_features(tmp_path / "features", FILMS).path, tmp_path / "index"
    shell("index", "build", index, features)
    rows = next(index.rglob("rows.f16"))
    for words in (
        ["search", tmp_path / "none", "dog"],
        ["search", index, " "],
        ["search", index, "dog", "--abstain-below", "0.5"],
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
