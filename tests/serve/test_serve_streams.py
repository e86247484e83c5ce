"""Films over HTTP: ranges byte by byte, conversions frame by frame, and how many at once."""

from __future__ import annotations

import asyncio
import email
import email.policy
import io
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import av
import numpy as np
import pytest
from starlette.testclient import TestClient

from browser import serving
from holmes.base.processes import MEMORY, WRITTEN
from holmes.media.containers import VideoError
from holmes.media.playable import Plan, fragmented_mp4, plan_conversion
from holmes.media.reader import VideoReader
from holmes.serve import decoding
from holmes.serve.settings import ServeSettings
from holmes.serve.thumbnails import Thumbnails
from holmes.serve.turns import Caller
from media_files import turn_clockwise
from serve_fakes import PLENTY, build, client_of, open_fake
from waiting import LONG, wait_for


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    build(folder)
    return folder


@pytest.fixture
def client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    with client_of(open_fake(folder / "index", monkeypatch)) as client:
        yield client


@pytest.fixture
def path(client: TestClient) -> str:
    found = client.get("/api/videos", params={"q": "coast"}).json()["videos"][0]
    return f"/api/videos/{found['id']}/stream"


@pytest.fixture
def content(folder: Path) -> bytes:
    return (folder / "films" / "beach" / "coast.mp4").read_bytes()


def test_a_picture_that_nobody_waits_for_is_not_decoded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    happened: list[str] = []

    async def never(*given: object) -> bytes:
        happened.append("asked")
        try:
            await asyncio.Event().wait()
        finally:
            happened.append("dropped")
        return b""

    monkeypatch.setattr(Thumbnails, "at", never)
    with serving(open_fake(folder / "index", monkeypatch), ServeSettings(limits=PLENTY)) as address:
        host = address.removeprefix("http://")
        with socket.create_connection(host.split(":")) as browser:
            browser.sendall(
                f"GET {path.replace('stream', 'thumbnail')} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
            )
            wait_for(lambda: happened == ["asked"])
        wait_for(lambda: happened == ["asked", "dropped"])


def test_a_file_is_sent_as_it_is(client: TestClient, path: str, content: bytes) -> None:
    whole = client.get(path)
    assert whole.status_code == 200 and whole.content == content
    assert whole.headers["content-type"] == "video/mp4" and whole.headers["accept-ranges"] == "bytes"
    head = client.head(path)
    assert head.status_code == 200 and head.content == b""
    assert head.headers["content-length"] == str(len(content))
    assert "attachment" in client.get(path, params={"download": True}).headers["content-disposition"]


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("0-0", 0, 1), ("10-19", 10, 20), ("100-", 100, None), ("-50", -50, None), ("5-999999999", 5, None)],
)
def test_one_range(
    client: TestClient, path: str, content: bytes, asked: str, start: int, end: int | None
) -> None:
    answer = client.get(path, headers={"range": f"bytes={asked}"})
    assert answer.status_code == 206 and answer.content == content[start:end]
    first = start % len(content)
    last = first + len(answer.content) - 1
    assert answer.headers["content-range"] == f"bytes {first}-{last}/{len(content)}"
    head = client.head(path, headers={"range": f"bytes={asked}"})
    assert head.status_code == 206 and head.headers["content-length"] == str(len(answer.content))


def test_several_ranges_come_in_parts(client: TestClient, path: str, content: bytes) -> None:
    answer = client.get(path, headers={"range": "bytes=0-9,100-149,-20"})
    assert answer.status_code == 206
    head = f"content-type: {answer.headers['content-type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + answer.content, policy=email.policy.HTTP)
    parts = [part.get_payload(decode=True) for part in message.iter_parts()]  # type: ignore[attr-defined]
    assert parts == [content[:10], content[100:150], content[-20:]]


@pytest.mark.parametrize(
    "nonsense", ["bytes", "lines=1-2", "bytes=a-b", "bytes=--", "bytes=5-2", "bytes=", "bytes=0-1,9-3"]
)
def test_an_invalid_range_counts_as_none(
    client: TestClient, path: str, content: bytes, nonsense: str
) -> None:
    answer = client.get(path, headers={"range": nonsense})
    assert answer.status_code == 200 and answer.content == content


def test_ranges_beyond_the_file_are_refused_in_json(client: TestClient, path: str, content: bytes) -> None:
    for beyond in (f"{len(content)}-", "99999999999999-", "-0", f"{len(content)}-,-0"):
        answer = client.get(path, headers={"range": f"bytes={beyond}"})
        assert answer.status_code == 416 and answer.headers["content-range"] == f"bytes */{len(content)}"
        assert f"the file has {len(content)} bytes" in answer.json()["error"]
    some = client.get(path, headers={"range": f"bytes=0-9,{len(content)}-"})  # one of two is possible
    assert some.status_code == 206 and some.content == content[:10]


def test_too_many_at_once_are_told_to_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServeSettings(limits=replace(PLENTY, streams=0, conversions=0))
    with client_of(open_fake(folder / "index", monkeypatch), settings) as client:
        id = client.get("/api/videos").json()["videos"][0]["id"]
        for parameters in ({}, {"convert": "encoded"}):
            answer = client.get(f"/api/videos/{id}/stream", params=parameters)
            assert answer.status_code == 503 and "no more videos" in answer.json()["error"]
            assert answer.headers["retry-after"] == "1"


def test_a_conversion_ends_when_nobody_watches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A film without end, and one conversion at a time: the next starts only if the first was stopped."""
    monkeypatch.setattr(decoding, "TARGET", "fake_children:start_endless_film")
    settings = ServeSettings(limits=replace(PLENTY, conversions=1))
    with serving(open_fake(folder / "index", monkeypatch), settings) as address:
        host, port = address.removeprefix("http://").split(":")
        with urlopen(f"{address}/api/videos") as listed:
            id = json.load(listed)["videos"][0]["id"]
        wanted = f"/api/videos/{id}/stream?convert=encoded"

        def watch() -> bool:
            """Whether a second viewer is let in."""
            with socket.create_connection((host, int(port)), timeout=60) as viewer:
                viewer.sendall(f"GET {wanted} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                return viewer.recv(64).startswith(b"HTTP/1.1 200")

        with socket.create_connection((host, int(port))) as viewer:
            viewer.sendall(f"GET {wanted} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert viewer.recv(64).startswith(b"HTTP/1.1 200")
            with pytest.raises(HTTPError, match="503"):
                urlopen(address + wanted)
        wait_for(watch)


def coded(path: Path, codec: str, sound: str | None, seconds: int = 6, **options: str) -> Path:
    """Brighter from second to second, with a tone."""
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        voice: Any = container.add_stream(sound, rate=44100) if sound else None
        if voice is not None:
            voice.layout = "stereo"
        for n in range(25 * seconds):
            image = np.full((48, 64, 3), 20 + 30 * (n // 25), np.uint8)
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = n, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if voice is not None:
            wave = 0.3 * np.sin(np.arange(44100 * seconds) * 2 * np.pi * 440 / 44100)
            whole = av.AudioFrame.from_ndarray(np.stack([wave, wave]).astype(np.float32), "fltp", "stereo")
            whole.sample_rate = 44100
            size = voice.codec_context.frame_size or 1024
            resampler = av.AudioResampler(voice.codec_context.format, "stereo", 44100, frame_size=size)
            for frame in resampler.resample(whole) + resampler.resample(None):
                frame.pts = None
                container.mux(voice.encode(frame))
            container.mux(voice.encode(None))
    return path


def decoded(data: bytes) -> tuple[list[float], list[float], float]:
    """Times and brightness of the pictures, and the seconds of sound."""
    with av.open(io.BytesIO(data)) as container:
        frames = [(f.time, float(f.to_ndarray(format="gray").mean())) for f in container.decode(video=0)]
    with av.open(io.BytesIO(data)) as container:
        heard = (
            sum(f.samples / f.sample_rate for f in container.decode(audio=0))
            if container.streams.audio
            else 0
        )
    return [time for time, _ in frames], [level for _, level in frames], heard


@pytest.mark.parametrize(
    ("name", "codec", "sound", "copied"),
    [
        ("a.ts", "libx264", "aac", True),
        ("a.flv", "libx264", "aac", True),
        ("a.avi", "mpeg4", "mp3", False),
        ("a.mpg", "mpeg2video", "mp2", False),
        ("a.mkv", "libx265", None, False),
    ],
)
@pytest.mark.parametrize("start", [0.0, 3.4])
def test_a_conversion_starts_where_it_says_and_carries_the_sound(
    tmp_path: Path, name: str, codec: str, sound: str | None, copied: bool, start: float
) -> None:
    options = (
        {"g": "25", "bf": "0"}
        if codec == "libx264"
        else {"x265-params": "log-level=none"}
        if codec == "libx265"
        else {}
    )
    file = coded(tmp_path / name, codec, sound, **options)
    plan = plan_conversion(file, start)
    assert plan.copied is copied and plan.start <= start < plan.start + (1.01 if copied else 1e-9)
    times, levels, heard = decoded(b"".join(fragmented_mp4(file, plan)))
    assert times[0] == pytest.approx(0, abs=0.1) and times == sorted(times)
    assert times[-1] == pytest.approx(6 - plan.start, abs=0.25)
    for time, level in zip(times[::10], levels[::10], strict=True):  # the pictures are those of their second
        second = int(plan.start + time + 1e-3)
        assert min(abs(level - (20 + 30 * near)) for near in (second, max(0, second - 1))) < 12
    assert levels[3] == pytest.approx(20 + 30 * int(plan.start + times[3]), abs=12)
    assert heard == pytest.approx(6 - plan.start if sound else 0, abs=0.35)


def test_a_phone_held_upright_stays_upright(tmp_path: Path) -> None:
    file = turn_clockwise(coded(tmp_path / "a.mp4", "mpeg4", None, seconds=1))
    with av.open(io.BytesIO(b"".join(fragmented_mp4(file, Plan(False, 0.0))))) as container:
        frame = next(container.decode(video=0))
    assert (frame.width, frame.height) == (48, 64)


def test_a_conversion_can_be_left_at_any_moment(tmp_path: Path) -> None:
    file = coded(tmp_path / "a.avi", "mpeg4", "mp3")
    pieces = fragmented_mp4(file, Plan(False, 0.0))
    assert next(pieces)[4:8] == b"ftyp"
    pieces.close()
    assert next(pieces, None) is None


def test_a_decoder_that_crashes_harms_no_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F12: pictures were decoded inside the server."""
    monkeypatch.setattr(decoding, "TARGET", "fake_children:start_crashing_on_large")
    with client_of(open_fake(folder / "index", monkeypatch)) as client:
        id = client.get("/api/videos", params={"q": "coast"}).json()["videos"][0]["id"]
        pictures = {
            width: client.get(f"/api/videos/{id}/thumbnail", params={"t": 5.5, "width": width})
            for width in (100, 300, 960, 320)
        }
        assert {picture.status_code for picture in pictures.values()} == {200}
        kept = pictures[100].content  # small ones need no decoding
        assert pictures[960].content == kept != pictures[300].content == pictures[320].content
        decoders = client.app.state.server.decoders  # type: ignore[attr-defined]
        alive = [worker.child for worker in decoders.workers]
        assert alive and all(child.pid != os.getpid() for child in alive)
    assert not any(child.alive for child in alive)


def test_a_server_ends_while_a_picture_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for the decoder that it had killed, as long as a picture may take."""
    monkeypatch.setattr(decoding, "TARGET", "fake_children:start_sleeping")

    async def closed() -> None:
        decoders = decoding.Decoders(replace(PLENTY, decode_seconds=10 * LONG))
        picture = asyncio.create_task(decoders.picture(Path("film.mp4"), 0.0, 100, Caller("somebody")))
        while not decoders.workers:
            await asyncio.sleep(0)
        await asyncio.wait_for(decoders.close(), LONG)
        with pytest.raises(decoding.DecodeError, match="ended by SIGKILL"):
            await picture

    asyncio.run(closed())


def test_a_decoder_is_bounded_in_memory_time_and_files(
    folder: Path, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = client.get("/api/videos", params={"q": "coast"}).json()["videos"][0]["id"]
    client.get(f"/api/videos/{id}/thumbnail", params={"t": 2.0, "width": 320})
    (worker,) = client.app.state.server.decoders.workers  # type: ignore[attr-defined]
    limits = Path(f"/proc/{worker.child.pid}/limits").read_text()
    for line, value in (("Max address space", MEMORY), ("Max file size", WRITTEN), ("Max core file size", 0)):
        assert str(value) in next(each for each in limits.splitlines() if each.startswith(line)).split()
    monkeypatch.setattr(decoding, "TARGET", "fake_children:start_sleeping")
    settings = ServeSettings(limits=replace(PLENTY, decode_seconds=0.2))
    with client_of(open_fake(folder / "index", monkeypatch), settings) as slow:
        answer = slow.get(f"/api/videos/{id}/playback", params={"t": 1.0})
        assert answer.status_code == 409 and "within 0.2 seconds" in answer.json()["error"]


def test_a_converted_stream_over_http(client: TestClient, folder: Path, path: str) -> None:
    told = client.get(path.replace("/stream", "/playback"), params={"t": 5.0}).json()
    assert told["how"] == "copied" and told["start"] <= 5.0
    answer = client.get(told["address"])
    assert answer.status_code == 200 and answer.headers["content-type"] == "video/mp4"
    times, _, _ = decoded(answer.content)
    assert times[-1] == pytest.approx(12 - told["start"], abs=0.3)
    assert not client.app.state.server.conversions.viewers  # type: ignore[attr-defined]


@pytest.mark.parametrize("time", [0.0, 0.99, 1.0, 3.37, 5.96, 99.0])
@pytest.mark.parametrize("name", ["a.mp4", "a.ts"])
def test_the_picture_at_a_moment(tmp_path: Path, time: float, name: str) -> None:
    file = coded(tmp_path / name, "libx264", None, g="40", bf="2")
    picture = VideoReader(file, 1.0).at(time)
    assert picture.mean() == pytest.approx(20 + 30 * min(5, int(time)), abs=8)


def test_what_is_no_film_has_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"no film" * 50)
    with pytest.raises(VideoError, match="not a video file"):
        VideoReader(tmp_path / "a.mp4", 1.0).at(0.0)
