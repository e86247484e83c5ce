"""How fast films become features, beside FFmpeg's own decoding alone and beside the encoder alone.

    python benchmarks/extraction.py FOLDER_OF_CLIPS --work FOLDER

Films of three sizes in two codings are made from the clips. For each, four things are timed: PyAV decoding
every frame and doing nothing else; the encoder on frames that are decoded already; extraction as `holmes
extract` does it, normally and with --fast. Each is one thread, and what counts is its processor time, which
other work on the machine disturbs little; workers share nothing, so two idle cores do twice as much.

Decoder alone and encoder alone have both cores to themselves; extraction divides them among the two. If an
hour of video takes D core-seconds to decode and E to encode, the slower of the two alone takes max(D, E) / 2
and both together (D + E) / 2: the "ceiling" is max(D, E) / (D + E). What need not be decoded brings
extraction beyond it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from common import machine, print_table, save_json, work_folder
from extraction_films import CODECS, HEIGHTS, make_film

from holmes.media.extraction import extract

CORES = 2
DECODE = """
import av, sys
with av.open(sys.argv[1]) as container:
    stream = container.streams.video[0]
    stream.codec_context.thread_count = 1
    for frame in container.decode(stream):
        pass
"""
ENCODE = """
import sys, time
from pathlib import Path
from holmes.media.backbones import load_visual
from holmes.media.reader import VideoReader
encoder = load_visual(sys.argv[2], threads=1)
reader = VideoReader(
    Path(sys.argv[1]),
    encoder.rate,
    2 * encoder.side,
    scaled_side=getattr(encoder, "scaled_side", None),
)
images = [sample.image for sample in reader]
encoder.frames(images[:16])
began = time.process_time()
for start in range(0, len(images), 16):
    encoder.frames(images[start : start + 16])
print(time.process_time() - began)
"""


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
    rows = []
    with work_folder(work) as folder:
        still = make_film(folder / "still.mp4", some, HEIGHTS["360p"], "libx264", seconds=1, times=1)
        start_up = min(_extracted(still, backbone, fast=False) for _ in range(3))
        for size in sizes.split(","):
            for coding, codec in CODECS.items():
                film = make_film(folder / f"{size}-{coding}.mp4", some, HEIGHTS[size], codec, seconds, times)
                rows.append(_row(film, backbone, seconds * times, start_up))
                print_table(f"hours of video per hour, {CORES} cores, {backbone}", rows)
    print(machine(torch.device("cpu")))
    save_json(out / "extraction.json", rows)


def _row(film: Path, backbone: str, length: float, start_up: float) -> dict[str, Any]:
    decode = _processor(lambda: subprocess.run([sys.executable, "-c", DECODE, str(film)], check=True))
    said = subprocess.run(
        [sys.executable, "-c", ENCODE, str(film), backbone], check=True, capture_output=True, text=True
    )
    encode = float(said.stdout)
    normal, fast = (max(1e-9, _extracted(film, backbone, fast) - start_up) for fast in (False, True))
    taken = {"decode": decode, "encode": encode, "extract": normal, "--fast": fast}
    slower = max(decode, encode)
    return {
        "film": film.stem,
        **{name: CORES * length / seconds for name, seconds in taken.items()},
        "D, core-s an hour": 3600 * decode / length,
        "E, core-s an hour": 3600 * encode / length,
        "extract / slower": slower / normal,
        "ceiling": slower / (decode + encode),
        "--fast / slower": slower / fast,
    }


def _extracted(film: Path, backbone: str, fast: bool) -> float:
    """Processor seconds of a worker that extracts one film."""
    with tempfile.TemporaryDirectory() as folder:
        return _processor(lambda: extract([film], Path(folder) / "f", backbone, workers=1, fast=fast))


def _processor(work: Callable[[], object]) -> float:
    def children() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = children()
    work()
    return children() - before


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core, so one thread for the decoder too
    typer.run(main)
