"""Send films to players: ranges of files, and conversions that stop when nobody watches."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.types import Message, Receive, Scope, Send

from holmes.errors import HolmesError
from holmes.serve.guard import client_of
from holmes.serve.turns import BusyError

log = logging.getLogger("holmes.serve")
PART = re.compile(r"([0-9]{0,18})-([0-9]{0,18})")
END = 10**18  # after the last byte of any file
MOST_RANGES = 100  # of one request
STALLED = 2.0  # seconds without reading after which a viewer may lose the slot to another


@dataclass(eq=False)
class _Viewer:
    client: str
    abort: Callable[[], None] | None  # ends the connection
    stalled_since: float | None = None


class SendSlots:
    """A limit on concurrent streams. At the limit, a new one replaces the one that was idle for longest."""

    def __init__(self, most: int, most_per_client: int, what: str) -> None:
        self.most, self.most_per_client, self.what = most, most_per_client, what
        self.viewers: list[_Viewer] = []

    @contextmanager
    def sending(self, scope: Scope, send: Send) -> Iterator[Send]:
        """A `send` in a slot of its own, which notes when its viewer does not read."""
        viewer = _Viewer(client_of(scope), scope.get("state", {}).get("abort"))
        own = [each for each in self.viewers if each.client == viewer.client]
        if len(own) >= self.most_per_client:
            self._displace(own)
        elif len(self.viewers) >= self.most:
            self._displace(self.viewers)
        self.viewers.append(viewer)

        async def noted(message: Message) -> None:
            viewer.stalled_since = time.monotonic()
            await send(message)
            viewer.stalled_since = None

        try:
            yield noted
        finally:
            if viewer in self.viewers:
                self.viewers.remove(viewer)

    def _displace(self, viewers: list[_Viewer]) -> None:
        before = time.monotonic() - STALLED
        stalled = [
            each for each in viewers if each.abort and each.stalled_since and each.stalled_since < before
        ]
        if not stalled:
            raise BusyError(f"this server allows no more videos to be {self.what} at once; close one first.")
        oldest = min(stalled, key=lambda each: each.stalled_since or 0.0)
        self.viewers.remove(oldest)
        if oldest.abort:
            oldest.abort()


class LimitedFile(FileResponse):
    """A file, whole or in ranges, counted among the streams while it is being sent."""

    chunk_size = 256 * 1024

    def __init__(self, file: Path, kind: str, name: str | None, slots: SendSlots) -> None:
        super().__init__(file, media_type=kind, filename=name, stat_result=file.stat())
        self.slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.slots.sending(scope, send) as noted:
            await super().__call__(scope, receive, noted)


class MadeVideo(Response):
    """A video made while it is sent; each piece is made when the one before it has gone."""

    media_type = "video/mp4"

    def __init__(
        self, pieces: AsyncGenerator[bytes], slots: SendSlots, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "accept-ranges": "none", **(headers or {})})
        del self.headers["content-length"]
        self.pieces, self.slots = pieces, slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.slots.sending(scope, send) as noted:
            pieces, gone = self.pieces, asyncio.create_task(disconnected(receive))
            try:
                piece = await anext(pieces, b"")  # what cannot be made at all is an error, not an empty video
                await noted({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                while piece and not gone.done():
                    await noted({"type": "http.response.body", "body": piece, "more_body": True})
                    piece = await anext(pieces, b"")
                if gone.done():
                    return
                await noted({"type": "http.response.body", "body": b""})
            except HolmesError as error:
                log.warning("a conversion ended early: %s", error)
                raise
            finally:
                gone.cancel()
                await pieces.aclose()


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def follow_ranges(scope: Scope, size: int) -> None:
    """Leave only ranges in the Range header that the file has.

    An invalid header counts as none (RFC 9110, 14.2); if the file has no range asked for, the answer is 416.
    """
    headers = Headers(scope=scope)
    ranges = parse_ranges(headers.get("range", ""))
    within = [(first, last) for first, last in ranges if (last > 0 if first is None else first < size)]
    if ranges and not (within and size) and "if-range" not in headers:
        reason = f"the file has {size} bytes, none of them in the range asked for"
        raise HTTPException(416, reason, {"content-range": f"bytes */{size}"})
    kept = ",".join(f"{'' if first is None else first}-{last}" for first, last in within if size)
    others = [pair for pair in scope["headers"] if pair[0] != b"range"]
    scope["headers"] = [*others, (b"range", f"bytes={kept}".encode())] if kept else others


def parse_ranges(given: str) -> list[tuple[int | None, int]]:
    """First and last byte of each range; the first is None where the last bytes of a file are asked for."""
    unit, _, text = given.partition("=")
    parts = [PART.fullmatch(part.strip()) for part in text.split(",")]
    if unit != "bytes" or len(parts) > MOST_RANGES:
        return []
    ranges: list[tuple[int | None, int]] = []
    for part in parts:
        if part is None or not (part[1] or part[2]):
            return []
        first, last = int(part[1]) if part[1] else None, int(part[2] or END)
        if first is not None and first > last:
            return []
        ranges.append((first, last))
    return ranges
