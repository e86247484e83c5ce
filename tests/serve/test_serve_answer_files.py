"""Cut lists that editors read: the frames are the moments' own."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from holmes.serve.answer_files import Cut, as_csv, as_edl, as_otio, cuts, timecode

CUTS = [
    Cut(1, "/films/a b.mp4", 3.0, 7.5, 0.9, 0.5, 0.75, 60.0),
    Cut(1, "/films/a b.mp4", 20.02, 20.02, 0.9, 0.5, 0.75, 60.0),
    Cut(2, "/films/=cmd|' /C calc'!A0.mp4", 3599.96, 3661.0, 0.4, 0.2, None, 4000.0),
]


def frames(code: str, rate: int) -> int:
    hours, minutes, seconds, rest = map(int, code.split(":"))
    assert minutes < 60 and seconds < 60 and rest < rate
    return ((hours * 60 + minutes) * 60 + seconds) * rate + rest


@pytest.mark.parametrize("rate", [24, 25, 30])
def test_an_edl_has_the_moments_end_to_end(rate: int) -> None:
    text = as_edl(CUTS, "dogs\nrun", rate)
    assert text.startswith("TITLE: dogs?run\nFCM: NON-DROP FRAME\n")
    events = re.findall(r"^(\d{3})  \S+ +V     C        (\S+) (\S+) (\S+) (\S+)$", text, re.M)
    at = 0
    for number, (cut, event) in enumerate(zip(CUTS, events, strict=True), 1):
        start, end, record_start, record_end = (frames(code, rate) for code in event[1:])
        assert int(event[0]) == number and record_start == at and record_end - at == end - start >= 1
        assert start / rate <= cut.start < (start + 1) / rate + 1e-6
        assert end / rate >= cut.end - 1e-6 and end / rate < max(cut.end, start / rate) + 2 / rate
        at = record_end
    assert "* FROM CLIP NAME: a b.mp4" in text and "* SOURCE FILE: /films/a b.mp4" in text


def test_timecodes_by_hand() -> None:
    assert timecode(0, 25) == "00:00:00:00" and timecode(24, 25) == "00:00:00:24"
    assert timecode(25 * 3661 + 3, 25) == "01:01:01:03"


def test_otio_has_the_form_that_its_readers_expect() -> None:
    timeline = json.loads(as_otio(CUTS, "dogs run", 25))
    assert timeline["OTIO_SCHEMA"] == "Timeline.1" and timeline["tracks"]["OTIO_SCHEMA"] == "Stack.1"
    (track,) = timeline["tracks"]["children"]
    assert track["OTIO_SCHEMA"] == "Track.1" and track["kind"] == "Video"
    for cut, clip in zip(CUTS, track["children"], strict=True):
        span = clip["source_range"]
        assert clip["OTIO_SCHEMA"] == "Clip.1" and span["OTIO_SCHEMA"] == "TimeRange.1"
        assert span["start_time"]["value"] / 25 == pytest.approx(cut.start, abs=0.021)
        assert span["duration"]["value"] / 25 == pytest.approx(max(cut.end - cut.start, 0.04), abs=0.041)
        assert clip["media_reference"]["OTIO_SCHEMA"] == "ExternalReference.1"
        assert clip["media_reference"]["target_url"].startswith("file:///films/")
    assert track["children"][0]["media_reference"]["target_url"] == "file:///films/a%20b.mp4"


def test_a_table_has_a_row_for_each_moment_and_runs_nothing() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(CUTS))))
    assert [row["video"] for row in rows] == [cut.video for cut in CUTS]
    assert float(rows[0]["start"]) == 3.0 and rows[2]["probability"] == ""
    (row,) = csv.DictReader(io.StringIO(as_csv([Cut(1, "=HYPERLINK(1)", 0, 1, 0, 0, None, 1)])))
    assert row["video"] == "'=HYPERLINK(1)"


def test_every_moment_of_every_hit_is_a_cut() -> None:
    moments = [{"start": 1.0, "end": 2.0, "score": 0.5}, {"start": 5.0, "end": 4.0, "score": 0.4}]
    hit = {
        "name": "/a.mp4",
        "score": 1.0,
        "belief": 0.5,
        "probability": None,
        "duration": 9.0,
        "moments": moments,
    }
    found = cuts([hit, hit])
    assert [(cut.rank, cut.start, cut.end) for cut in found] == [(1, 1, 2), (1, 5, 5), (2, 1, 2), (2, 5, 5)]
