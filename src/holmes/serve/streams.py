"""Films on their way to a player: files in ranges, and conversions that stop when nobody watches."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from holmes.errors import HolmesError
from holmes.media.playable import Plan, fragmented_mp4

log = logging.getLogger("holmes.serve")


class LimitedFile(FileResponse):
    """A file, whole or in ranges, counted among the streams while it is being sent."""

    chunk_size = 256 * 1024

    def __init__(self, file: Path, kind: str, name: str | None, streams: asyncio.Semaphore) -> None:
        super().__init__(file, media_type=kind, filename=name, stat_result=file.stat())
        self.streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.streams:
            await super().__call__(scope, receive, send)


class Converted(Response):
    """A video converted while it is sent; each piece is made when the one before it has gone."""

    media_type = "video/mp4"

    def __init__(self, file: Path, plan: Plan, conversions: asyncio.Semaphore) -> None:
        super().__init__(headers={"cache-control": "no-store", "accept-ranges": "none"})
        del self.headers["content-length"]
        self.file, self.plan, self.conversions = file, plan, conversions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.conversions:
            pieces = fragmented_mp4(self.file, self.plan)
            gone = asyncio.create_task(_disconnected(receive))
            try:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                while not gone.done():
                    piece = await asyncio.to_thread(next, pieces, None)
                    if piece is None:
                        break
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            except HolmesError as error:
                log.warning("a conversion ended early: %s", error)
                raise
            finally:
                gone.cancel()
                with suppress(asyncio.CancelledError):
                    await gone
                await asyncio.to_thread(pieces.close)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
