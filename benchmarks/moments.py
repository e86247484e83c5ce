"""Do the moments that search shows lie where the scenes are? On worlds whose moments are known.

    python benchmarks/moments.py --demo demo --clips INDEX CAPTIONS.json \\
        --store RUN STORE 2 --store RUN STORE 1 …

`--demo` is the folder that `holmes demo` filled: the captions of its test videos. `--clips` is an index of
captioned clips, which are joined to films of several lengths; CAPTIONS.json has the captions of each file.
`--store` is a trained run, a store that knows moments, and its frames per second where it knows no durations:
spliced or planted videos; several runs on one store are taken together. `--part held` asks what the runs held
out of training instead of the test split, to choose by.

Within the right video the first moment shown is compared with the true one, beside the position of highest
similarity with five seconds to either side, as far as the video goes. A window's centre near the end of a
video is not where the peak is, so the share with the centre inside is also given beside the share of peaks
that are. Differences are taken query by query, and intervals (95%) are of the videos or clips asked for.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import by_group, print_table, save_json

from holmes.base.files import read_json
from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.encoders.checkpoint import Checkpoint, load_checkpoint
from holmes.evaluation.localisation import overlap
from holmes.evaluation.runs.folders import find_runs
from holmes.evaluation.scoring import Encoded, encode_split
from holmes.index.answer.searcher import open_single_index
from holmes.index.answer.timeline import find_moments, timeline_of
from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.scan import Probes, make_probes
from holmes.index.ingest.parts import embed_videos
from holmes.index.storage.segments import StoredVideo, pack_parts
from holmes.media.feature_folder import FeatureFolder, VideoFeatures

AROUND = 5.0  # seconds to either side of the peak: the window to beat
ENOUGH = 0.5  # overlap
FILMS = (5, 90)  # clips of one film
FIGURES = ("IoU", "centre inside", "centre beside the peak itself", "IoU ≥ .5")
SPLICES = 5  # how often the short films are spliced anew


@dataclass(frozen=True)
class Asked:
    """A query about a moment of a video, and what else it stands or falls with."""

    video: StoredVideo
    probes: Probes
    q: int
    true: tuple[float, float]  # seconds
    group: str


def measure(asked: list[Asked]) -> dict[str, Any]:
    """The first moment shown and the peak with seconds around it, beside the true moments."""
    windows_Q2, peak_Q = np.empty((len(asked), 2)), np.empty(len(asked))
    for at, one in enumerate(asked):
        best = find_moments(one.video, one.probes, one.q)[0]
        timeline = timeline_of(one.video, one.probes, one.q)
        windows_Q2[at] = best.start, best.end
        peak_Q[at] = timeline.spans_F2[timeline.similarity_F.argmax()].mean()
    true_Q2 = np.array([one.true for one in asked], np.float64)
    duration_Q = np.array([one.video.duration for one in asked])
    around_Q2 = np.stack([(peak_Q - AROUND).clip(min=0), np.minimum(peak_Q + AROUND, duration_Q)], axis=1)
    found = {
        "shown": figures(windows_Q2, windows_Q2.mean(axis=1), true_Q2),
        "peak": figures(around_Q2, peak_Q, true_Q2),
    }
    groups = np.array([one.group for one in asked])
    seconds_Q = np.ptp(windows_Q2, axis=1)
    row: dict[str, Any] = {"queries": len(asked), "asked for": len(np.unique(groups))}
    for name in found["shown"]:
        ours, theirs = found["shown"][name], found["peak"][name]
        difference, wide = by_group(ours - theirs, groups)
        row |= {
            f"{name}, shown": float(ours.mean()),
            f"{name}, peak": float(theirs.mean()),
            f"{name}, +": difference,
            f"{name}, ±": wide,
        }
    return row | {"median s": float(np.median(seconds_Q)), "longest s": float(seconds_Q.max())}


def figures(windows_Q2: np.ndarray, point_Q: np.ndarray, true_Q2: np.ndarray) -> dict[str, np.ndarray]:
    """Of windows, and of the points they stand for."""
    overlap_Q = overlap(windows_Q2, true_Q2)
    return {
        FIGURES[0]: overlap_Q,
        FIGURES[1]: inside(windows_Q2.mean(axis=1), true_Q2),
        FIGURES[2]: inside(point_Q, true_Q2),
        FIGURES[3]: (overlap_Q >= ENOUGH).astype(float),
    }


def inside(point_Q: np.ndarray, true_Q2: np.ndarray) -> np.ndarray:
    inside_Q: np.ndarray = (true_Q2[:, 0] <= point_Q) & (point_Q <= true_Q2[:, 1])
    return inside_Q.astype(float)


def of_store(run_folder: Path, store: Store, rate: float, part: str) -> Iterator[Asked]:
    """Every query of a split whose moment is known."""
    for run in find_runs(run_folder):
        checkpoint = load_checkpoint(run.checkpoint, "cpu")
        seed = read_json(run.path / "run.json")["seed"]
        split = store.split("test")
        if part == "held":
            split = store.split("train").hold_out(checkpoint.config.training.held_out, seed)[1]
        yield from of_split(checkpoint, store, split, rate)


def of_split(checkpoint: Checkpoint, store: Store, split: Split, rate: float) -> Iterator[Asked]:
    bank = FeatureBank(store, torch.device("cpu"), splits=[split], dtype=torch.float32)
    encoded = encode_split(checkpoint.model, bank, split)
    weights = checkpoint.config.score
    probes = make_probes(encoded.queries, weights.frame_weight, weights.clip_weight)
    videos = [stored(encoded, store, at, int(number), rate) for at, number in enumerate(split.videos)]
    for q, (query, owner) in enumerate(zip(split.queries, split.owner, strict=True)):
        moment_2, video = store.moments_Q2[query], videos[owner]
        if not np.isnan(moment_2).any():
            start, end = (moment_2 * video.duration).tolist()
            yield Asked(video, probes, q, (start, end), video.name)


def stored(encoded: Encoded, store: Store, at: int, number: int, rate: float) -> StoredVideo:
    """An encoded video as an index would keep it."""
    frames = int(encoded.videos.frame_mask_VF[at].sum())
    known = float(store.durations_V[number])
    duration = known if np.isfinite(known) else frames / rate
    frames_FD, clips_CD = encoded.videos.frames_VFD[at, :frames], encoded.videos.clips_VCD[at]
    spans_F2, spans_C2 = (even_spans(len(rows), duration) for rows in (frames_FD, clips_CD))
    frames_SFD, clips_SCD = frames_FD.numpy()[None], clips_CD.numpy()[None]
    return pack_parts(
        store.video_ids[number], duration, frames_SFD, clips_SCD, spans_F2[None], spans_C2[None]
    )


def even_spans(count: int, duration: float) -> np.ndarray:
    edges = np.linspace(0, duration, count + 1)
    return np.stack([edges[:-1], edges[1:]], axis=1)


def of_demo(folder: Path) -> Iterator[Asked]:
    from holmes.worlds.rendered import RenderedWorld  # needs what reads videos

    world, index = RenderedWorld.open(folder / "videos"), open_single_index(folder / "index", device="cpu")
    names = {video.id: str(world.path(video).absolute()) for video in world.videos}
    captions = world.captions_of("test")
    probes = index._probes([caption.text for caption in captions])
    for q, caption in enumerate(captions):
        yield Asked(index.store[names[caption.video]], probes, q, (caption.start, caption.end), caption.video)


def of_films(path: Path, captions: dict[str, list[str]], clips_a_film: int, splices: int) -> Iterator[Asked]:
    """The clips of an index joined to films, in an order of chance."""
    index = open_single_index(path, device="cpu")
    clips = [video for video in FeatureFolder.open(path / "features") if video.source.name in captions]
    for seed in range(splices):
        order = np.random.default_rng(seed).permutation(len(clips))
        for first in range(0, len(clips), clips_a_film):
            yield from of_film(
                [clips[i] for i in order[first : first + clips_a_film]], captions, index.embedder
            )


def of_film(
    clips: list[VideoFeatures], captions: dict[str, list[str]], embedder: Embedder
) -> Iterator[Asked]:
    ends = np.cumsum([clip.duration for clip in clips])
    starts = ends - [clip.duration for clip in clips]
    rows = np.concatenate([clip.rows for clip in clips])
    times = np.concatenate([clip.times + start for clip, start in zip(clips, starts, strict=True)])
    film = VideoFeatures("film", Path("film"), float(ends[-1]), rows, times.astype(np.float32))
    (video,) = embed_videos([film], {"film": 0}, embedder)
    asked = [
        (text, (float(start), float(end)), clip.source.name)
        for clip, start, end in zip(clips, starts, ends, strict=True)
        for text in captions[clip.source.name]
    ]
    queries = embedder.queries([text for text, _, _ in asked])
    probes = make_probes(queries, embedder.frame_weight, embedder.clip_weight)
    for q, (_, true, clip) in enumerate(asked):
        yield Asked(video, probes, q, true, clip)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demo", type=Path, metavar="DEMO")
    parser.add_argument("--clips", type=Path, nargs=2, metavar=("INDEX", "CAPTIONS"))
    parser.add_argument("--store", nargs=3, action="append", default=[], metavar=("RUN", "STORE", "RATE"))
    parser.add_argument("--part", choices=("test", "held"), default="test")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/moments.json"))
    options = parser.parse_args()
    worlds: dict[str, list[Asked]] = {}
    for run, path, rate in options.store:
        asked = of_store(Path(run), Store.open(path), float(rate), options.part)
        worlds.setdefault(Path(path).name, []).extend(asked)
    if options.demo:
        worlds["rendered"] = list(of_demo(options.demo))
    if options.clips:
        index, captions = options.clips[0], json.loads(options.clips[1].read_bytes())
        for count in FILMS:
            splices = SPLICES if count < max(FILMS) else 1
            worlds[f"films of {count} clips"] = list(of_films(index, captions, count, splices))
    rows = [{"world": name} | measure(asked) for name, asked in worlds.items()]
    for figure in FIGURES:
        shown = [
            {name: row[name] for name in ("world", "queries", "asked for", "median s", "longest s")}
            | {name.split(", ")[1]: value for name, value in row.items() if name.startswith(f"{figure}, ")}
            for row in rows
        ]
        print_table(f"{figure} of the moment shown, and of the peak ± {AROUND:g} s", shown)
    save_json(options.json, rows)


if __name__ == "__main__":
    main()
