"""Typed reading by itself: every kind of hint, its bounds, and the one line about what does not fit."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from altering import VALUES, altered, key_paths
from by_hand import reseal
from data_layouts import random_store
from holmes.base.files import exchange, read_json, spelt, write_json
from holmes.base.manifests import FileFormat
from holmes.base.printing import printable, shown
from holmes.base.validation import AtMost, Count, Infinite, Matching, PlainName, Sha256, Within, build
from holmes.errors import HolmesError, unknown
from holmes.evidence.calibration import Calibration, read_calibration
from shell import Shell


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    width: Annotated[int, Within(1, 10)]


@dataclass(frozen=True)
class Outer:
    name: PlainName
    inner: Inner
    pair: tuple[int, float] = (1, 2.0)
    many: Annotated[tuple[float | None, ...], AtMost(3)] = ()
    colour: Colour = Colour.RED
    kind: Literal["a", "b"] = "a"
    flag: bool = False
    entries: dict[PlainName, Count] = field(default_factory=dict)
    free: Any = None
    best: Annotated[float, Infinite()] = 0.0

    def __post_init__(self) -> None:
        if self.name == "forbidden":
            raise HolmesError("name must not be forbidden.")


GOOD = {
    "name": "x", "inner": {"width": 3}, "pair": [4, 5], "many": [1, None, 2.5], "colour": "blue", "kind": "b",
    "flag": True, "entries": {"e": 7}, "free": {"deep": [1, {"x": None}]}, "best": float("-inf"),
}  # fmt: skip


def test_what_fits_is_built() -> None:
    built = build(Outer, json.loads(json.dumps(GOOD)))
    assert built == Outer(
        "x", Inner(3), (4, 5.0), (1.0, None, 2.5), Colour.BLUE, "b", True, {"e": 7},
        {"deep": [1, {"x": None}]}, float("-inf"),
    )  # fmt: skip
    assert type(built.pair[1]) is float and build(Outer, {"name": "x", "inner": {"width": 3}}).kind == "a"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"name": 5}, "name is 5, not text"),
        ({"name": "a/b"}, "name is 'a/b', not a plain name"),
        ({"name": ".."}, "not a plain name"),
        ({"name": "x" * 201}, "not a plain name"),
        ({"name": "forbidden"}, "name must not be forbidden"),
        ({"inner": {"width": 11}}, "inner.width is 11, not between 1 and 10"),
        ({"inner": {"width": True}}, "inner.width is true, not a whole number"),
        ({"inner": {"width": 3.0}}, "inner.width is 3.0, not a whole number"),
        ({"inner": {"wdith": 3}}, "unknown inner field 'wdith'; did you mean 'width'"),
        ({"inner": {}}, "inner is incomplete: it lacks width"),
        ({"inner": [3]}, "inner must be an object, not a list of 1"),
        ({"pair": [1]}, "pair is a list of 1, not a list of 2"),
        ({"pair": [1, "2"]}, "pair.1 is '2', not a finite number"),
        ({"many": [1, 2, 3, 4]}, "many is a list of 4, not at most 3 long"),
        ({"many": [float("nan")]}, "many.0 is NaN, not a finite number"),
        ({"many": [10**400]}, "many.0 is a huge number, not a finite number"),
        ({"colour": "green"}, "colour is 'green', not one of red, blue"),
        ({"kind": 1}, "kind is 1, not one of a, b"),
        ({"flag": 1}, "flag is 1, not true or false"),
        ({"entries": {"../e": 1}}, "entries is '../e', not a plain name"),
        ({"entries": {"e": -1}}, "entries.e is -1, not between 0 and"),
        ({"free": json.loads("[" * 40 + "]" * 40)}, "at most 32 levels deep"),
        ({"free": "x" * 70_000}, "a text of at most 65536 characters"),
        ({"best": float("nan")}, "best is NaN, not a finite number"),
        ({"x" * 9999: 1}, "unknown field 'xxx"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(HolmesError) as caught:
        build(Outer, GOOD | change)
    assert message in str(caught.value) and len(str(caught.value)) < 300 and str(caught.value).endswith(".")


def test_bounds_of_text() -> None:
    build(Sha256, "0" * 64)
    for bad in ("0" * 63, "g" * 64, "0" * 64 + "\n"):
        with pytest.raises(HolmesError, match="SHA-256"):
            build(Sha256, bad)
    with pytest.raises(HolmesError, match="two letters"):
        build(Annotated[str, Matching("[a-z]{2}", "two letters")], "abc")


FORMAT = FileFormat("test-form", 2, "a test", "write it again", without_checksum=(1,))


def test_forms(tmp_path: Path) -> None:
    path = tmp_path / "form.json"
    FORMAT.write(path, {"width": 3})
    assert FORMAT.read(path, Inner) == Inner(3)
    reseal(path, width=30)
    with pytest.raises(HolmesError, match=r"form\.json is damaged: width is 30, .*; write it again\.$"):
        FORMAT.read(path, Inner)
    write_json(path, read_json(path) | {"width": 4})
    with pytest.raises(HolmesError, match="its checksum does not match"):
        FORMAT.read(path, Inner)
    write_json(path, {"format": "test-form", "version": 1, "width": 4})
    assert FORMAT.read(path, Inner) == Inner(4)
    for version in (3, True, None, "2", [], 2.5):
        reseal(path, version=version)
        with pytest.raises(HolmesError, match="describes a test of version"):
            FORMAT.read(path, Inner)


def test_files_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in ((tmp_path / "pipe", "not a regular file"), (tmp_path, "is a folder")):
        with pytest.raises(HolmesError, match=message):
            read_json(path)
    with pytest.raises(HolmesError, match="does not exist"):
        read_json(tmp_path / "nothing")
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(HolmesError, match="larger than 256 MiB"):
        read_json(tmp_path / "large")
    (tmp_path / "twice").write_text('{"a": {"b": 1, "b": 2}}')
    with pytest.raises(HolmesError, match="'b' appears twice"):
        read_json(tmp_path / "twice")


def test_names_that_are_no_text_survive_json(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9 \xff")
    write_json(tmp_path / "file.json", {name: [name, "é"]})
    assert read_json(tmp_path / "file.json") == {name: [name, "é"]}
    assert "é" in (tmp_path / "file.json").read_bytes().decode()
    for odd in ("plain", "grüße", name):
        (tmp_path / odd).write_text(odd, errors="surrogateescape")
        with spelt(tmp_path / odd) as path:
            assert path.read_bytes() == os.fsencode(odd)
            str(path).encode()


def test_two_names_are_exchanged(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "says").write_text(name)
    if exchange(tmp_path / "a", tmp_path / "b"):  # not every file system can
        assert (tmp_path / "a/says").read_text() == "b" and (tmp_path / "b/says").read_text() == "a"
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "a", tmp_path / "nothing")


@pytest.mark.parametrize(
    "text, seen",
    [
        ("plain é 漢字", "plain é 漢字"),
        ("a\u202eb\u2066c\u2069\u200f\u061c", "a\\u202eb\\u2066c\\u2069\\u200f\\u061c"),
        ("\x1b[31m\x9b\x07\r\n\t", "\\x1b[31m\\x9b\\x07\\r\\n\\t"),
        ("\u2028\ufeff\u200b\udcff", "\\u2028\\ufeff\\u200b\\udcff"),
        ("👩\u200d🚀 می\u200cخواهم", "👩\u200d🚀 می\u200cخواهم"),  # joiners are parts of words
    ],
)
def test_nothing_reorders_or_hides_what_is_printed(text: str, seen: str) -> None:
    assert printable(text) == seen


def test_values_in_messages_are_short() -> None:
    assert shown("x" * 999) == "'" + "x" * 60 + "…'" and shown([1] * 5) == "a list of 5"
    assert shown(10**400) == "a huge number" and shown({}) == "an object of 0" and shown(None) == "null"
    assert len(str(unknown("thing", "v" * 10**6, (f"name {n}" for n in range(10**4))))) < 3000


def test_markup_in_a_store_is_shown_and_not_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    random_store(tmp_path / "store")
    hostile = "[/red] [bold]x[/bold] :dog: \x1b[31m \u202e"
    reseal(tmp_path / "store/store.json", collection=hostile.replace("/", ""), provenance={"by": hostile})
    monkeypatch.setenv("COLUMNS", "200")
    code, said, _ = Shell(monkeypatch, capsys)("data", "info", tmp_path / "store")
    assert code == 0 and "by [/red] [bold]x[/bold] :dog: \\x1b[31m \\u202e" in said
    assert "\x1b" not in said and "\u202e" not in said


def test_calibrations_that_lie() -> None:
    sound = Calibration("m", 128, 0.4, 0.6, 0.05, 0.1, 0.3, 100, 500).to_dict()
    assert read_calibration(sound, "m") is not None
    for at in key_paths(sound):
        for what, new in VALUES.items():
            if what == "there twice":
                continue
            values = json.loads(altered(sound, at, new))
            try:
                found = read_calibration(values, "m")
            except HolmesError as error:
                assert len(str(error)) < 300, (at, what)
            else:
                assert found is not None and found.candidates <= 1 << 20, (at, what)
