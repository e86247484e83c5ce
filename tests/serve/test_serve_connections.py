"""Clients that send too much, too slowly, or do not read: their connections end, others are answered."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from browser import serving
from holmes.serve.connections import client_name
from holmes.serve.server import within_open_files
from holmes.serve.settings import Limits, ServeSettings
from serve_fakes import PLENTY, build, open_fake
from waiting import wait_for

HALF = b"GET /api/health HTTP/1.1\r\nHost:"
QUICK = replace(PLENTY, header_seconds=0.3, body_seconds=0.3, send_seconds=0.5, idle_seconds=1)
SLOW = replace(PLENTY, header_seconds=600, body_seconds=600, send_seconds=600, idle_seconds=600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("connections")
    build(folder)
    return folder


@pytest.fixture
def started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Limits], int]]:
    """Start a server with these limits; gives its port."""
    with contextlib.ExitStack() as stack:

        def start(limits: Limits) -> int:
            index = open_fake(folder / "index", monkeypatch)
            address = stack.enter_context(serving(index, ServeSettings(limits=limits)))
            return int(address.rpartition(":")[2])

        yield start


def connected(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0))


def status(port: int, path: str = "/api/health", source: str = "127.0.0.1") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(source, 0))
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def ended(connection: socket.socket) -> bool:
    """Whether the server closed it; waits as long as the socket's timeout."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    return True


def test_a_header_of_megabytes_is_refused_after_a_few_kilobytes(started: Callable[[Limits], int]) -> None:
    """F3: 150 MB in one header were read before the host name was looked at."""
    port = started(SLOW)
    with connected(port) as hostile:
        hostile.sendall(b"GET /api/health HTTP/1.1\r\nHost: evil.example\r\nX: ")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 64 * 1024 * 1024:
                hostile.sendall(b"x" * 65536)
                sent += 65536
        assert sent < 32 * 1024 * 1024  # what the buffers of the system hold at most
        with contextlib.suppress(ConnectionError):
            assert hostile.recv(64).startswith(b"HTTP/1.1 400")
    assert status(port) == 200


def test_many_headers_are_refused_like_one_long_one(started: Callable[[Limits], int]) -> None:
    port = started(SLOW)
    with connected(port) as hostile:
        hostile.sendall(b"GET /api/health HTTP/1.1\r\n" + b"a: b\r\n" * 20_000)
        with contextlib.suppress(ConnectionError):
            assert hostile.recv(64).startswith(b"HTTP/1.1 400")
        assert ended(hostile)
    assert status(port) == 200


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        HALF,
        b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
        b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + HALF,
        b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
    ids=["nothing", "half a header", "half a body", "half a second header", "no second request"],
)
def test_what_is_begun_and_not_finished_is_closed(started: Callable[[Limits], int], begun: bytes) -> None:
    """F4: half-open connections were never closed."""
    port = started(QUICK)
    with connected(port) as hostile:
        hostile.sendall(begun)
        assert ended(hostile)
    assert status(port) == 200


def test_a_header_that_drips_is_closed_all_the_same(started: Callable[[Limits], int]) -> None:
    port = started(QUICK)
    with connected(port) as hostile, pytest.raises(ConnectionError):
        hostile.sendall(HALF)
        for _ in range(10_000):
            hostile.sendall(b"x")
            time.sleep(0.01)


def test_one_address_cannot_take_all_connections(started: Callable[[Limits], int]) -> None:
    """The connection that has waited longest makes room, so an address that is shared still gets answers."""
    port = started(replace(SLOW, connections_per_address=5, connections=50))
    held = [connected(port) for _ in range(12)]
    for each in held:
        each.sendall(HALF)
    assert all(ended(each) for each in held[:7])
    assert status(port) == 200 == status(port, source="127.0.0.2")
    for each in held:
        each.close()


def test_many_addresses_cannot_take_all_connections(started: Callable[[Limits], int]) -> None:
    port = started(replace(SLOW, connections_per_address=5, connections=20))
    held = [connected(port, f"127.0.1.{n}") for n in range(1, 11) for _ in range(5)]
    for each in held:
        each.sendall(HALF)
    assert status(port) == 200 == status(port, source="127.0.0.2")
    for each in held:
        each.close()


def large_film(folder: Path, port: int) -> str:
    """The address of a film that no buffer holds."""
    path = folder / "films" / "beach" / "coast.mp4"
    with path.open("r+b") as file:
        file.truncate(64 * 1024 * 1024)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/api/videos?q=coast")
    found = json.loads(connection.getresponse().read())["videos"][0]
    connection.close()
    return f"/api/videos/{found['id']}/stream"


def watch(port: int, path: str, source: str = "127.0.0.1") -> socket.socket:
    """Ask for a film and read no more than its first bytes."""
    viewer = connected(port, source)
    viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    viewer.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    assert viewer.recv(64).startswith(b"HTTP/1.1 200")
    return viewer


def test_a_film_that_nobody_reads_is_no_longer_sent(started: Callable[[Limits], int], folder: Path) -> None:
    port = started(replace(QUICK, streams=1, streams_per_address=1))
    path = large_film(folder, port)
    with watch(port, path):
        wait_for(lambda: status(port, path) == 200)


def test_unread_films_leave_room_for_others(
    started: Callable[[Limits], int], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F4: 16 unread streams blocked playback for everybody."""
    monkeypatch.setattr("holmes.serve.streams.STALLED", 0.2)
    port = started(replace(SLOW, streams=4, streams_per_address=2))
    path = large_film(folder, port)
    held = [watch(port, path, f"127.0.0.{n}") for n in (2, 2, 3, 3)]
    wait_for(lambda: status(port, path, "127.0.0.9") == 200)
    wait_for(lambda: status(port, path, "127.0.0.2") == 200)
    for each in held:
        each.close()


def test_a_body_that_is_refused_is_not_read_to_its_end(started: Callable[[Limits], int]) -> None:
    port = started(SLOW)
    with connected(port) as hostile:
        hostile.sendall(b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 256 * 1024 * 1024:
                hostile.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                sent += 65536
        assert sent < 32 * 1024 * 1024
    assert status(port) == 200


def test_limits_count_an_ipv6_client_by_its_network() -> None:
    assert client_name("192.0.2.7") == "192.0.2.7" == client_name("::ffff:192.0.2.7")
    assert client_name("2001:db8::1") == client_name("2001:db8::ffff:1%eth0") != client_name("2001:db8:1::1")
    assert client_name(None) == "unknown" and client_name("a name") == "a name"


def test_connections_fit_into_the_open_files_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = {"limits": (256, 1024)}
    monkeypatch.setattr("resource.getrlimit", lambda kind: allowed["limits"])
    monkeypatch.setattr("resource.setrlimit", lambda kind, limits: allowed.update(limits=limits))
    assert within_open_files(Limits(connections=1000)).connections == 1024 - 200
    assert allowed["limits"] == (1024, 1024)
    assert within_open_files(Limits(connections=50)).connections == 50


@pytest.mark.parametrize("bad", [b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000, b"no request at all\r\n\r\n"])
def test_who_misbehaves_again_and_again_is_refused_before_anything_is_read(
    started: Callable[[Limits], int], bad: bytes
) -> None:
    port = started(replace(PLENTY, faults=5, fault_rate=0.001))
    for _ in range(5):
        assert status(port, source="127.0.0.9") == 200
        with connected(port, "127.0.0.9") as hostile:
            hostile.sendall(bad)
            assert ended(hostile)
    with connected(port, "127.0.0.9") as hostile:  # nothing was sent, and the answer is here
        assert hostile.recv(1 << 16).startswith(b"HTTP/1.1 429 ")
    assert status(port, source="127.0.0.9") == 429
    assert status(port, source="127.0.0.8") == 200


def test_bodies_that_are_refused_count_as_faults(started: Callable[[Limits], int]) -> None:
    port = started(replace(PLENTY, faults=3, fault_rate=0.001))
    for _ in range(3):
        with connected(port, "127.0.0.9") as hostile:
            hostile.sendall(b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\n\r\n")
            assert b" 413 " in hostile.recv(1 << 16)
    assert status(port, source="127.0.0.9") == 429 and status(port, source="127.0.0.8") == 200
