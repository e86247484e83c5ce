"""Files sent to a server: whole, under a safe name, added to the index; and every way to get that wrong."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import threading
import time
import unicodedata
from collections import namedtuple
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import holmes
from browser import serving
from holmes.errors import HolmesError
from holmes.serve import client as remote_client
from holmes.serve import jobs, upload_folder, uploads
from holmes.serve.settings import Limits, ServeSettings
from holmes.serve.state import BadRequestError
from holmes.serve.upload_folder import PARTS, safe_name
from serve_fakes import FILMS, PLENTY, build, client_of, film, open_fake
from waiting import LONG, wait_for

FILM = bytes(range(256)) * 1000  # 256,000 bytes that are no film
LIMITS = replace(PLENTY, spare=0, piece=100_000, upload=10_000_000)
TOKEN = "sixteen characters or more"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("uploads"), {"beach/coast.mp4": FILMS["beach/coast.mp4"]})


Start = Callable[..., AbstractContextManager[TestClient]]


@pytest.fixture
def started(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A server that takes files into `tmp_path`/in; its job only says what it would add."""
    monkeypatch.setattr(jobs, "TARGET", "quick_child:start")
    monkeypatch.setattr(uploads, "POLL_SECONDS", 0.02)

    def start(limits: Limits = LIMITS, **more: Any) -> AbstractContextManager[TestClient]:
        settings = ServeSettings(uploads=tmp_path / "in", limits=limits, **more)
        return client_of(open_fake(index, monkeypatch), settings)

    return start


@pytest.fixture
def client(started: Start) -> Iterator[TestClient]:
    with started() as client:
        yield client


def announced(content: bytes = FILM, name: str = "film.mp4", **other: Any) -> dict[str, Any]:
    return {"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest(), **other}


def announce(client: TestClient, content: bytes = FILM, name: str = "film.mp4", **other: Any) -> Any:
    answer = client.post("/api/uploads", json=announced(content, name, **other))
    assert answer.status_code == 200, answer.text
    return answer.json()


def piece(client: TestClient, upload: Any, content: bytes, offset: int) -> Any:
    return client.patch(f"/api/uploads/{upload['id']}", params={"offset": offset}, content=content)


def sent(client: TestClient, content: bytes = FILM, name: str = "film.mp4") -> Any:
    upload = announce(client, content, name)
    while upload["state"] == "sending":
        offset = upload["offset"]
        answer = piece(client, upload, content[offset : offset + LIMITS.piece], offset)
        assert answer.status_code == 200, answer.text
        upload = answer.json()
    return upload


def outcome(client: TestClient, upload: Any) -> Any:
    def over() -> Any:
        found = client.get(f"/api/uploads/{upload['id']}").json()
        return found if found["state"] not in ("sending", "waiting", "adding") else None

    return wait_for(over)


def held(folder: Path) -> list[str]:
    """The names of the files in a folder and below it, without those of the server itself."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in files if path.parts[0] != PARTS)


def unfinished(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / PARTS).iterdir() if path.name != "lock")


def test_a_file_arrives_in_pieces_and_is_added(client: TestClient, tmp_path: Path) -> None:
    upload = announce(client)
    assert (upload["state"], upload["offset"]) == ("sending", 0) and held(tmp_path / "in") == []
    answer = piece(client, upload, FILM[:100_000], 0)
    assert answer.json()["offset"] == 100_000 and held(tmp_path / "in") == []
    assert announce(client) == answer.json()  # whoever announces it again learns where to continue
    assert sent(client)["state"] in ("waiting", "adding", "added")
    assert (tmp_path / "in" / "film.mp4").read_bytes() == FILM and outcome(client, upload)["state"] == "added"
    assert unfinished(tmp_path / "in") == []
    listed = client.get("/api/uploads").json()
    assert [each["state"] for each in listed["uploads"]] == ["added"] and listed["piece"] == LIMITS.piece
    assert client.get("/api/job").json()["message"] == "1 file gave 1 added, 0 already there, 0 left out"


def test_copies_and_skipped_files_are_named(client: TestClient) -> None:
    """None of three files vanishes from the count."""
    found = [sent(client, name.encode(), name) for name in ("new.mp4", "copy.mp4", "broken.mp4")]
    states = [outcome(client, upload) for upload in found]
    assert [each["state"] for each in states] == ["added", "same", "skipped"]
    assert states[1]["same_as"] == "/films/first.mp4" and states[2]["reason"] == "it is broken"


def test_the_same_file_again_is_already_there(client: TestClient, tmp_path: Path) -> None:
    outcome(client, sent(client))
    again = announce(client)
    assert again["offset"] == len(FILM) and again["state"] != "sending"
    outcome(client, again)
    other = outcome(client, sent(client, b"another", "film.mp4"))
    assert other["name"] == "film (2).mp4" and held(tmp_path / "in") == ["film (2).mp4", "film.mp4"]
    assert announce(client, b"another", "film.mp4")["name"] == "film (2).mp4"


def test_files_are_taken_only_where_that_was_asked_for(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with client_of(open_fake(index, monkeypatch)) as client:
        one = f"/{'0' * 32}?offset=0"
        for method, path in (("GET", ""), ("POST", ""), ("PATCH", one), ("DELETE", one)):
            answer = client.request(method, f"/api/uploads{path}", json=announced())
            assert answer.status_code == 403 and "--uploads" in answer.json()["error"], method
        assert client.get("/api/index").json()["uploads"] is False


def test_the_token_and_the_guard_hold_for_uploads(started: Start, tmp_path: Path) -> None:
    with started(token=TOKEN) as client:
        known = {"authorization": f"Bearer {TOKEN}"}
        upload = client.post("/api/uploads", json=announced(), headers=known).json()
        address = f"/api/uploads/{upload['id']}?offset=0"
        for headers, status in (
            ({}, 401),
            ({**known, "origin": "http://elsewhere.example"}, 403),
            ({**known, "host": "elsewhere.example"}, 421),
        ):
            assert client.post("/api/uploads", json=announced(), headers=headers).status_code == status
            assert client.patch(address, content=FILM[:10], headers=headers).status_code == status
        assert client.get(address, headers=known).json()["offset"] == 0


NAMES = (
    "../film.mp4", "..", ".", "", " ", "a/../film.mp4", "/etc/film.mp4", "a//film.mp4", "../../x/film.mp4",
    "film.txt", "film", "passwd", "a/b/c/d/e/f/g/h/i/film.mp4", "n" * 1001 + ".mp4",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_that_lead_out_are_refused(client: TestClient, tmp_path: Path, name: str) -> None:
    answer = client.post("/api/uploads", json=announced(name=name))
    assert answer.status_code == 422 and answer.json()["error"]
    assert os.listdir(tmp_path) == ["in"] and held(tmp_path / "in") == unfinished(tmp_path / "in") == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("beach day.mp4", "beach day.mp4"),
        ("2024/beach/coast.MP4", "2024/beach/coast.MP4"),
        ("a\0b.mp4", "a_b.mp4"),
        ("a\nb\r\x1b[2J.mp4", "a_b__[2J.mp4"),
        ("..\\..\\film.mp4", "_.____film.mp4".replace("____", "_.._")),
        ("film\u202e4pm.mp4", "film_4pm.mp4"),
        ("\udcffbytes.mp4", "_bytes.mp4"),
        (".hidden.mp4", "_hidden.mp4"),
        ("CON.mp4", "_CON.mp4"),
        ("nul.tar.mp4", "_nul.tar.mp4"),
        ("aux/film.mp4", "_aux/film.mp4"),
        ("end. /film.mp4", "end/film.mp4"),
        ("<b>a:b|c?.mp4", "_b_a_b_c_.mp4"),
        ("cafe\u0301.mp4", "caf\u00e9.mp4"),
        ("\u6d77.mp4", "\u6d77.mp4"),
    ],
)
def test_odd_names_become_plain_ones(given: str, kept: str) -> None:
    assert safe_name(given) == kept == safe_name(kept)


def test_long_names_are_shortened(client: TestClient, tmp_path: Path) -> None:
    for name in ("n" * 300 + ".mp4", "\u6d77" * 300 + ".mp4"):
        kept = outcome(client, sent(client, name.encode(), name))["name"]
        assert kept.endswith(".mp4") and 100 < len(kept.encode()) <= 200
    assert len(held(tmp_path / "in")) == 2


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60).map(lambda text: f"{text}.mp4"))
def test_no_name_leads_out(name: str) -> None:
    try:
        kept = safe_name(name)
    except BadRequestError:
        return
    parts = kept.split("/")
    assert not {"", ".", ".."} & {part.strip() for part in parts} and kept == safe_name(kept)
    assert not {"Cc", "Cf", "Cs"} & {unicodedata.category(c) for c in kept if c not in "\u200c\u200d"}
    assert not kept.startswith((".", "/")) and max(len(part.encode()) for part in parts) <= 200


def test_a_link_in_the_folder_leads_nowhere(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "in" / "way").symlink_to(tmp_path / "outside")
    (tmp_path / "in" / "film.mp4").symlink_to(tmp_path / "outside" / "film.mp4")
    assert client.post("/api/uploads", json=announced(name="way/film.mp4")).status_code == 409
    assert client.post("/api/uploads", json=announced(name="film.mp4")).status_code == 409
    assert os.listdir(tmp_path / "outside") == []


def test_two_files_of_one_name_at_once_are_both_kept(client: TestClient, tmp_path: Path) -> None:
    contents = [b"first" * 1000, b"other" * 1000]
    both = [announce(client, content) for content in contents]
    assert both[0]["id"] != both[1]["id"]
    for start in (0, 2500):
        for upload, content in zip(both, contents, strict=True):
            assert piece(client, upload, content[start : start + 2500], start).status_code == 200
    assert {(tmp_path / "in" / name).read_bytes() for name in held(tmp_path / "in")} == set(contents)


def test_a_file_that_is_not_what_it_claims_is_dropped(client: TestClient, tmp_path: Path) -> None:
    wrong = announce(client, FILM[:1000], sha256="0" * 64)
    answer = piece(client, wrong, FILM[:1000], 0)
    assert answer.status_code == 409 and "SHA-256 differs" in answer.json()["error"]
    short = announce(client, FILM[:1000], size=2000)  # claims more than comes
    assert piece(client, short, FILM[:1000], 0).json()["state"] == "sending"
    long = announce(client, FILM[:1000], size=500)  # claims less
    answer = piece(client, long, FILM[:1000], 0)
    assert answer.status_code == 413 and "500 announced" in answer.json()["error"]
    assert held(tmp_path / "in") == []
    assert client.delete(f"/api/uploads/{short['id']}").status_code == 200
    assert client.get(f"/api/uploads/{short['id']}").status_code == 404
    assert unfinished(tmp_path / "in") == [f"{long['id']}.json", f"{long['id']}.part"]
    assert (tmp_path / "in" / PARTS / f"{long['id']}.part").stat().st_size == 0


def test_a_file_that_is_not_what_it_claims_uses_up_its_senders_requests(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a client could have the server receive and hash the same megabytes for ever."""
    monkeypatch.setattr(client.app.state.server.rates, "rate", 0.001)  # type: ignore[attr-defined]
    wrong = announce(client, FILM[:1000], sha256="0" * 64)
    assert piece(client, wrong, FILM[:1000], 0).status_code == 409
    assert client.get("/api/uploads").status_code == 429


def test_a_file_that_is_dropped_while_its_last_piece_arrives_is_kept_or_gone(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a file in the folder that is not in the index, and that nobody is told about."""
    finishing, dropping, dropped = threading.Event(), threading.Event(), threading.Event()
    finish, cancel, add = upload_folder.UploadFolder.finish, uploads.Uploads.cancel, uploads.Uploads._add

    def finish_late(self: upload_folder.UploadFolder, told: Any) -> Path:
        finishing.set()
        assert dropping.wait(LONG)
        return finish(self, told)

    async def cancel_meanwhile(self: uploads.Uploads, id: str) -> uploads.Upload:
        dropping.set()
        return await cancel(self, id)

    async def add_afterwards(self: uploads.Uploads) -> None:
        if dropped.is_set():
            await add(self)

    monkeypatch.setattr(upload_folder.UploadFolder, "finish", finish_late)
    monkeypatch.setattr(uploads.Uploads, "cancel", cancel_meanwhile)
    monkeypatch.setattr(uploads.Uploads, "_add", add_afterwards)
    client.get("/api/uploads")
    upload = announce(client, FILM[:1000])
    with ThreadPoolExecutor(1) as other:
        last = other.submit(piece, client, upload, FILM[:1000], 0)
        assert finishing.wait(LONG)
        answer = client.delete(f"/api/uploads/{upload['id']}")
        assert last.result().status_code == 200 and answer.json()["state"] == "waiting"
    dropped.set()
    assert held(tmp_path / "in") == ["film.mp4"] and outcome(client, upload)["state"] == "added"


def test_pieces_must_follow_each_other(client: TestClient) -> None:
    upload = announce(client)
    assert piece(client, upload, FILM[:50_000], 0).json()["offset"] == 50_000
    for offset in (0, 49_999, 50_001, 10**9):
        answer = piece(client, upload, b"more", offset)
        assert answer.status_code == 412 and "begins at byte 50000" in answer.json()["error"]
    assert piece(client, upload, FILM[:100_001], 50_000).status_code == 413

    def endless() -> Iterator[bytes]:  # without a length, more than was announced
        for _ in range(1000):
            yield FILM

    assert piece(client, upload, endless(), 50_000).status_code == 413  # type: ignore[arg-type]
    assert client.get(f"/api/uploads/{upload['id']}").json()["offset"] <= len(FILM)
    for wrong in ({"size": 0}, {"size": -1}, {"size": True}, {"sha256": "x"}, {"more": 1}):
        assert client.post("/api/uploads", json=announced() | wrong).status_code == 422, wrong
    too_large = client.post("/api/uploads", json=announced(size=LIMITS.upload + 1))
    assert too_large.status_code == 413 and "10,000,000 are allowed" in too_large.json()["error"]


def test_a_full_disk_loses_nothing(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = announce(client)
    write, room = os.write, 150_000

    def small_disk(descriptor: int, data: Any) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[:room])
        room -= written
        return written

    with monkeypatch.context() as patched:
        patched.setattr(upload_folder.os, "write", small_disk)
        assert piece(client, upload, FILM[:100_000], 0).status_code == 200
        answer = piece(client, upload, FILM[100_000:200_000], 100_000)
        assert answer.status_code == 507 and "the disk is full" in answer.json()["error"]
    assert announce(client)["offset"] == 150_000 and held(tmp_path / "in") == []
    sent(client)
    assert (tmp_path / "in" / "film.mp4").read_bytes() == FILM


def test_space_that_others_have_announced_counts(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(upload_folder.shutil, "disk_usage", lambda path: usage(0, 0, 500_000))
    announce(client)
    second = client.post("/api/uploads", json=announced(FILM + b"x"))
    assert second.status_code == 507 and "space for 244,000" in second.json()["error"]
    monkeypatch.setattr(upload_folder.shutil, "disk_usage", lambda path: usage(0, 0, 10**9))
    announce(client, FILM + b"x")


def test_abandoned_files_are_removed(started: Start, tmp_path: Path) -> None:
    with started(replace(LIMITS, announced_seconds=0.0, unfinished_seconds=3600)) as client:
        announce(client, b"nothing came", "empty.mp4")
        begun = announce(client)
        piece(client, begun, FILM[:10], 0)
        receiver = client.app.state.uploads  # type: ignore[attr-defined]
        client.portal.call(receiver.sweep)  # type: ignore[union-attr]
        assert unfinished(tmp_path / "in") == [f"{begun['id']}.json", f"{begun['id']}.part"]
        receiver.uploads[begun["id"]].touched -= 3601
        client.portal.call(receiver.sweep)  # type: ignore[union-attr]
        assert unfinished(tmp_path / "in") == []


def test_nobody_announces_without_end(started: Start) -> None:
    with started(replace(LIMITS, unfinished_per_address=3)) as client:
        for number in range(3):
            announce(client, b"%d" % number)
        answer = client.post("/api/uploads", json=announced(b"one more"))
        assert answer.status_code == 503 and "unfinished" in answer.json()["error"]
        assert announce(client, b"1")["offset"] == 0  # those that are announced may go on
    with started(replace(LIMITS, rate=0.001, burst=3)) as client:
        codes = [client.post("/api/uploads", json=announced(b"0")).status_code for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429]


def test_unfinished_files_survive_a_restart(started: Start, tmp_path: Path) -> None:
    with started() as client:
        upload = announce(client)
        piece(client, upload, FILM[:70_000], 0)
    parts = tmp_path / "in" / PARTS
    (parts / "0.json").write_text('{"name": "../x.mp4", "size": 1, "sha256": "0"}')  # not ours: dropped
    with started() as client:
        assert announce(client)["offset"] == 70_000
        assert outcome(client, sent(client))["state"] == "added"
        other = announce(client, b"whole", "other.mp4")
    (parts / f"{other['id']}.part").write_bytes(b"whole")  # killed when all was there
    with started() as client:
        assert outcome(client, other)["state"] == "added"
    assert held(tmp_path / "in") == ["film.mp4", "other.mp4"] and unfinished(tmp_path / "in") == []


def test_two_servers_do_not_share_a_folder(started: Start) -> None:
    with started(), pytest.raises(HolmesError, match="another server takes files"), started():
        pass


def test_a_job_that_fails_is_tried_again(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jobs, "TARGET", "quick_child:start_failing")
    monkeypatch.setattr(uploads, "TRY_AGAIN", 0.0)
    upload = sent(client)
    found = outcome(client, upload)
    assert found["state"] == "skipped" and "the index is locked" in found["reason"]
    monkeypatch.setattr(jobs, "TARGET", "quick_child:start")
    assert outcome(client, announce(client))["state"] == "added" and held(tmp_path / "in") == ["film.mp4"]


def test_a_lost_connection_is_continued(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a real server: half a piece arrives, then the client is gone; what came is kept."""
    monkeypatch.setattr(jobs, "TARGET", "quick_child:start")
    settings = ServeSettings(uploads=tmp_path / "in", limits=replace(LIMITS, body_seconds=2))
    with serving(open_fake(index, monkeypatch), settings) as address:
        remote = holmes.connect(address)
        upload = remote._request("/api/uploads", announced())
        port = int(address.rpartition(":")[2])
        head = (
            f"PATCH /api/uploads/{upload['id']}?offset=0 HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            "content-length: 100000\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(head.encode() + FILM[:30_000])
        wait_for(lambda: remote._request("/api/uploads", announced())["offset"] == 30_000)
        stalled = socket.create_connection(("127.0.0.1", port))  # and one that says no more
        stalled.sendall(head.replace("offset=0", "offset=30000").encode() + FILM[30_000:40_000])
        (tmp_path / "film.mp4").write_bytes(FILM)
        monkeypatch.setattr(remote_client, "PIECE", 64_000)
        assert remote.upload(tmp_path / "film.mp4").added == 1
        stalled.close()
        assert (tmp_path / "in" / "film.mp4").read_bytes() == FILM
        assert remote.upload(tmp_path / "film.mp4").failures == ()
        (tmp_path / "wrong.mp4").mkdir()
        with pytest.raises(HolmesError, match="no videos were found"):
            remote.upload(tmp_path / "wrong.mp4")


def test_a_film_that_is_sent_is_found(tmp_path: Path) -> None:
    """With the encoder that comes with Holmes: sent, extracted, embedded, searched, and a copy is named."""
    first = film(tmp_path / "films" / "first.mp4", FILMS["beach/coast.mp4"])
    index = holmes.build_index(tmp_path / "index", tmp_path / "films", device="cpu", workers=1)
    new = film(tmp_path / "mine" / "new.mp4", FILMS["home/kitchen.mkv"])
    (tmp_path / "mine" / "again.mp4").write_bytes(first.read_bytes())
    (tmp_path / "mine" / "broken.mp4").write_bytes(FILM)
    settings = ServeSettings(uploads=tmp_path / "in", limits=PLENTY)
    opened = holmes.open_index(tmp_path / "index", device="cpu")
    assert len(opened) == 1 and index is not None
    with serving(opened, settings) as address:
        remote = holmes.connect(address)
        summary = remote.upload(tmp_path / "mine")
        assert summary.added == 1 and [each.same_as for each in summary.duplicates] == [first]
        assert [each.source.name for each in summary.failures] == ["broken.mp4"]
        told = remote._get("/api/uploads")["uploads"]
        assert {each["name"]: each["found"] for each in told if "again" not in each["name"]} == {
            "mine/new.mp4": True,
            "mine/broken.mp4": False,
        }
        found = remote.search("a man eats soup", top=5)
        assert str(tmp_path / "in" / "mine" / new.name) in {hit.video for hit in found}
        assert remote.upload(new.parent / "new.mp4").duplicates  # elsewhere, by its content


def test_the_time_left_is_told_in_words() -> None:
    assert jobs.seconds_left(1.0, 0.5) is None and jobs.seconds_left(10.0, 0.0) is None
    assert jobs.in_words(None) == ""
    for seconds, share, words in (
        (10, 0.9, "a few seconds left"),
        (30, 0.5, "about 30 seconds left"),
        (60, 0.25, "about 3 minutes left"),
        (60, 0.5, "about 1 minute left"),
        (3600, 0.25, "about 3 hours left"),
    ):
        assert jobs.in_words(jobs.seconds_left(seconds, share)) == words
    news = {"added": 1, "unchanged": 0, "moved": 0, "copies": ["x"], "failures": ["y"]}
    assert jobs.summary_of(news) == "3 files gave 1 added, 0 already there, 1 copy, 1 left out"


def test_uploads_keep_to_their_rate(started: Start) -> None:
    """Searches come first: all uploads together have a rate."""
    with started(replace(LIMITS, upload_rate=500_000)) as client:
        began = time.monotonic()
        sent(client)
        assert time.monotonic() - began > 0.3  # 256,000 bytes take half a second
