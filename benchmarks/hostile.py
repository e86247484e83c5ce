"""Clients of a server for `benchmarks/serve.py --hostile`: people who ask, and others who misbehave.

Each client has a loopback address of its own, as if it were another machine. They run in a process of their
own: `python benchmarks/hostile.py PORT SECONDS people|hostile COUNT [KIND]`, which prints as JSON what people
got.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import quote

import numpy as np

WORDS = ("red", "green", "blue", "circle", "square", "star", "moves", "rises", "falls", "left", "slowly")
CONNECTIONS = 40  # that one client with slow headers or unread films holds
TIMEOUT = 120.0


class Connection:
    """HTTP/1.1 from one address; opened again if the server has closed it while it was idle."""

    def __init__(self, port: int, address: str) -> None:
        self.port, self.address = port, address
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(self.address, 0))
        return self.streams

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].transport.abort()
            self.streams = None

    async def get(self, path: str) -> tuple[int, bytes]:
        return await self.send("GET", path)

    async def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        sent = head.encode() + b"Content-Type: application/json\r\n\r\n" + body
        for attempt in (1, 2):
            reader, writer = await self.open()
            try:
                writer.write(sent)
                await writer.drain()
                told = await reader.readuntil(b"\r\n\r\n")
                break
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
                if attempt == 2:
                    raise
        length = int(told.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        return int(told.split(b" ", 2)[1]), await reader.readexactly(length)


async def person(port: int, number: int, end: float, delays: list[float], lost: list[str]) -> None:
    """Asks the next question when the last is answered."""
    rng = random.Random(number)
    connection = Connection(port, f"127.0.2.{number % 250 + 1}")
    await asyncio.sleep(rng.random())
    while time.monotonic() < end:
        sentence = f"{' '.join(rng.choices(WORDS, k=6))} {rng.randrange(10**6)}"
        began = time.perf_counter()
        try:
            status, body = await asyncio.wait_for(connection.get(f"/api/search?q={quote(sentence)}"), TIMEOUT)
            fault = "" if status == 200 else f"{status} {body[:100]!r}"
            if not fault and json.loads(body)["query"] != sentence:
                fault = "another's answer"
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
            connection.close()
            fault = repr(error)
        delays.append(time.perf_counter() - began)
        if fault:
            lost.append(fault)
    connection.close()


async def slow_headers(port: int, address: str, end: float) -> None:
    async def one() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        writer.write(b"GET /api/health HTTP/1.1\r\nHost: ")
        while time.monotonic() < end and not writer.transport.is_closing():
            writer.write(b"x")
            await asyncio.sleep(1)

    await repeated(one, end, CONNECTIONS)


async def large_headers(port: int, address: str, end: float) -> None:
    async def one() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        writer.write(b"GET /api/health HTTP/1.1\r\nX: ")
        while time.monotonic() < end and not writer.transport.is_closing():
            writer.write(b"x" * 65536)
            await writer.drain()

    await repeated(one, end, 2)


async def large_bodies(port: int, address: str, end: float) -> None:
    async def one() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        writer.write(b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        while time.monotonic() < end and not writer.transport.is_closing():
            writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
            await writer.drain()

    await repeated(one, end, 2)


async def unread_films(port: int, address: str, end: float) -> None:
    listing = Connection(port, address)
    _, body = await listing.get("/api/videos?limit=20")
    listing.close()
    paths = [f"/api/videos/{video['id']}/stream" for video in json.loads(body)["videos"]]

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0), limit=4096)
        writer.write(f"GET {random.choice(paths)} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        await reader.read(64)
        while time.monotonic() < end and not reader.at_eof():
            await asyncio.sleep(0.5)

    await repeated(one, end, CONNECTIONS // 4)


async def sentence_flood(port: int, address: str, end: float) -> None:
    long = [(" ".join(random.choices(WORDS, k=200)))[:499] for _ in range(64)]
    body = json.dumps({"sentences": long, "top": 100}).encode()
    head = f"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        writer.write(head.encode() + b"Content-Type: application/json\r\nConnection: close\r\n\r\n" + body)
        await reader.read()

    await repeated(one, end, 4)


async def abandoned_uploads(port: int, address: str, end: float) -> None:
    """Announces files without end, and leaves each in the middle of a piece."""

    async def one() -> None:
        told = {"name": f"{random.random()}.mp4", "size": 10**8, "sha256": random.randbytes(32).hex()}
        connection = Connection(port, address)
        _, content = await connection.send("POST", "/api/uploads", json.dumps(told).encode())
        _, writer = await connection.open()
        answer = json.loads(content)
        if "id" in answer:
            path = f"/api/uploads/{answer['id']}?offset=0"
            head = f"PATCH {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 16000000\r\n\r\n"
            writer.write(head.encode())
            while time.monotonic() < end and not writer.transport.is_closing():
                writer.write(b"x" * 10_000)
                await asyncio.sleep(1)
        writer.transport.abort()

    await repeated(one, end, CONNECTIONS // 2)


async def wrong_uploads(port: int, address: str, end: float) -> None:
    """Sends files that are not what was announced, as fast as the server takes them."""
    content = b"x" * 4_000_000

    async def one() -> None:
        told = {"name": f"{random.random()}.mp4", "size": len(content), "sha256": "0" * 64}
        connection = Connection(port, address)
        try:
            status, answer = await connection.send("POST", "/api/uploads", json.dumps(told).encode())
            if status == 200:
                upload = json.loads(answer)
                path = f"/api/uploads/{upload['id']}?offset={upload['offset']}"
                await connection.send("PATCH", path, content)
        finally:
            connection.close()

    await repeated(one, end, 4)


async def repeated(work: Callable[[], Awaitable[None]], end: float, at_once: int) -> None:
    """The same again and again until the end, several at a time."""

    async def again() -> None:
        while time.monotonic() < end:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
                await asyncio.wait_for(work(), max(0.1, end - time.monotonic()))
            await asyncio.sleep(0.1)

    await asyncio.gather(*(again() for _ in range(at_once)))


KINDS = (
    slow_headers,
    large_headers,
    large_bodies,
    unread_films,
    sentence_flood,
    abandoned_uploads,
    wrong_uploads,
)


async def main(port: int, seconds: float, who: str, count: int, kind: str | None = None) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    end = time.monotonic() + seconds
    if who == "hostile":
        kinds = [each for each in KINDS if kind in (None, each.__name__)]
        await asyncio.gather(*(kinds[n % len(kinds)](port, f"127.0.3.{n + 1}", end) for n in range(count)))
        return
    delays: list[float] = []
    lost: list[str] = []
    await asyncio.gather(*(person(port, number, end, delays, lost) for number in range(count)))
    median, most = np.quantile(delays, [0.5, 0.99])
    figures = {"answers": len(delays), "lost": len(lost), "p50 ms": 1e3 * median, "p99 ms": 1e3 * most}
    print(json.dumps({**figures, "why": sorted(set(lost))[:3]}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], int(sys.argv[4]), *sys.argv[5:]))
