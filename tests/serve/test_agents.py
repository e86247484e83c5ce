"""Agents: the tools as the protocol's own client meets them, in process, over pipes and over HTTP."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import av
import pytest
import uvicorn
from PIL import Image

from holmes.base.files import UMASK
from holmes.cli.serve import mcp
from holmes.errors import HolmesError
from holmes.index.answer.searcher import Index
from holmes.serve.decoding import Decoders
from serve_fakes import FakeDiagnose, build, open_fake

if TYPE_CHECKING:  # imported by the tests: `mcp` takes a second, and tests of other files do not need it
    from mcp import Client

SRC = str(Path(__file__).parents[2] / "src")
Talk = Callable[["Client"], Awaitable[Any]]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("agents")
    build(folder)
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield open_fake(folder / "index", monkeypatch, FakeDiagnose())


def talk(index: Index, work: Talk, clips: Path | None = None) -> Any:
    from mcp import Client

    from holmes.serve.agents.server import make_server

    async def meet() -> Any:
        async with Client(make_server(index, clips)) as client:
            return await work(client)

    return asyncio.run(meet())


def called(index: Index, tool: str, clips: Path | None = None, **arguments: Any) -> dict[str, Any]:
    result = talk(index, lambda client: client.call_tool(tool, arguments), clips)
    assert not result.is_error, result.content
    assert result.content[0].text, "those who read no structured answers get it as text"
    found: dict[str, Any] = result.structured_content
    return found


def refused(index: Index, tool: str, **arguments: Any) -> str:
    result = talk(index, lambda client: client.call_tool(tool, arguments))
    assert result.is_error
    return str(result.content[0].text)


def test_the_tools_say_what_they_are_for(index: Index) -> None:
    tools = talk(index, lambda client: client.list_tools()).tools
    assert {tool.name for tool in tools} == {"search", "moments", "frames", "transcript", "library", "cut"}
    assert all(tool.description and tool.annotations for tool in tools)
    assert [tool.name for tool in tools if not tool.annotations.read_only_hint] == ["cut"]


@pytest.mark.parametrize(
    ("sentence", "certainty", "words"),
    [
        ("waves hit rocks", "likely", "is likely the one"),
        ("dog runs", "several", "Do not pick one"),
        ("dog soup", "unsure", "NOT SURE"),
        ("volcano castle", "not here", "PERHAPS NOT IN THIS LIBRARY"),
    ],
)
def test_how_sure_an_answer_is_comes_in_words(
    index: Index, sentence: str, certainty: str, words: str
) -> None:
    found = called(index, "search", sentence=sentence, top=3)
    assert found["certainty"] == certainty and words in found["next_step"]
    direct = index.search(sentence, 3)
    assert found["kind"] == direct.diagnosis.kind and found["explanation"] == direct.diagnosis.explanation
    assert [hit["path"] for hit in found["hits"]] == [hit.video for hit in direct.hits]
    first = found["hits"][0]
    assert first["probability"] == pytest.approx(direct.hits[0].probability)
    assert first["in_words"].endswith("% that it is the one")
    assert first["moments"][0]["start"] == pytest.approx(direct.hits[0].moments[0].start, abs=0.01)


def test_an_index_that_cannot_judge_says_so(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = open_fake(index.store.path, monkeypatch)
    found = called(plain, "search", sentence="waves hit rocks")
    assert found["certainty"] == "unknown" and "never calibrated" in found["next_step"]
    assert found["hits"][0]["in_words"] == "no probability" and "probability" not in found


def test_filters_moments_and_the_library(index: Index) -> None:
    home = str(Path(next(name for name in index.videos if "kitchen" in name)).parent)
    found = called(index, "search", sentence="dog runs beach", folder=home)
    assert {Path(hit["path"]).parent.name for hit in found["hits"]} == {"home"}
    assert "no video matches the filters" in refused(index, "search", sentence="dog", longer=9999.0)
    assert "write a day as" in refused(index, "search", sentence="dog", after="yesterday")
    listed = called(index, "library", contains="beach", limit=1)
    assert listed["videos_in_all"] == 4 and "offset=1" in listed["next_step"] and len(listed["videos"]) == 1
    coast = called(index, "library", contains="coast")["videos"][0]
    for name in (coast["id"], coast["path"], coast["title"]):
        moments = called(index, "moments", video=name, sentence="dog runs beach")["moments"]
        assert moments[0]["start"] == pytest.approx(4, abs=1) and moments[0]["end"] == pytest.approx(7, abs=1)


def test_frames_are_pictures(index: Index) -> None:
    result = talk(
        index, lambda client: client.call_tool("frames", {"video": "coast.mp4", "seconds": [1, 5.5]})
    )
    times, pictures = result.content[::2], result.content[1::2]
    assert [each.text for each in times] == ["0:01 (1 s)", "0:05 (5.5 s)"]
    colours = [Image.open(io.BytesIO(base64.b64decode(each.data))).getpixel((30, 20)) for each in pictures]
    assert colours[0][2] > 120 > colours[0][0] and colours[1][0] > 150 > colours[1][2], "blue sea, yellow dog"
    assert "no video has this id" in refused(index, "frames", video="../../etc/passwd", seconds=[1])
    assert "between 0 and 12" in refused(index, "frames", video="coast.mp4", seconds=[99])
    assert "1 to 8 frames" in refused(index, "frames", video="coast.mp4", seconds=[1] * 9)


def test_clips_are_saved_only_where_that_is_allowed(index: Index, tmp_path: Path) -> None:
    order = {"video": "coast.mp4", "start": 4.0, "end": 6.0}
    assert "--clips FOLDER" in refused(index, "cut", **order)
    files = [Path(called(index, "cut", tmp_path / "clips", exact=True, **order)["file"]) for _ in range(2)]
    assert [file.name for file in files] == ["coast-0m04.mp4", "coast-0m04 (2).mp4"], "nothing is replaced"
    with av.open(str(files[0])) as container:
        assert sum(1 for _ in container.decode(video=0)) == 20
    for wrong in ({"end": 4.0}, {"start": 99.0, "end": 100.0}, {"end": 5000.0}):
        result = talk(index, lambda client, wrong=wrong: client.call_tool("cut", order | wrong), tmp_path)
        assert result.is_error
    assert len(list((tmp_path / "clips").iterdir())) == 2


def test_a_clip_has_its_name_when_it_is_whole(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in the middle leaves nothing that looks like a clip; a failure leaves nothing at all."""
    seen: list[list[str]] = []

    async def pieces(*_: Any, **__: Any) -> AsyncIterator[bytes]:
        yield b"half"
        seen.append([path.name for path in tmp_path.glob("*.mp4")])
        if len(seen) > 1:
            raise HolmesError("the film is damaged.")

    monkeypatch.setattr(Decoders, "cut", pieces)
    order = {"video": "coast.mp4", "start": 4.0, "end": 6.0}
    first = called(index, "cut", tmp_path, **order)
    assert first["bytes"] == 4 and os.stat(first["file"]).st_mode & 0o777 == 0o666 & ~UMASK
    result = talk(index, lambda client: client.call_tool("cut", order), tmp_path)
    assert result.is_error and "damaged" in result.content[0].text
    assert seen == [[], ["coast-0m04.mp4"]] and os.listdir(tmp_path) == ["coast-0m04.mp4"]


def test_without_a_transcript_it_says_so(index: Index) -> None:
    found = called(index, "transcript", video="coast.mp4")
    assert found["passages"] == [] and "no transcript" in found["next_step"]


VALID = b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 2"
COMMAND = """
import sys
from index_fakes import FakeJoint
from holmes.cli import main
from holmes.media.backbones.own import ENCODERS
ENCODERS["fake"] = FakeJoint()
sys.argv = ["holmes", "mcp", *sys.argv[1:]]
main.main()
"""


def environment() -> dict[str, str]:
    support = str(Path(__file__).parents[1] / "support")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([SRC, support]), "CUDA_VISIBLE_DEVICES": ""}


async def conversation(client: Client) -> None:
    found = await client.call_tool("search", {"sentence": "dog runs beach"})
    assert Path(found.structured_content["hits"][0]["path"]).name == "coast.mp4"
    video = found.structured_content["hits"][0]["id"]
    frames = await client.call_tool("frames", {"video": video, "seconds": [5.0]})
    assert frames.content[1].type == "image"


def test_the_command_speaks_over_pipes(index: Index) -> None:
    from mcp import Client, StdioServerParameters

    parameters = StdioServerParameters(
        command=sys.executable, args=["-c", COMMAND, str(index.store.path)], env=environment()
    )

    async def meet() -> None:
        async with Client(parameters) as client:
            await conversation(client)

    asyncio.run(asyncio.wait_for(meet(), 60))


def test_it_speaks_http_to_this_machine_only(index: Index) -> None:
    from mcp import Client

    from holmes.serve.agents.server import http_app, make_server

    with pytest.raises(HolmesError, match="this machine only"):
        mcp(index.store.path, http=True, host="0.0.0.0")
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    app = http_app(make_server(index), "127.0.0.1", port)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:

        async def meet() -> None:
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                await conversation(client)

        asyncio.run(asyncio.wait_for(meet(), 60))
        for header in (b"Host: evil.example", b"Host: 127.0.0.1:%d\r\nOrigin: http://evil.example" % port):
            with socket.create_connection(("127.0.0.1", port)) as foreign:
                foreign.sendall(b"POST /mcp HTTP/1.1\r\n" + header + b"\r\n" + VALID + b"\r\n\r\n{}")
                assert foreign.recv(100).split()[1] in (b"421", b"403")
    finally:
        server.should_exit = True
        thread.join(20)


def test_a_transcript_comes_in_parts(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def passage(start: float) -> SimpleNamespace:
        plain = {"start": start, "end": start + 1, "text": "w" * 9000, "source": "speech"}
        return SimpleNamespace(**plain, to_dict=lambda: plain)

    heard = SimpleNamespace(passages=[passage(float(second)) for second in range(4)])
    monkeypatch.setattr(Index, "transcript", lambda self, video: heard, raising=False)
    first = called(index, "transcript", video="coast.mp4")
    assert [each["start"] for each in first["passages"]] == [0, 1] and "start=2.0" in first["next_step"]
    rest = called(index, "transcript", video="coast.mp4", start=2.5, end=8.0)
    assert [each["at"] for each in rest["passages"]] == ["0:02", "0:03"]
    none = called(index, "transcript", video="coast.mp4", start=9.0)
    assert none["passages"] == [] and "Nothing is said" in none["next_step"]
