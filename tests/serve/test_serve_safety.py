"""What nobody can do to a server: reach files, come from another site, ask without the token, or too much."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from holmes.index.answer.searcher import Index
from holmes.serve.guard import Guard
from holmes.serve.metrics import Metrics
from holmes.serve.rates import Rates
from holmes.serve.settings import ServeSettings, is_loopback
from holmes.serve.streams import follow_ranges
from index_fakes import FakeJoint, known_encoders
from serve_fakes import FILMS, PLENTY, build, client_of, open_fake

SECRET = b"not for you"
TOKEN = "a token long enough 123"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("safety")
    (folder / "secret.txt").write_bytes(SECRET)
    build(folder)
    return folder


@pytest.fixture
def index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    return open_fake(folder / "index", monkeypatch)


@pytest.fixture
def client(index: Index) -> Iterator[TestClient]:
    with client_of(index) as client:
        yield client


def paths_out(folder: Path) -> list[str]:
    """Ways that have led out of other servers' folders."""
    secret = str(folder / "secret.txt")
    up = "../" * 12
    wanted = [secret, secret.lstrip("/"), up + secret.lstrip("/"), "..", "../secret.txt", ".", "", "\0", "~"]
    double = quote(quote(up + secret.lstrip("/"), safe=""), safe="")
    windows = "..\\..\\secret.txt"
    return [
        *wanted,
        *(quote(path, safe="") for path in wanted),
        double,
        windows,
        quote(windows),
        f"file://{secret}",
    ]


def test_no_path_leads_to_a_file(client: TestClient, folder: Path) -> None:
    for path in paths_out(folder):
        for place in (
            "/static/{}",
            "/api/videos/{}",
            "/api/videos/{}/stream",
            "/api/videos/{}/thumbnail",
            "/{}",
        ):
            answer = client.get(place.format(path.replace("\0", "%00")))
            assert SECRET not in answer.content and answer.status_code in (200, 404, 405, 422), (place, path)
            if answer.status_code == 200:  # only the page itself, where a path dissolves into /
                assert answer.headers["content-type"].startswith(("text/html", "application/json"))
    for parameters in ({"folder": str(folder)}, {"filter": str(folder / "secret.txt")}):
        answer = client.get("/api/search", params={"q": "dog", **parameters})
        assert SECRET not in answer.content and answer.status_code == 200


def test_a_link_leads_to_no_file_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known_encoders(monkeypatch, FakeJoint())
    path = build(tmp_path)
    films, elsewhere = tmp_path / "films", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "private.mp4").write_bytes(SECRET)
    (films / "beach" / "notes.txt").write_bytes(SECRET)
    with client_of(open_fake(path, monkeypatch)) as client:
        found = {video["title"]: video["id"] for video in client.get("/api/videos").json()["videos"]}

        def status(title: str) -> int:
            answer = client.get(f"/api/videos/{found[title]}/stream")
            assert SECRET not in answer.content
            return answer.status_code

        assert status("coast.mp4") == 200
        for target in (elsewhere / "private.mp4", Path("/etc/passwd"), films / "beach" / "notes.txt", films):
            (films / "beach" / "coast.mp4").unlink()
            (films / "beach" / "coast.mp4").symlink_to(target)
            assert status("coast.mp4") == 404, target
        (films / "beach" / "coast.mp4").unlink()
        (films / "beach" / "coast.mp4").symlink_to(films / "beach" / "pier.mp4")  # another film of the folder
        assert status("coast.mp4") == 200
        (films / "home").rename(tmp_path / "moved")  # a whole folder replaced by a link
        (elsewhere / "kitchen.mkv").write_bytes(SECRET)
        (films / "home").symlink_to(elsewhere)
        assert status("kitchen.mkv") == 404
        os.mkfifo(films / "beach" / "pipe")
        (films / "beach" / "pier.mp4").unlink()
        (films / "beach" / "pipe").rename(films / "beach" / "pier.mp4")
        assert status("pier.mp4") == 404


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("127.0.0.1:8000", True),
        ("localhost:8000", True),
        ("LOCALHOST", True),
        ("[::1]:8000", True),
        ("films.localhost:8000", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:8000", False),
        ("localhost.evil.example", False),
        ("192.168.1.7:8000", False),
        ("", False),
        ("[", False),
    ],
)
def test_a_name_that_was_rebound_is_refused(client: TestClient, host: str, served: bool) -> None:
    answer = client.get("/api/search", params={"q": "dog"}, headers={"host": host})
    assert (answer.status_code == 200) is served, answer.text
    assert served or (answer.status_code == 421 and "host name" in answer.json()["error"])


def test_a_server_for_others_answers_to_addresses_and_its_own_names(index: Index) -> None:
    settings = ServeSettings(host="0.0.0.0", token=TOKEN, names=("films.lan",), limits=PLENTY)
    with client_of(index, settings, authorization=f"Bearer {TOKEN}") as client:
        for host, status in (("192.168.1.7:8000", 200), ("FILMS.lan", 200), ("evil.example", 421)):
            assert client.get("/api/videos", headers={"host": host}).status_code == status, host


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://localhost.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_sites_pages_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    for method, path in (("GET", "/api/search?q=dog"), ("POST", "/api/search"), ("GET", "/metrics")):
        answer = client.request(method, path, headers=headers)
        assert answer.status_code == 403 and "other sites" in answer.json()["error"]
        assert "access-control-allow-origin" not in answer.headers


def test_its_own_page_and_links_to_it_are_served(client: TestClient) -> None:
    own = {"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"}
    assert client.get("/api/search?q=dog", headers=own).status_code == 200
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/?q=dog", headers=followed).status_code == 200


def test_every_response_carries_the_headers(client: TestClient) -> None:
    id = client.get("/api/videos").json()["videos"][0]["id"]
    refused = client.get("/", headers={"host": "evil.example"})
    paths = ("/", "/static/main.js", "/api/search?q=dog", "/nothing", f"/api/videos/{id}/stream")
    for answer in (refused, *map(client.get, paths)):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in answer.headers


def test_a_token_is_asked_of_all_but_the_page(index: Index) -> None:
    with client_of(index, ServeSettings(token=TOKEN, limits=PLENTY)) as client:
        id = index.videos and "coast-0123456789"
        for path in ("/api/search?q=dog", "/api/videos", f"/api/videos/{id}/stream", "/api/index", "/metrics",
                     "/api/openapi.json", "/api/job", "/api/export?q=dog"):  # fmt: skip
            answer = client.get(path)
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer", path
            for wrong in ("Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer", f"Bearer {TOKEN[:-1]}"):
                assert client.get(path, headers={"authorization": wrong}).status_code == 401
            assert client.get(path, headers={"authorization": f"Bearer {TOKEN}"}).status_code in (200, 404)
        assert client.get("/").status_code == client.get("/static/main.js").status_code == 200
        assert client.get("/api/health").json() == {"status": "ok", "token": True}


def test_the_token_becomes_a_cookie_that_scripts_cannot_read(index: Index) -> None:
    with client_of(index, ServeSettings(token=TOKEN, limits=PLENTY)) as client:
        assert client.post("/api/session", json={"token": "guess"}).status_code == 401
        assert client.get("/api/videos").status_code == 401
        answer = client.post("/api/session", json={"token": TOKEN})
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie and TOKEN not in cookie
        assert client.get("/api/videos").status_code == 200
        client.cookies.set("holmes_session", "0" * 64)
        client.cookies.clear()
        assert client.get("/api/videos", headers={"cookie": "holmes_session=" + "0" * 64}).status_code == 401
        assert client.get("/api/videos", headers={"cookie": 'x="; =;,'}).status_code == 401


def test_logs_hold_no_secrets(index: Index, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), client_of(index, ServeSettings(token=TOKEN, limits=PLENTY)) as client:
        client.post("/api/session", json={"token": TOKEN})
        client.get("/api/search", params={"q": "my private question"})
        client.get("/api/videos/a%0d%0aFAKE LINE")
        client.get(f"/?token={TOKEN}")
    lines = [record.getMessage() for record in caplog.records if record.name == "holmes.serve"]
    assert any("/api/search" in line for line in lines)
    text = "\n".join(lines)
    assert TOKEN not in text and "private" not in text and "question" not in text
    assert not any("\n" in line or "\r" in line for line in lines)


def test_requests_are_bounded_in_rate_and_size(index: Index) -> None:
    settings = ServeSettings(limits=replace(PLENTY, rate=0.001, burst=5, body=1000))
    with client_of(index, settings) as client:
        sizes = [client.post("/api/search", content=b"x" * size).status_code for size in (1001, 10**6)]
        assert sizes == [413, 413]

        def pieces() -> Iterator[bytes]:
            yield from [b"x" * 600] * 2

        assert client.post("/api/search", content=pieces()).status_code == 413  # without a length
        statuses = [client.get("/api/health").status_code for _ in range(4)]
        assert statuses == [200, 200, 429, 429]
        answer = client.get("/api/health")
        assert int(answer.headers["retry-after"]) >= 1 and "too many requests" in answer.json()["error"]


def test_sentences_tops_and_waiting_are_bounded(index: Index) -> None:
    with client_of(index, ServeSettings(limits=replace(PLENTY, waiting=0, query=20))) as client:
        assert client.get("/api/search", params={"q": "dog"}).status_code == 503
        assert client.get("/api/search", params={"q": "d" * 21}).status_code == 422
        for order in ({"sentences": []}, {"sentences": ["dog"] * 65}, {"sentences": ["dog"], "top": 101},
                      {"sentences": ["dog"], "more": 1}, {"sentences": [""]}, [], "dog"):  # fmt: skip
            assert client.post("/api/search", json=order).status_code == 422, order


def test_changes_need_to_be_allowed(client: TestClient) -> None:
    id = client.get("/api/videos").json()["videos"][0]["id"]
    for answer in (
        client.post("/api/videos", json={"paths": ["/tmp"]}),
        client.delete(f"/api/videos/{id}"),
        client.post("/api/sync", json={"paths": ["/tmp"]}),
        client.post("/api/calibrate", json={"rows": [{"sentence": "a dog", "video": "coast.mp4"}]}),
        client.get("/api/paths", params={"prefix": "/"}),
    ):
        assert answer.status_code == 403 and "--manage" in answer.json()["error"]
    assert client.get("/api/videos").json()["total"] == len(FILMS)


def test_which_hosts_are_this_machine_alone() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost", "a.localhost")))
    assert not any(
        map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.org", "localhost.evil.example", ""))
    )


TEXT = st.text(st.characters(min_codepoint=1, max_codepoint=255, exclude_characters="\r\n"), max_size=60)
NASTY = st.sampled_from(
    (
        "http://[",
        "https://[::1",
        "//",
        "http://:99999",
        "http://a:b",
        "http://127.0.0.1:8000",
        "null",
        "[",
        "%",
    )
)
NUMBERS = st.text("0123456789²-,=", max_size=40)
NAMES = ("host", "origin", "authorization", "cookie", "content-length", "range", "sec-fetch-site", "if-range")


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(st.sampled_from(NAMES), st.one_of(TEXT, NASTY, st.text("0123456789²-,=", max_size=40)))
)
def test_no_header_brings_a_traceback(headers: dict[str, str]) -> None:
    """F6: `Origin: http://[` gave 500. Any value is refused or served."""
    given = {"host": "127.0.0.1:8000", **headers}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in given.items()]
    guard = Guard(None, ServeSettings(token=TOKEN), Metrics(), Rates(1e9, 10**9))  # type: ignore[arg-type]
    for method in ("GET", "POST"):
        scope = {
            "type": "http",
            "method": method,
            "path": "/api/videos",
            "headers": raw,
            "client": ("::1", 1),
        }
        refusal = guard.refuse(scope)
        assert refusal is None or refusal.status in (401, 403, 421)
        asyncio.run(guard._body(scope, no_body))
        with contextlib.suppress(HTTPException):
            follow_ranges(scope, 1000)


async def no_body() -> dict[str, object]:
    return {"type": "http.request", "body": b"", "more_body": False}


def test_a_malformed_origin_is_refused(client: TestClient) -> None:
    for origin in ("http://[", "http://a:b", "https://[::1", "file://", ""):
        answer = client.get("/api/health", headers={"origin": origin})
        assert answer.status_code == 403 and "other sites" in answer.json()["error"]


@pytest.mark.parametrize(
    ("host", "origin", "served"),
    [
        ("films.lan:443", "https://films.lan", True),
        ("films.lan", "https://films.lan:443", True),
        ("films.lan", "http://films.lan", True),
        ("films.lan:80", "http://FILMS.lan", True),
        ("films.lan:443", "http://films.lan", False),
        ("films.lan", "https://films.lan:8443", False),
        ("films.lan:443", "https://evil.example", False),
        ("films.lan:443", "ftp://films.lan:443", False),
    ],
)
def test_a_port_that_the_scheme_implies_may_be_left_out(
    index: Index, host: str, origin: str, served: bool
) -> None:
    """F12: behind a proxy that ends TLS, the page's own requests were refused."""
    known = ServeSettings(host="0.0.0.0", names=("films.lan",), limits=PLENTY)
    with client_of(index, known) as client:
        answer = client.get("/api/health", headers={"host": host, "origin": origin})
        assert (answer.status_code == 200) is served
