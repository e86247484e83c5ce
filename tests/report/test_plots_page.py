"""The page needs nothing else, says what it leaves out, and takes all text literally."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from figure_data import report_data
from holmes.report.figures.page import Section, page, write_page
from holmes.report.figures.report import report_pictures, report_sections

VOID = {"meta", "img", "source", "br"}


class Checker(HTMLParser):
    """Collects what a page refers to, and sees that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.titles: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "iframe", "object", "embed")
        self.references += [value for name, value in attributes if name in ("src", "href", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] == "h2":
            self.titles.append(data)


def read(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def whole() -> str:
    data = report_data(compare=True)
    return page(data.title, data.lead, report_sections(data))


def test_the_page_needs_nothing_from_elsewhere(whole):
    checker = read(whole)
    assert all(reference.startswith(("#", "data:image/")) for reference in checker.references)
    assert not re.search(r"https?:|url\(|@import", whole)
    pictures = [reference for reference in checker.references if reference.startswith("data:")]
    assert len(pictures) == 14  # seven figures, light and dark
    for picture in pictures:
        root = ElementTree.fromstring(base64.b64decode(picture.partition("base64,")[2]))
        for element in root.iter():
            for name, value in element.attrib.items():
                if name.endswith("href"):
                    assert value.startswith(("#", "data:image/")), value


def test_light_and_dark_figures_differ(whole):
    for figure in re.findall(r"<picture>(.*?)</picture>", whole):
        dark, light = re.findall(r'(?:srcset|src)="([^"]+)"', figure)
        assert dark != light


def test_links_lead_to_the_sections(whole):
    checker = read(whole)
    assert checker.titles == [
        "The run", "Results", "Training", "Which queries find their video", "Kinds of query", "Moments",
        "Speed",
    ]  # fmt: skip
    targets = [reference[1:] for reference in checker.references if reference.startswith("#")]
    assert targets == re.findall(r'<section id="(\w+)"', whole)


def test_the_page_says_what_the_run_is_and_how_good(whole):
    text = read(whole).text
    for words in ("Holmes: small on planted", "SumR 145.0 on the test split", "honest: the epoch", "156.8"):
        assert words in text
    assert "12.50 steps/s" in text  # the median of 10, 11, 14, 19
    assert "30.0 % (with L_intra) and 30.0 % (without); by chance 20.0 %" in text
    assert "31.0 % of the mass lies inside the moment with the dustbin, 28.0 % without" in text


def test_text_is_taken_literally(whole):
    text = read(whole).text
    for words in ("worlds/<first>", "Other <method>", "not <comparable>"):
        assert words in text and words not in whole


@pytest.fixture
def undrawn(monkeypatch):
    """Pages whose words matter, not their figures."""
    monkeypatch.setattr("holmes.report.figures.page.data_uri", lambda figure: "data:image/svg+xml,")


def test_what_there_is_no_data_for_is_left_out_and_said(undrawn):
    data = report_data(moments=False, kinds=False)
    assert set(report_pictures(data)) == {"progress", "losses", "plane", "examples", "transport"}
    text = read(page(data.title, data.lead, report_sections(data))).text
    assert "Left out: recall by kind of query and by moment / video, unknown in this store." in text
    assert "Left out: the timelines; no moment of this split is known." in text
    only_kinds = report_data(moments=False)
    assert "recall" in report_pictures(only_kinds)
    text = "".join(section.html for section in report_sections(only_kinds))
    assert "Left out: recall by moment / video, unknown in this store." in text


def test_another_section_finds_its_place(undrawn):
    titles = [section.title for section in report_sections(report_data(), [Section("How sure", "<p>so</p>")])]
    assert titles.index("Kinds of query") + 1 == titles.index("How sure") < titles.index("Moments")


def test_every_picture_moves_the_bar_once(undrawn):
    data, moved = report_data(), []
    report_sections(data, advance=moved.append)
    assert sum(moved) == len(report_pictures(data))


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "new" / "report.html"
    write_page(target, "title", "lead", [Section("one", "<p>text</p>")])
    assert read(target.read_text()).titles == ["one"]

    def fails(*words: object) -> str:
        raise MemoryError

    monkeypatch.setattr("holmes.report.figures.page.page", fails)
    with pytest.raises(MemoryError):
        write_page(target, "title", "lead", [])
    assert read(target.read_text()).titles == ["one"]
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_figures_are_saved_for_print(tmp_path):
    report_pictures(report_data())["recall"].save(tmp_path)
    assert ElementTree.parse(tmp_path / "recall.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "recall.pdf").read_bytes().startswith(b"%PDF")
