"""`holmes.connect(URL)`: the same answers as the index itself, through a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import holmes
from browser import serving
from holmes.errors import HolmesError
from holmes.index.answer.answers import Hit
from holmes.index.answer.searcher import Index
from holmes.serve.settings import ServeSettings
from serve_fakes import FILMS, PLENTY, FakeDiagnose, build, open_fake

TOKEN = "sixteen characters or more"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("client")
    with pytest.MonkeyPatch.context() as monkeypatch:
        build(folder)
        yield open_fake(folder / "index", monkeypatch, FakeDiagnose())


@pytest.fixture(scope="module")
def address(index: Index) -> Iterator[str]:
    with serving(index, ServeSettings(token=TOKEN, limits=PLENTY)) as address:
        yield address


def test_answers_are_those_of_the_index(index: Index, address: str) -> None:
    remote = holmes.connect(address + "/", token=TOKEN)
    assert len(remote) == len(FILMS) and remote.videos == index.videos
    for sentence in ("dog runs beach", "man eats soup", "chess"):
        there, here = remote.search(sentence, top=2), index.search(sentence, top=2)
        assert json.dumps(there.to_dict(), sort_keys=True) == json.dumps(here.to_dict(), sort_keys=True)
        assert isinstance(there.hits[0], Hit) and there.hits[0].moments == here.hits[0].moments
    sentences = ["sun sets", "dog"] * 50  # more than one request takes
    many = remote.search_many(sentences, top=1, filter="*/beach/*")
    assert [answer.query for answer in many] == sentences
    assert many[0].hits[0].video == index.search("sun sets", filter="*/beach/*").hits[0].video
    assert remote.search("dog", abstain_below=0.99).abstained and not remote.search("dog").abstained


def test_what_is_wrong_is_one_line(address: str) -> None:
    remote = holmes.connect(address, token=TOKEN)
    for make, words in (
        (lambda: remote.search(""), "the sentence is empty"),
        (lambda: remote.search("dog", top=1000), "top: "),
        (lambda: remote.search("dog", filter="*/nowhere/*"), "no video matches"),
        (lambda: remote.search_many("dog"), "takes a list"),
        (lambda: holmes.connect(address, token="wrong").search("dog"), "a token is required"),
        (lambda: holmes.connect("films"), "is not the address of a server"),
        (lambda: holmes.connect("file:///etc/passwd"), "is not the address of a server"),
        (lambda: holmes.connect("http://127.0.0.1:9"), "is 'holmes serve' running"),
        (lambda: holmes.connect(address + "/static"), "not found"),
    ):
        with pytest.raises(HolmesError, match=words) as error:
            make()
        assert "\n" not in str(error.value)
