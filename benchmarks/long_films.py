"""Does a moment of a long film stay findable? Films of growing length, spliced from captioned clips.

Every film holds ten captioned clips somewhere between other footage: rendered videos and, if given, more real
clips by their features. Only the amount of other footage grows with the length. Three ways are compared:

    parts     as `holmes index build` makes an index
    whole     every film as one piece of at most 128 frames and 32 clips
    oracle    every clip indexed by itself; the film is that of the best clip

    python benchmarks/long_films.py CLIPS --fill clips.npz    # CLIPS: videos and captions.json
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import machine, print_table, save_json, work_folder

from holmes.index.embedders import ZeroShot, extraction_record
from holmes.index.manifest import Manifest
from holmes.index.parts import embed_videos
from holmes.index.searcher import Index
from holmes.index.store import IndexStore, IndexWriter, create_index
from holmes.media.backbones.pocket import Pocket
from holmes.media.extract import extract
from holmes.media.feature_folder import VideoFeatures
from holmes.records import CLIPS
from holmes.worlds.rendered import RenderSettings, render_world

FILMS = 9
CAPTIONS = 3  # of each clip
ENOUGH = 0.5  # overlap of a moment with the true one
WRITTEN_AT_ONCE = 256  # videos
TOP = 128  # hits looked at; of an oracle they are clips, and a film has a ninth of all


@dataclass(frozen=True)
class Piece:
    """Rows of footage; a name where it is a captioned clip."""

    rows: np.ndarray
    name: str = ""


@dataclass(frozen=True)
class Film:
    pieces: tuple[Piece, ...]

    @property
    def starts(self) -> np.ndarray:
        """The first row of each piece, and where the last one ends."""
        return np.cumsum([0, *(len(piece.rows) for piece in self.pieces)])


def main(
    clips: Annotated[Path, typer.Argument(help="Folder of real clips with captions.json.")],
    fill: Annotated[
        Path | None, typer.Option(help="NPZ of more clips: features, lengths, ids; 1 a second.")
    ] = None,
    rendered: Annotated[int, typer.Option(help="Rendered videos among the other footage.")] = 12,
    minutes: Annotated[str, typer.Option(help="Lengths of the films.")] = "10,60,180",
    work: Annotated[Path | None, typer.Option(help="Keep what was extracted here.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = Path("benchmarks/results"),
) -> None:
    captions = json.loads((clips / "captions.json").read_text())
    with work_folder(work) as folder:
        pocket = Pocket()
        asked = [Piece(video.rows, video.source.name) for video in read(folder / "clips", [clips], pocket)]
        asked = [piece for piece in asked if piece.name in captions]
        world = render_world(
            folder / "world", RenderSettings(train_videos=2, test_videos=max(2, rendered - 2))
        )
        other = [Piece(video.rows) for video in read(folder / "rendered", [world.folder], pocket)]
        other += more_clips(pocket, fill, {Path(piece.name).stem for piece in asked}) if fill else []
        rows = []
        for length in (int(part) for part in minutes.split(",")):
            films = splice(asked, other, length * 60)
            for row in compare(films, captions, folder, pocket):
                rows.append({"minutes": length} | row)
                print(rows[-1], flush=True)
    print_table(f"{FILMS} films, {CAPTIONS} sentences a clip, {machine(torch.device('cpu'))}", rows)
    save_json(out / "long-films.json", {"machine": machine(torch.device("cpu")), "rows": rows})


def read(folder: Path, videos: Sequence[Path], pocket: Pocket) -> list[VideoFeatures]:
    return list(extract(videos, folder, "pocket", progress=True).folder)


def more_clips(pocket: Pocket, file: Path, without: set[str]) -> list[Piece]:
    """Clips of which only the encoder's features are there, one row a second."""
    arrays = np.load(file)
    ends = np.cumsum(arrays["lengths"])
    pieces = []
    for name, start, end in zip(arrays["ids"].tolist(), ends - arrays["lengths"], ends, strict=True):
        if str(name) not in without:
            rows = pocket.see(arrays["features"][start:end].astype(np.float32))
            pieces.append(Piece(np.repeat(rows, round(pocket.rate), axis=0)))
    return pieces


def splice(asked: list[Piece], other: list[Piece], seconds: float) -> list[Film]:
    """Films of a length: the captioned clips dealt out among them, other footage at random in between."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(asked))
    films = []
    for number in range(FILMS):
        pieces = [asked[i] for i in order[number::FILMS]]
        missing = seconds * 2 - sum(len(piece.rows) for piece in pieces)
        while missing > 0:
            chosen = other[rng.integers(len(other))]
            pieces.append(Piece(chosen.rows[: int(missing)]))
            missing -= len(pieces[-1].rows)
        films.append(Film(tuple(pieces[i] for i in rng.permutation(len(pieces)))))
    return films


def compare(
    films: list[Film], captions: dict[str, list[str]], folder: Path, pocket: Pocket
) -> Iterator[dict[str, Any]]:
    asked = [
        (caption, film, piece.name, (start / pocket.rate, end / pocket.rate))
        for film, made in enumerate(films)
        for piece, start, end in zip(made.pieces, made.starts, made.starts[1:], strict=False)
        if piece.name
        for caption in captions[piece.name][:CAPTIONS]
    ]
    whole = {
        f"film{number}": np.concatenate([p.rows for p in film.pieces]) for number, film in enumerate(films)
    }
    apart = {
        f"film{number}/{at}": piece.rows
        for number, film in enumerate(films)
        for at, piece in enumerate(film.pieces)
    }
    ways = {"parts": (whole, None), "whole": (whole, 1e9), "oracle": (apart, None)}
    for way, (name, (videos, part_seconds)) in enumerate(ways.items()):
        yield {"way": name} | measure(way, videos, films, asked, part_seconds, folder, pocket)


def measure(
    way: int,
    videos: dict[str, np.ndarray],
    films: list[Film],
    asked: list[tuple[str, int, str, tuple[float, float]]],
    part_seconds: float | None,
    folder: Path,
    pocket: Pocket,
) -> dict[str, Any]:
    embedder = ZeroShot(pocket)
    if part_seconds is not None:
        embedder.part_seconds = part_seconds
    path = folder / f"index-{len(videos)}-{way}-{len(films[0].starts)}"
    if not path.exists():
        create_index(path, Manifest(embedder.record, extraction_record(embedder, 2.0), embedder.width, CLIPS))
        with IndexWriter(path) as writer:
            for start in range(0, len(videos), WRITTEN_AT_ONCE):
                names = list(videos)[start : start + WRITTEN_AT_ONCE]
                some = [features_of(name, videos[name]) for name in names]
                writer.add(embed_videos(some, {video.id: 0 for video in some}, embedder))
    index = Index(IndexStore.open(path), torch.device("cpu"))
    index.__dict__["embedder"] = embedder
    first, inside, sure, both = [], [], [], []
    for (_, film, _, truth), answer in zip(
        asked, index.search_many([caption for caption, *_ in asked], top=TOP), strict=True
    ):
        hits = [(*place(hit.video, films), hit) for hit in answer.hits]
        right = hits[0][0] == film
        own = next(((at / pocket.rate, hit.moments[0]) for number, at, hit in hits if number == film), None)
        overlaps = own is not None and overlap((own[0] + own[1].start, own[0] + own[1].end), truth) >= ENOUGH
        first.append(right)
        inside.append(overlaps)
        both.append(right and overlaps)
        # Of the oracle's hits those of one film are its parts.
        sure.append(sum(hit.probability or 0.0 for number, _, hit in hits if number == hits[0][0]))
    return {
        "R@1": 100 * np.mean(first),
        "± (95%)": 196 * np.std(first) / len(first) ** 0.5,
        "moment found, %": 100 * np.mean(inside),
        "both, %": 100 * np.mean(both),
        "mean probability, %": 100 * np.mean(sure),
        "calibration error": calibration_error(np.array(sure), np.array(first)),
        "queries": len(asked),
    }


def features_of(name: str, rows: np.ndarray) -> VideoFeatures:
    times = (np.arange(len(rows)) + 0.5) / 2
    return VideoFeatures(name, Path(name), len(rows) / 2, rows, times.astype(np.float32))


def place(name: str, films: list[Film]) -> tuple[int, int]:
    """The film of a hit, and the row where the hit begins in it."""
    film, _, at = name.removeprefix("film").partition("/")
    return int(film), int(films[int(film)].starts[int(at)]) if at else 0


def overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    common = min(one[1], other[1]) - max(one[0], other[0])
    return max(0.0, common) / (max(one[1], other[1]) - min(one[0], other[0]))


def calibration_error(sure: np.ndarray, right: np.ndarray, bins: int = 10) -> float:
    """The mean distance between how sure the answers of a bin were and how often they were right."""
    order = np.array_split(np.argsort(sure), bins)
    return float(sum(len(part) * abs(sure[part].mean() - right[part].mean()) for part in order) / len(sure))


if __name__ == "__main__":
    typer.run(main)
