"""The search command filters like the page, links to it, and opens a player."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from colour_films import Library, library  # noqa: F401 - a fixture
from holmes.cli import main
from holmes.cli.options import parse_time
from holmes.errors import HolmesError
from holmes.media.feature_folder import video_id


@pytest.fixture
def films(library: Library) -> Library:  # noqa: F811
    library.film("old/long.mp4", 10, 60, 110, 160, 210, 250)
    os.utime(library.films / "old" / "long.mp4", (0, 86400 * 366))
    library.build()
    return library


@pytest.fixture
def run(films: Library, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*options: str, code: int = 0) -> list[dict] | str:
        command = ["holmes", "search", str(films.index), "something bright", "--json", *options]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            main.main()
        out, err = capsys.readouterr()
        assert (ended.value.code or 0) == code, err
        return err.strip() if code else json.loads(out)["hits"]

    return run


def names(hits: list[dict]) -> set[str]:
    return {Path(hit["video"]).name for hit in hits}


def test_filters_are_those_of_the_page(run, films: Library) -> None:
    everything = {"a.mp4", "b.mp4", "c.mp4", "long.mp4"}
    assert names(run()) == everything
    assert names(run("--in", str(films.films / "old"))) == {"long.mp4"}
    assert names(run("--before", "1990-01-01")) == {"long.mp4"}
    assert names(run("--after", "1990-01-01")) == everything - {"long.mp4"}
    assert names(run("--longer", "0:04")) == {"long.mp4"}
    assert names(run("--shorter", "4", "--filter", "b*")) == {"b.mp4"}
    assert "no video matches the filters" in run("--longer", "1:00:00", code=2)
    assert "write a day as 2024-12-31" in run("--after", "1.1.1990", code=2)
    assert "write a time as 90" in run("--longer", "soon", code=2)


def test_links_open_the_page_at_the_moment(run) -> None:
    for hit in run("--links", "https://films.example:8443/holmes/"):
        link = urlsplit(hit["link"])
        assert (link.scheme, link.netloc, link.path) == ("https", "films.example:8443", "/holmes/")
        asked = parse_qs(link.query)
        assert asked["q"] == ["something bright"] and asked["play"] == [video_id(Path(hit["video"]))]
        assert float(asked["t"][0]) == pytest.approx(hit["moments"][0]["start"], abs=0.06)
    assert "write the address of the page" in run("--links", "films.example", code=2)


@pytest.mark.parametrize(
    ("player", "start"),
    [("mpv", "--start="), ("vlc", "--start-time="), ("ffplay", "-ss"), ("xdg-open", None)],
)
def test_a_player_opens_at_the_moment(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, player: str, start: str | None
) -> None:
    bin, told = tmp_path / "bin", tmp_path / "told"
    bin.mkdir()
    (bin / player).write_text(f'#!/bin/sh\nfor each in "$@"; do echo "$each"; done > "{told}"\n')
    (bin / player).chmod(0o755)
    monkeypatch.setenv("PATH", str(bin))
    hits = run("--play", "--filter", "long*")
    given = told.read_text().splitlines()
    assert given[-1] == hits[0]["video"] and (start is None or any(each.startswith(start) for each in given))
    if start and start.endswith("="):
        second = next(each for each in given if each.startswith(start)).removeprefix(start)
        assert float(second) == pytest.approx(hits[0]["moments"][0]["start"], abs=0.001)


def test_without_a_player_it_says_so(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run("--play", code=2) == "holmes: there is no player; install one of mpv, vlc, ffplay."


def test_times_as_people_write_them() -> None:
    assert [parse_time("x", text) for text in ("90", "1:30", "1:02:00", "0.5")] == [90, 90, 3720, 0.5]
    for wrong in ("", "-1", "1:2:3:4", "1e9", "nan"):
        with pytest.raises(HolmesError, match="write a time"):
            parse_time("--longer", wrong)
