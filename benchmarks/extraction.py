"""How fast films become features, beside FFmpeg's own decoding alone and beside the encoder alone.

    python benchmarks/extraction.py FOLDER_OF_CLIPS --work FOLDER

Films of three sizes in two codings are made from the clips. For each, four things are timed on all cores:
PyAV decoding every frame and doing nothing else, with FFmpeg's threads, of frames or of slices, whichever is
faster; the encoder on frames that are decoded already; and extraction as `holmes extract` does it, of one
film and of one film per core. What counts is the clock, without the time that a worker takes to start.

The same once more on one core, in processor time, which other work on the machine disturbs little. There
decoding alone does not pay for sharing a file among threads, so extraction has more to match. If an hour of
video takes D core-seconds to decode and E to encode, the slower of the two alone takes max(D, E) and both
together D + E: the "ceiling" is max(D, E) / (D + E). What need not be decoded brings extraction beyond it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import av
import numpy as np
import torch
import typer
from common import machine, print_table, save_json, work_folder

from holmes.media.extraction import extract
from holmes.media.pool import ONE_THREAD

HEIGHTS = {"360p": (640, 360), "720p": (1280, 720), "1080p": (1920, 1080)}
CODECS = {"H.264": "libx264", "H.265": "libx265"}
FRAMES_PER_SECOND = 25
GRAIN = 4  # deviation, in levels of brightness: without it, scaled-up pictures would be too easy to decode
KEY_SECONDS = 2  # frames between key frames, as in streamed films
PRESETS = {"libx264": "fast", "libx265": "superfast"}
DECODE = """
import json, sys, time
import av
began, worked = time.perf_counter(), time.process_time()
with av.open(sys.argv[1]) as container:
    stream = container.streams.video[0]
    stream.thread_type, stream.codec_context.thread_count = sys.argv[3], int(sys.argv[2])
    for frame in container.decode(stream):
        pass
print(json.dumps([time.perf_counter() - began, time.process_time() - worked]))
"""
ENCODE = """
import json, sys, time
from pathlib import Path
from holmes.media.backbones import load_visual
from holmes.media.reader import VideoReader
encoder = load_visual(sys.argv[3], threads=int(sys.argv[2]))
scaled_side = getattr(encoder, "scaled_side", None)
reader = VideoReader(Path(sys.argv[1]), encoder.rate, 2 * encoder.side, scaled_side=scaled_side)
images = [sample.image for sample in reader]
encoder.frames(images[:16])
began, worked = time.perf_counter(), time.process_time()
for start in range(0, len(images), 16):
    encoder.frames(images[start : start + 16])
print(json.dumps([time.perf_counter() - began, time.process_time() - worked]))
"""


@dataclass(frozen=True)
class Taken:
    """Seconds of something, by the clock and of the processor."""

    clock: float
    processor: float

    def without(self, start_up: Taken) -> Taken:
        return Taken(max(1e-9, self.clock - start_up.clock), max(1e-9, self.processor - start_up.processor))


def main(
    clips: Annotated[Path, typer.Argument(help="A folder of video clips.")],
    work: Annotated[Path | None, typer.Option(help="Where the films are made and kept.")] = None,
    backbone: Annotated[str, typer.Option()] = "pocket",
    seconds: Annotated[int, typer.Option(help="Seconds of pictures that are coded.")] = 8,
    times: Annotated[int, typer.Option(help="How often they are repeated in the film.")] = 15,
    sizes: Annotated[str, typer.Option()] = ",".join(HEIGHTS),
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = Path("benchmarks/results"),
) -> None:
    some = sorted(clips.glob("video*.mp4"))[:3] or sorted(clips.glob("*.mp4"))[:3]
    clock_rows, processor_rows = [], []
    with work_folder(work) as folder:
        still = make_film(folder / "still.mp4", some, HEIGHTS["360p"], "libx264", seconds=1, times=1)
        for size in sizes.split(","):
            for coding, codec in CODECS.items():
                film = make_film(folder / f"{size}-{coding}.mp4", some, HEIGHTS[size], codec, seconds, times)
                clock_rows.append(_by_the_clock(film, still, backbone, seconds * times))
                processor_rows.append(_by_processor_time(film, still, backbone, seconds * times))
                print_table(f"hours of video per hour by the clock, {backbone}", clock_rows)
                print_table(f"core-seconds per hour of video, one core, {backbone}", processor_rows)
    print(machine(torch.device("cpu")))
    save_json(out / "extraction.json", {"clock": clock_rows, "processor": processor_rows})


def _by_the_clock(film: Path, still: Path, backbone: str, length: float) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    decode = min(_run(DECODE, film, cores, kind).clock for kind in ("FRAME", "SLICE"))
    encode = _run(ENCODE, film, cores, backbone).clock
    one = _extract(film, backbone).without(_extract(still, backbone)).clock
    many = _extract(film, backbone, cores).without(_extract(still, backbone, cores)).clock / cores
    slower = max(decode, encode)
    return {
        "film": film.stem,
        **{
            name: length / taken
            for name, taken in {"decode": decode, "encode": encode, "one film": one, "many": many}.items()
        },
        "one film / slower": slower / one,
        "many / slower": slower / many,
    }


def _by_processor_time(film: Path, still: Path, backbone: str, length: float) -> dict[str, Any]:
    with _one_core():
        start_up = min((_extract(still, backbone) for _ in range(2)), key=lambda taken: taken.processor)
        taken = {
            "D": _run(DECODE, film, 1, "FRAME"),
            "E": _run(ENCODE, film, 1, backbone),
            "extract": _extract(film, backbone).without(start_up),
            "--fast": _extract(film, backbone, fast=True).without(start_up),
        }
    core = {name: 3600 * it.processor / length for name, it in taken.items()}
    slower = max(core["D"], core["E"])
    return {
        "film": film.stem,
        **core,
        "extract / slower": slower / core["extract"],
        "ceiling": slower / (core["D"] + core["E"]),
        "--fast / slower": slower / core["--fast"],
    }


@contextmanager
def _one_core() -> Iterator[None]:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _run(script: str, film: Path, threads: int, argument: str) -> Taken:
    command = [sys.executable, "-c", script, str(film), str(threads), argument]
    said = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, **ONE_THREAD}
    )
    return Taken(*json.loads(said.stdout))


def _extract(film: Path, backbone: str, copies: int = 1, fast: bool = False) -> Taken:
    """Extraction of so many films, as `holmes extract` does it."""
    with tempfile.TemporaryDirectory(dir=film.parent) as folder:
        films = [Path(folder) / f"{number}{film.suffix}" for number in range(copies)]
        for copy in films:
            os.link(film, copy)
        began, worked = time.perf_counter(), _processor_of_children()
        extract(films, Path(folder) / "features", backbone, fast=fast)
        return Taken(time.perf_counter() - began, _processor_of_children() - worked)


def _processor_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def make_film(
    path: Path, clips: list[Path], size: tuple[int, int], codec: str, seconds: int, times: int
) -> Path:
    """`seconds` of pictures from several clips, coded once and repeated `times` over in the file."""
    if path.exists():
        return path
    once = path.with_name(f"{path.stem}-once.mp4")
    with av.open(str(once), "w") as container:
        stream: Any = container.add_stream(codec, rate=FRAMES_PER_SECOND)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.thread_type = "FRAME"  # or x264 would cut every frame into slices, which few films have
        stream.options = {"preset": PRESETS[codec], "g": str(KEY_SECONDS * FRAMES_PER_SECOND)}
        if codec == "libx265":
            stream.options |= {"x265-params": "log-level=none"}
        for number, picture in enumerate(pictures(clips, size, seconds * FRAMES_PER_SECOND)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FRAMES_PER_SECOND)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    _repeat(once, path, times)
    once.unlink()
    return path


def pictures(clips: list[Path], size: tuple[int, int], count: int) -> Iterator[np.ndarray]:
    """Pictures of one clip after the other, each slowly moving, all with grain."""
    rng = np.random.default_rng(0)
    width, height = size
    grain = rng.normal(0, GRAIN, (height + 64, width + 64, 1)).astype(np.int16)
    made = 0
    while made < count:
        for clip in clips:
            with av.open(str(clip)) as container:
                for frame in container.decode(video=0):
                    large = frame.reformat(width + 64, height + 64, "rgb24").to_ndarray().astype(np.int16)
                    for step in range(4):  # the clips have few frames per second
                        x, y = (made + step) % 64, (made // 2) % 64
                        shift = rng.integers(0, 64, 2)
                        noisy = large[y : y + height, x : x + width]
                        noisy = noisy + grain[shift[0] : shift[0] + height, shift[1] : shift[1] + width]
                        yield noisy.clip(0, 255).astype(np.uint8)
                        made += 1
                        if made == count:
                            return


def _repeat(once: Path, path: Path, times: int) -> None:
    """The same packets again and again, without coding them again."""
    with av.open(str(path), "w") as out:
        copied: Any = None
        shift = 0
        for _ in range(times):
            with av.open(str(once)) as source:
                stream = source.streams.video[0]
                if copied is None:
                    copied = out.add_stream_from_template(stream)
                last = 0
                for packet in source.demux(stream):
                    if packet.dts is None or packet.pts is None:
                        continue
                    packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                    last = max(last, packet.pts + (packet.duration or 0))
                    packet.stream = copied
                    out.mux(packet)
            shift = last


if __name__ == "__main__":
    typer.run(main)
