"""`holmes extract`: what it says of each file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("av")
from holmes.cli.main import main
from holmes.media.extraction import extract
from mean_colour import MeanColour, seconds_of_gray


def test_files_left_out_and_read_in_part_are_named_a_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    videos, features = tmp_path / "videos", tmp_path / "features"
    videos.mkdir()
    whole = seconds_of_gray(videos / "whole.mkv", *range(20, 120, 10))
    (videos / "cut.mkv").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    (videos / "a\n\x1b[31mb.mp4").touch()

    def with_toy_encoder(videos: list[Path], out: Path, *_: object, **__: object):
        return extract(videos, out, MeanColour())

    monkeypatch.setattr("holmes.media.extraction.extract", with_toy_encoder)
    monkeypatch.setattr(sys, "argv", ["holmes", "extract", str(videos), "--out", str(features)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    part, left_out, total = capsys.readouterr().err.splitlines()
    assert part.startswith(f"read in part {videos}/cut.mkv: it has pictures for ")
    assert left_out == rf"left out {videos}/a\n\x1b[31mb.mp4: it is empty"
    assert total == f"2 videos extracted in 0 s, 0 already there, 1 failed: {features}"
