"""What `--fast` costs: the same clips, found with all frames and with key frames alone.

    python benchmarks/fast_extraction.py CLIPS      # a folder with captions.json: {clip name: [captions]}

Every clip is coded again, at 25 frames per second with a key frame at least every one or two seconds, indexed
normally and with --fast, and searched for with each of its captions.
"""

from __future__ import annotations

import resource
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import av
import numpy as np
import typer
from common import print_table, save_json, work_folder

import holmes
from holmes.base.files import read_json
from holmes.base.progress import progress_bar
from holmes.index.embedders.loading import load_embedder
from holmes.index.ingest.builder import build_index

FRAMES_PER_SECOND = 25
RESAMPLINGS = 2000


def main(
    clips: Annotated[Path, typer.Argument(help="A folder of clips with captions.json.")],
    work: Annotated[Path | None, typer.Option(help="Where clips are coded and indexes made.")] = None,
    model: Annotated[str, typer.Option()] = "pocket",
    keys: Annotated[str, typer.Option(help="Seconds between key frames.")] = "1,2",
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = Path("benchmarks/results"),
) -> None:
    captions = read_json(clips / "captions.json")
    rows: list[dict[str, Any]] = []
    with work_folder(work) as folder:
        for key_seconds in map(int, keys.split(",")):
            coded = folder / f"key-{key_seconds}s"
            _code_all(clips, captions, coded, key_seconds)
            ranks = {}
            for fast in (False, True):
                index = folder / f"index-{key_seconds}-{fast}"
                before = _processor()
                build_index(index, [coded], load_embedder(model), fast=fast, progress=True)
                taken = _processor() - before
                ranks[fast] = _ranks(index, captions)
                rows.append(
                    {
                        "key frames": f"every {key_seconds} s",
                        "way": "--fast" if fast else "all frames",
                        **{f"R@{k}": 100 * float(np.mean(ranks[fast] <= k)) for k in (1, 5, 10)},
                        "processor seconds": taken,
                    }
                )
            difference = (ranks[True] == 1).astype(float) - (ranks[False] == 1)
            drawn = np.random.default_rng(0).choice(difference, (RESAMPLINGS, len(difference))).mean(1)
            low, high = 100 * np.percentile(drawn, [2.5, 97.5])
            rows[-1] |= {"ΔR@1": f"{100 * difference.mean():+.2f} ({low:+.2f} to {high:+.2f})"}
            rows[-2] |= {"ΔR@1": ""}
    print_table(f"{len(ranks[True])} captions of {len(captions)} clips, {model}", rows)
    save_json(out / "fast_extraction.json", rows)


def _ranks(index: Path, captions: dict[str, list[str]]) -> np.ndarray:
    """The rank of the right clip for each caption; 11 if it is not among the best ten."""
    opened = holmes.open_index(index, device="cpu")
    asked = [(name, caption) for name, known in captions.items() for caption in known]
    answers = opened.search_many([caption for _, caption in asked], top=10)
    places = []
    for (name, _), answer in zip(asked, answers, strict=True):
        names = [Path(hit.video).stem for hit in answer.hits]
        places.append(names.index(Path(name).stem) + 1 if Path(name).stem in names else 11)
    return np.array(places)


def _code_all(clips: Path, captions: dict[str, Any], out: Path, key_seconds: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with progress_bar("coding clips", len(captions)) as advance:
        for name in captions:
            source = clips / f"{Path(name).stem}.mp4"
            if source.exists() and not (out / source.name).exists():
                _code(source, out / source.name, key_seconds)
            advance(1)


def _code(source: Path, path: Path, key_seconds: int) -> None:
    with av.open(str(source)) as clip, av.open(str(path), "w") as coded:
        frames = [(float(frame.time), frame.to_ndarray(format="rgb24")) for frame in clip.decode(video=0)]
        stream: Any = coded.add_stream("libx264", rate=FRAMES_PER_SECOND)
        height, width = (side // 2 * 2 for side in frames[0][1].shape[:2])
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {"preset": "veryfast", "g": str(key_seconds * FRAMES_PER_SECOND)}
        times = np.array([time for time, _ in frames])
        for number in range(round((times[-1] - times[0]) * FRAMES_PER_SECOND) + 1):
            at = np.searchsorted(times, times[0] + number / FRAMES_PER_SECOND, side="right") - 1
            frame = av.VideoFrame.from_ndarray(frames[at][1][:height, :width], format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FRAMES_PER_SECOND)
            coded.mux(stream.encode(frame))
        coded.mux(stream.encode(None))


def _processor() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    typer.run(main)
