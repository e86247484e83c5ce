"""The `holmes` command itself: one line for every mistake, the right exit code, help when asked for."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from holmes.base.printing import printable
from holmes.cli import main as command
from holmes.errors import HolmesError


@pytest.fixture
def holmes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs a command in this process: exit code, standard output, standard error."""

    def run(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["holmes", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            command.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.mark.parametrize(
    "words,reason",
    [
        (("search", "x", "y", "--top", "0"), "Invalid value '0' for '--top'"),
        (("search", "x", "y", "--top", "many"), "Invalid value 'many' for '--top'"),
        (("search", "x", "y", "--nope"), "--nope"),
        (("search",), "INDEX"),
        (("extract", "x", "--out"), "--out"),
        (("serch", "x", "y"), "Did you mean 'search'"),
        (("index", "bild"), "Did you mean 'build', 'rebuild'?"),
    ],
)
def test_wrong_options_and_commands_are_one_line(holmes, words, reason) -> None:
    code, shown, said = holmes(*words)
    assert code == 2 and not shown
    assert said.startswith("holmes: ") and said.count("\n") == 1
    assert reason in said and "--help'" in said


@pytest.mark.parametrize("words,code", [((), 2), (("index",), 2), (("--help",), 0), (("search", "-h"), 0)])
def test_help_is_shown_whole(holmes, words, code) -> None:
    ended, shown, said = holmes(*words)
    assert ended == code and not said
    assert "Usage:" in shown and shown.count("\n") > 10


def test_names_the_system_refuses_are_one_line(holmes, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in (tmp_path / "loop", tmp_path / ("long" * 100)):
        code, _, said = holmes("index", "info", place)
        assert code == 2 and said.count("\n") == 1 and str(place) in said


@pytest.mark.parametrize(
    "mistake,line",
    [
        (HolmesError("no \x1b[31msuch\nfile"), "holmes: no \\x1b[31msuch\\nfile\n"),
        (OSError(errno.EIO, "Input/output error", "/a/b"), "holmes: Input/output error: /a/b.\n"),
        (OSError(errno.EMFILE, "Too many open files"), "holmes: Too many open files.\n"),
        (OSError(errno.ENOTEMPTY, "Directory not empty", "/a"), "holmes: Directory not empty: /a.\n"),
    ],
)
def test_mistakes_are_one_line(holmes, monkeypatch, mistake, line) -> None:
    def fails(standalone_mode: bool) -> None:
        raise mistake

    monkeypatch.setattr(command, "app", fails)
    assert holmes() == (2, "", line)


def test_other_faults_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(standalone_mode: bool) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(command, "app", fails)
    with pytest.raises(OSError, match="Bad file"):
        command.main()


def test_an_interruption_says_how_to_go_on(holmes, monkeypatch, tmp_path: Path) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("holmes.media.extraction.extract", interrupted)
    code, _, said = holmes("extract", tmp_path, "--out", tmp_path / "features")
    assert code == 130 and said == "holmes: interrupted; run the same command again to continue.\n"


def test_unprintable_characters_are_escaped() -> None:
    assert printable("фильм 🎬 [a]\u3000ü.mp4") == "фильм 🎬 [a]\u3000ü.mp4"
    assert printable("a\nb\x1b[2J\x9b\udcff\u2028") == r"a\nb\x1b[2J\x9b\udcff\u2028"
