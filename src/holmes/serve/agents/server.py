"""Serve the tools over the Model Context Protocol: standard input and output, or local HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations
from pydantic import Field

import holmes
from holmes.base.printing import clock
from holmes.errors import HolmesError
from holmes.index.answer.base import SearchIndex
from holmes.serve.agents.tools import FRAME_WIDTH, TOP, AgentTools

T = TypeVar("T")
Video = Annotated[str, Field(description="The id of a video, as search and library give it.")]
Sentence = Annotated[str, Field(description="What happens in the moment.", max_length=500)]
INSTRUCTIONS = """\
Holmes finds moments in a library of videos from one sentence, and says how sure it is.
Describe one moment in a plain sentence ("a dog runs into the sea"), not in keywords.
Read `certainty` and `next_step` of every answer and follow them: only a "likely" answer is a find.
Confirm a hit with `frames` at its moment before you claim it. Times are seconds."""


def make_server(index: SearchIndex, clips: Path | None = None) -> Any:
    """An `mcp` server over an open index; `clips` is the folder that the tool `cut` may write to."""
    tools = AgentTools(index, clips)

    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await tools.close()

    server = MCPServer(
        "holmes",
        title="Holmes",
        description="Find moments in videos from one sentence, and know how sure the answer is.",
        instructions=INSTRUCTIONS,
        version=holmes.__version__,
        lifespan=lifespan,
        log_level="WARNING",
    )
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    writes = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)

    async def done(work: Awaitable[T]) -> T:
        try:
            return await work
        except HolmesError as error:
            raise ToolError(str(error)) from None

    @server.tool(title="Search", annotations=reads)
    async def search(
        sentence: Sentence,
        top: Annotated[int, Field(description="How many videos, 1 to 50.")] = TOP,
        folder: Annotated[str | None, Field(description="Only videos below this folder.")] = None,
        after: Annotated[str | None, Field(description="Only files changed on this day or later.")] = None,
        before: Annotated[str | None, Field(description="Only files changed on this day or earlier.")] = None,
        longer: Annotated[float | None, Field(description="Only videos of at least these seconds.")] = None,
        shorter: Annotated[float | None, Field(description="Only videos of at most these seconds.")] = None,
    ) -> dict[str, Any]:
        """Find the videos that contain a moment. Read `certainty` and `next_step` before using the hits."""
        return await done(tools.search(sentence, top, folder, after, before, longer, shorter))

    @server.tool(title="Moments of one video", annotations=reads)
    async def moments(video: Video, sentence: Sentence) -> dict[str, Any]:
        """Where in one video a sentence fits best."""
        return await done(tools.moments(video, sentence))

    @server.tool(title="Frames as pictures", annotations=reads, structured_output=False)
    async def frames(
        video: Video,
        seconds: Annotated[list[float], Field(description="Up to 8 times in the video.")],
        width: Annotated[int, Field(description="Pixels, 32 to 960.")] = FRAME_WIDTH,
    ) -> list[Any]:
        """Look at a video: what is on the screen at some seconds."""
        pictures = await done(tools.frames(video, seconds, width))
        named = [f"{clock(second)} ({second:g} s)" for second in seconds]
        both = zip(named, pictures, strict=True)
        return [part for name, jpeg in both for part in (name, Image(data=jpeg, format="jpeg"))]

    @server.tool(title="Transcript", annotations=reads)
    async def transcript(
        video: Video,
        start: Annotated[float, Field(description="Seconds.")] = 0.0,
        end: Annotated[float | None, Field(description="Seconds.")] = None,
    ) -> dict[str, Any]:
        """What is said or written in a video, where the index knows it."""
        return await done(tools.transcript(video, start, end))

    @server.tool(title="Library", annotations=reads)
    async def library(
        contains: Annotated[str, Field(description="A part of the path.")] = "",
        offset: int = 0,
        limit: Annotated[int, Field(description="1 to 200.")] = 50,
    ) -> dict[str, Any]:
        """Which videos there are."""
        return await done(tools.library(contains, offset, limit))

    @server.tool(title="Cut", annotations=writes)
    async def cut(
        video: Video,
        start: Annotated[float, Field(description="Seconds.")],
        end: Annotated[float, Field(description="Seconds.")],
        exact: Annotated[bool, Field(description="Begin and end with the very frame; slower.")] = False,
    ) -> dict[str, Any]:
        """Save seconds of a video as a new MP4 file on the machine of the library, if that is allowed."""
        return await done(tools.cut(video, start, end, exact))

    return server


def http_app(server: Any, host: str, port: int) -> Any:
    """The server at /mcp; requests to other names, and from other sites' pages, are refused."""
    own = f"[{host}]" if ":" in host else host
    named = [f"{name}:{port}" for name in (own, "localhost", "127.0.0.1")]
    origins = [f"http://{name}" for name in named]
    security = TransportSecuritySettings(allowed_hosts=named, allowed_origins=origins)
    return server.streamable_http_app(host=host, transport_security=security)


def run_http(server: Any, host: str, port: int) -> None:
    """Serve over HTTP until Ctrl-C."""
    import uvicorn

    uvicorn.run(http_app(server, host, port), host=host, port=port, log_level="warning")
