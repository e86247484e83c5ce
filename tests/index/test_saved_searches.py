"""Searches kept with an index: what matches later is reported once, by a line, a command or a webhook."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import holmes
from browser import chromium, launched, serving, violations
from holmes.cli import index as commands
from holmes.cli.main import app, main
from holmes.errors import HolmesError
from holmes.index.answer import searches
from holmes.index.answer.notify import check_webhook, make_notifier
from holmes.index.answer.searches import read_searches, remove_search, save_search
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import add_videos
from holmes.index.ingest.sync import SyncSummary
from holmes.media.backbones.base import Identity
from holmes.media.feature_folder import FeatureFolder
from holmes.serve.settings import ServeSettings
from index_fakes import WIDTH, FakeJoint, known_encoders
from serve_fakes import FILMS, PLENTY, RATE, FakeDiagnose, add_features, build, client_of, film, open_fake

BEACH = {name: FILMS[name] for name in ("beach/coast.mp4", "beach/pier.mp4")}
KITCHEN = "home/kitchen.mkv"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of two films, and the features of a third."""
    known_encoders(monkeypatch, FakeJoint())
    build(tmp_path, BEACH)
    monkeypatch.setattr(  # probabilities as of a calibrated model
        "holmes.index.answer.searcher.choose_judge", lambda embedder, own: FakeDiagnose()
    )
    return tmp_path


def add_kitchen(folder: Path) -> None:
    features = FeatureFolder.create(folder / "more", Identity("fake", FakeJoint.digest, WIDTH, True), RATE)
    add_features(features, film(folder / "films" / KITCHEN, FILMS[KITCHEN]), FILMS[KITCHEN])
    add_videos(folder / "index", [folder / "more"], ZeroShot(FakeJoint()))  # type: ignore[arg-type]


def run(*words: object) -> int:
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr(sys, "argv", ["holmes", *map(str, words)])
        main()
    return int(ended.value.code or 0)


def test_a_new_match_is_reported_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = folder / "index"
    assert run("searches", "add", index, "man eats soup", "--name", "soup", "--least", "0.6") == 0
    assert run("searches", "add", index, "waves hit rocks") == 0
    assert "coast.mp4" in capsys.readouterr().err  # what matches now is shown, and known
    assert run("searches", "check", index) == 0
    assert "no new matches" in capsys.readouterr().err
    add_kitchen(folder)
    told = folder / "told.json"
    write = f"{sys.executable} -c \"import sys; open('{told}', 'a').write(sys.stdin.read())\""
    assert run("searches", "check", index, "--command", write) == 0
    assert "match soup: " in (said := capsys.readouterr().err) and "kitchen.mkv" in said
    match = json.loads(told.read_text())
    assert match["search"] == "soup" and match["video"].endswith(KITCHEN) and match["probability"] >= 0.6
    assert 8 <= match["start"] < match["end"] <= 14  # the soup is eaten from second 8 on
    assert run("searches", "check", index, "--command", write) == 0
    assert "no new matches" in capsys.readouterr().err
    assert run("searches", "list", index, "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed[0] == {"name": "soup", "sentence": "man eats soup", "least": 0.6}
    assert run("searches", "remove", index, "soup") == 0
    assert run("searches", "remove", index, "soup") == 2
    assert "unknown saved search" in capsys.readouterr().err


def test_a_synced_folder_reports_its_matches(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = folder / "index"
    run("searches", "add", index, "man eats soup", "--name", "soup")
    rounds = iter([add_kitchen, lambda folder: None])

    def synced(*arguments: Any, **how: Any) -> SyncSummary:
        next(rounds)(folder)
        return SyncSummary(1, 0, ())

    monkeypatch.setattr("holmes.index.ingest.sync.sync_index", synced)

    def twice(look: Any, folders: Any, every: float) -> Iterator[Any]:
        yield look()
        yield look()

    monkeypatch.setattr("holmes.index.ingest.sync.watch_folders", twice)
    assert run("index", "sync", index, folder / "films", "--watch") == 0
    assert capsys.readouterr().err.count("match soup: ") == 1
    (index / searches.SEARCHES).write_text("{}")
    commands.Matches(index, None, make_notifier(None, None)).report()  # a damaged file stops no sync
    assert "were not asked" in capsys.readouterr().err


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[Any]]]:
    """A server that remembers what it was sent; /moved leads elsewhere, /broken fails."""
    got: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            code = {"/moved": 307, "/broken": 500}.get(self.path, 200)
            if code == 200:
                got.append(json.loads(body))
            self.send_response(code)
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()


def test_a_webhook_that_fails_is_told_again(
    folder: Path, webhook: tuple[str, list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    url, got = webhook
    run("searches", "add", folder / "index", "man eats soup", "--name", "soup")
    add_kitchen(folder)
    for path, why in (("/broken", "HTTP Error 5"), ("/moved", "HTTP Error 30")):  # it is not followed
        assert run("searches", "check", folder / "index", "--webhook", url + path) == 0
        assert f"not told: {url}{path}: {why}" in capsys.readouterr().err and got == []
    assert run("searches", "check", folder / "index", "--webhook", f"{url}/ok") == 0
    assert [match["search"] for match in got] == ["soup"]
    run("searches", "check", folder / "index", "--webhook", f"{url}/ok")
    assert len(got) == 1


def test_webhooks_stay_on_this_machine_unless_allowed() -> None:
    for url in ("http://127.0.0.1:9/x", "http://localhost/x", "http://[::1]:80/"):
        check_webhook(url, ())
    check_webhook("https://hooks.example/x", ["hooks.example"])
    for url in (
        "https://hooks.example/x", "http://127.0.0.1.example/", "http://127.0.0.1@hooks.example/",
        "http://10.0.0.1/", "http://169.254.169.254/", "http://0.0.0.0/", "http://[::]/", "http://[",
        "file:///etc/passwd", "localhost:80", "",
    ):  # fmt: skip
        with pytest.raises(HolmesError, match="--webhook"):
            check_webhook(url, ["other.example"])
    with pytest.raises(HolmesError, match="--command"):
        make_notifier("echo 'open", None)
    assert make_notifier("echo $HOME; ls", None).command == ["echo", "$HOME;", "ls"]  # words, not a shell


def test_what_is_wrong_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, opened = folder / "index", holmes.open_index(folder / "index", device="cpu")
    save_search(opened, index, "dog", "dogs")
    monkeypatch.setattr(searches, "MOST", 1)
    for act, reason in (
        (lambda: save_search(opened, index, ""), "empty"),
        (lambda: save_search(opened, index, "dog", "dogs"), "there is a search named 'dogs'"),
        (lambda: save_search(opened, index, "cat"), "1 searches are saved"),
        (lambda: save_search(opened, index, "cat", least=2), "0 to 1"),
        (lambda: remove_search(index, "dog"), "did you mean 'dogs'"),
    ):
        with pytest.raises(HolmesError, match=reason):
            act()
    assert [search.name for search in read_searches(index)] == ["dogs"]
    file = index / searches.SEARCHES
    file.write_text(file.read_text().replace("dogs", "cats"))
    with pytest.raises(HolmesError, match="is damaged"):
        read_searches(index)


@pytest.mark.parametrize("words", [("list",), ("remove", "soup")])
def test_a_folder_that_is_no_index_stays_as_it_is(tmp_path: Path, words: tuple[str, ...]) -> None:
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(HolmesError, match="is not an index; make one"):
            CliRunner().invoke(app, ["searches", words[0], str(folder), *words[1:]], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


def test_a_match_is_never_quite_certain() -> None:
    assert str(searches.SearchMatch("soup", "man eats soup", "a.mp4", 0.9998, 0, 1)).endswith("over 99%")


def test_searches_saved_at_once_are_all_kept(folder: Path) -> None:
    index, opened = folder / "index", holmes.open_index(folder / "index", device="cpu")
    opened.search("dog")  # loads the model once
    threads = [
        threading.Thread(target=save_search, args=(opened, index, f"dog number {n}")) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_searches(index)) == 8


def test_a_server_lists_saves_and_removes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(client: TestClient, method: str, **how: Any) -> Any:
        return client.request(method, "/api/searches", **how)

    opened = open_fake(folder / "index", monkeypatch, FakeDiagnose())
    with client_of(opened, ServeSettings(manage=True, limits=PLENTY)) as client:
        saved = asked(client, "POST", json={"sentence": "dog runs beach", "least": 0.4}).json()["searches"]
        assert saved == [{"name": "dog runs beach", "sentence": "dog runs beach", "least": 0.4}]
        assert asked(client, "POST", json={"sentence": "dog runs beach"}).status_code == 409
        assert asked(client, "POST", json={"sentence": " "}).status_code == 422
    with client_of(opened) as client:
        assert asked(client, "GET").json()["searches"] == saved
        assert asked(client, "POST", json={"sentence": "cat"}).status_code == 403
        assert asked(client, "DELETE", params={"name": "dog runs beach"}).status_code == 403
    with client_of(opened, ServeSettings(manage=True, limits=PLENTY)) as client:
        assert asked(client, "DELETE", params={"name": "dog runs beach"}).json() == {"searches": []}


@pytest.mark.skipif(chromium() is None, reason="no chromium: the page is not tested")
def test_the_page_saves_lists_and_removes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By keyboard alone."""
    opened = open_fake(folder / "index", monkeypatch, FakeDiagnose())
    with serving(opened, ServeSettings(manage=True, limits=PLENTY)) as address, launched() as browser:
        page = browser.new_page(base_url=address, viewport={"width": 390, "height": 844})
        page.goto("/?q=waves+hit+rocks")
        page.wait_for_selector(".card h3")
        page.get_by_role("button", name="Saved searches").press("Enter")
        page.get_by_role("button", name="Save “waves hit rocks”").press("Enter")
        page.wait_for_selector("dialog a >> text=waves hit rocks")
        assert violations(page) == [] and not page.get_by_role("button", name="Save “").is_visible()
        assert [search.name for search in read_searches(folder / "index")] == ["waves hit rocks"]
        page.get_by_role("button", name="Remove waves hit rocks").press("Enter")
        page.wait_for_selector("dialog >> text=No searches are saved yet")
        assert read_searches(folder / "index") == []
