"""Does a moment of a long film stay findable? Films of growing length, spliced from captioned clips.

Every film holds ten captioned clips somewhere between other footage: rendered videos and, if given, more real
clips by their features. Only the amount of other footage grows with the length. The films are spliced anew
several times. These ways are compared:

    parts     as `holmes index build` makes an index
    whole     every film as one piece of at most 128 frames and 32 clips
    oracle    every clip indexed by itself; the film is that of the best clip
    tf_prvr   without an index: the moments of TF-PRVR, a baseline
    frames    without an index: the best frame

    python benchmarks/long_films.py CLIPS --fill clips.npz --splits clips.json   # CLIPS: with captions.json

The loss is the oracle's share of right films less that of the parts, sentence by sentence, and how much it
grows is told beside the shortest films. Captions of one clip fare alike, so intervals are of clips. Nobody
asks for the other footage, so every copy of it is one rival more that is never right: where films show it
many times, too little is said. Whether probabilities hold is told by films that show it `--once`; fewer
`--films` can then be longer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import typer
from common import by_group, machine, print_table, save_json, work_folder

from holmes.encoders.tf_prvr import Moments, moment_scores, moments_of, unit
from holmes.index.answer.answering import Found, compose_answers, in_order, judge_answers
from holmes.index.answer.answers import Answer
from holmes.index.answer.request import SearchRequest
from holmes.index.answer.searcher import Index
from holmes.index.embedders.loading import extraction_record
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.engine.nearest import nearest_videos
from holmes.index.ingest.parts import embed_videos
from holmes.index.storage.manifest import Manifest
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter, create_index
from holmes.media.backbones.pocket import Pocket
from holmes.media.extraction import extract
from holmes.media.feature_folder import VideoFeatures
from holmes.records import CLIPS, QueryEmbedding
from holmes.worlds.rendered import RenderSettings, render_world

MOMENTS = 3  # captions of each clip whose moments are looked for
ENOUGH = 0.5  # overlap of a moment with the true one
WRITTEN_AT_ONCE = 256  # videos
TOP = 128  # hits looked at; of an oracle they are clips, and a film has a ninth of all
AT_ONCE = 128  # sentences
HALVED_BY = 7  # the seed by which clips are halved, to choose on one half and report the other


def main(
    clips: Annotated[Path, typer.Argument(help="Folder of real clips with captions.json.")],
    fill: Annotated[
        Path | None, typer.Option(help="NPZ of more clips: features, lengths, ids; 1 a second.")
    ] = None,
    splits: Annotated[
        Path | None, typer.Option(help="JSON: the split of each; what the model was trained on is left out.")
    ] = None,
    films: Annotated[int, typer.Option(help="Films of each length.")] = 9,
    rendered: Annotated[int, typer.Option(help="Rendered videos among the other footage.")] = 12,
    minutes: Annotated[str, typer.Option(help="Lengths of the films.")] = "10,60,180",
    splices: Annotated[int, typer.Option(help="How often the films are spliced anew.")] = 3,
    ways: Annotated[
        str, typer.Option(help="Of parts, whole, oracle, tf_prvr, frames; parts32 for parts of 32 s.")
    ] = "parts,whole,oracle",
    once: Annotated[bool, typer.Option(help="Show no piece of the other footage twice.")] = False,
    half: Annotated[
        str,
        typer.Option(help="Ask sentences of all clips, of one half of them, or of the other half."),
    ] = "all",
    work: Annotated[Path | None, typer.Option(help="Keep what was extracted here.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = Path("benchmarks/results"),
) -> None:
    captions = json.loads((clips / "captions.json").read_text())
    order = np.random.default_rng(HALVED_BY).permutation(len(captions))
    for name, at in zip(sorted(captions), order, strict=True):
        if half != "all" and (at < len(captions) // 2) != (half == "one"):
            captions[name] = []
    rows, found = [], {}
    with work_folder(work) as folder:
        pocket = Pocket()
        asked = [Piece(video.rows, video.source.name) for video in read(folder / "clips", [clips], pocket)]
        asked = [piece for piece in asked if piece.name in captions]
        world = render_world(
            folder / "world", RenderSettings(train_videos=2, test_videos=max(2, rendered - 2))
        )
        other = [Piece(video.rows) for video in read(folder / "rendered", [world.folder], pocket)]
        without = {Path(piece.name).stem for piece in asked} | trained_on(splits)
        other += more_clips(pocket, fill, without) if fill else []
        for length in (int(part) for part in minutes.split(",")):
            spliced = [splice(asked, other, length * 60, films, seed, once) for seed in range(splices)]
            for way in ways.split(","):
                measured = [measure(way, some, captions, pocket) for some in spliced]
                found[length, way] = {
                    name: np.concatenate([one[name] for one in measured]) for name in measured[0]
                }
                rows.append({"minutes": length, "way": way} | summary(found[length, way]))
                print(rows[-1], flush=True)
    title = f"{films} films, spliced {splices} times, {machine(torch.device('cpu'))}"
    print_table(title, rows)
    losses: list[dict[str, Any]] = []
    slopes: list[str] = []
    for way in dict.fromkeys(way for _, way in found if way != "oracle"):
        some, grows = loss_by_length(found, way)
        losses, slopes = losses + some, slopes + [grows] * bool(grows)
    if losses:
        print_table("loss against the oracle, R@1", losses)
        print("\n".join(slopes))
    result = {
        "films": films,
        "machine": machine(torch.device("cpu")),
        "splices": splices,
        "once": once,
        "half": half,
        "rows": rows,
        "losses": losses,
        "slopes": slopes,
    }
    save_json(out / "long-films.json", result)


def read(folder: Path, videos: Sequence[Path], pocket: Pocket) -> list[VideoFeatures]:
    return list(extract(videos, folder, "pocket", progress=True).folder)


@dataclass(frozen=True)
class Asked:
    caption: str
    film: int
    clip: str
    span: tuple[float, float]  # seconds of the clip in the film
    moment: bool  # whether to look for it


def measure(
    way: str, films: list[Film], captions: dict[str, list[str]], pocket: Pocket
) -> dict[str, np.ndarray]:
    """Of every sentence: its clip, whether its film came first, whether its moment was found, how sure."""
    asked = [
        Asked(caption, film, piece.name, (start / pocket.rate, end / pocket.rate), number < MOMENTS)
        for film, made in enumerate(films)
        for piece, start, end in zip(made.pieces, made.starts, made.starts[1:], strict=False)
        if piece.name
        for number, caption in enumerate(captions[piece.name])
    ]
    if way in MOMENTS_OF:
        return by_moments([MOMENTS_OF[way](rows_of(film)) for film in films], asked, pocket)
    videos = {
        (f"film{number}/{at}" if way == "oracle" else f"film{number}"): rows
        for number, film in enumerate(films)
        for at, rows in enumerate(
            [piece.rows for piece in film.pieces] if way == "oracle" else [rows_of(film)]
        )
    }
    first, sure, inside = [], [], []
    with work_folder(None) as folder:
        index = indexed(folder / "index", videos, made(way, pocket))
        for question, answer in zip(asked, answers(index, asked, films), strict=True):
            hits = [(*place(hit.video, films), hit) for hit in answer.hits]
            own = next(
                (
                    (at / pocket.rate + hit.moments[0].start, at / pocket.rate + hit.moments[0].end)
                    for number, at, hit in hits
                    if number == question.film and hit.moments
                ),
                (-1.0, -1.0),
            )
            first.append(hits[0][0] == question.film)
            inside.append(overlap(own, question.span) >= ENOUGH if question.moment else np.nan)
            # Of the oracle's hits those of one film are its parts.
            sure.append(sum(hit.probability or 0.0 for number, _, hit in hits if number == hits[0][0]))
    return {
        "clip": np.array([question.clip for question in asked]),
        "first": np.array(first, float),
        "inside": np.array(inside, float),
        "sure": np.array(sure, float),
    }


def rows_of(film: Film) -> np.ndarray:
    return np.concatenate([piece.rows for piece in film.pieces])


def each_frame(rows: np.ndarray) -> Moments:
    """Every frame as a moment."""
    starts = np.arange(len(rows))
    return Moments(np.stack([starts, starts + 1], 1), unit(rows))


MOMENTS_OF: dict[str, Callable[[np.ndarray], Moments]] = {"tf_prvr": moments_of, "frames": each_frame}


def by_moments(films: list[Moments], asked: list[Asked], pocket: Pocket) -> dict[str, np.ndarray]:
    """The same as `measure`, without an index and so without a probability."""
    queries_QD = Remembering(pocket).queries([question.caption for question in asked]).query_QD.numpy()
    best_Q = moment_scores(queries_QD, films).argmax(1)
    inside = []
    for question, query_D in zip(asked, queries_QD, strict=True):
        moments = films[question.film]
        start, end = moments.spans_P2[(moments.features_PD @ query_D).argmax()] / pocket.rate
        found = overlap((start, end), question.span) >= ENOUGH
        inside.append(found if question.moment else np.nan)
    return {
        "clip": np.array([question.clip for question in asked]),
        "first": np.array(
            [film == question.film for film, question in zip(best_Q, asked, strict=True)], float
        ),
        "inside": np.array(inside, float),
        "sure": np.full(len(asked), np.nan),
    }


class Remembering(ZeroShot):
    """Reads no sentence twice: each is asked of many indexes."""

    known: ClassVar[dict[str, np.ndarray]] = {}

    def queries(self, sentences: Sequence[str]) -> QueryEmbedding:
        new = sorted(set(sentences) - self.known.keys())
        self.known.update(zip(new, super().queries(new).query_QD.numpy(), strict=True) if new else ())
        return QueryEmbedding(torch.from_numpy(np.stack([self.known[one] for one in sentences])))


def made(way: str, pocket: Pocket) -> ZeroShot:
    """What makes the index; a number after "parts" is the length of the longest part."""
    embedder = Remembering(pocket)
    if way == "whole":
        embedder.part_seconds = 1e9
    elif way.startswith("parts") and way != "parts":
        embedder.part_seconds = float(way.removeprefix("parts"))
    return embedder


def indexed(path: Path, videos: dict[str, np.ndarray], embedder: ZeroShot) -> Index:
    create_index(path, Manifest(embedder.record, extraction_record(embedder, 2.0), embedder.width, CLIPS))
    with IndexWriter(path) as writer:
        for start in range(0, len(videos), WRITTEN_AT_ONCE):
            names = list(videos)[start : start + WRITTEN_AT_ONCE]
            some = [features_of(name, videos[name]) for name in names]
            writer.add(embed_videos(some, {video.id: 0 for video in some}, embedder))
    index = Index(IndexStore.open(path), torch.device("cpu"))
    index.__dict__["embedder"] = embedder
    return index


def answers(index: Index, asked: list[Asked], films: list[Film]) -> Iterator[Answer]:
    """As the index gives them, but with moments only where they are looked at: growing them takes longest."""
    for start in range(0, len(asked), AT_ONCE):
        some = asked[start : start + AT_ONCE]
        request = SearchRequest([one.caption for one in some], TOP, expect_missing=0)  # each has its film
        probes = index._probes(request.sentences)
        judge, in_parts = index.judge, index.gallery.in_parts
        nearest = nearest_videos(index.gallery, probes, TOP, judge.candidates)
        diagnoses = judge_answers(request, nearest, judge, in_parts)
        nearest = in_order(nearest, diagnoses, judge.candidates, in_parts)
        with_moments = index._finder(nearest, probes)

        def found(q: int, rank: int) -> Found:
            segment, at = index.gallery.positions_S2[int(nearest.hit_QH[q, rank])]  # noqa: B023
            name = index.store.segments[segment].names[at]
            wanted = some[q].moment and place(name, films)[0] == some[q].film  # noqa: B023
            return with_moments(q, rank) if wanted else (name, ())  # noqa: B023

        model = index.store.manifest.model
        yield from compose_answers(
            request,
            nearest,
            diagnoses,
            judge,
            model,
            found,
            in_parts=in_parts,
            duplicates=index.duplicates,
            # Which hits are copies of each other is not asked: it takes long, and no hit or probability
            # depends on it.
            frames_of_hits=lambda hits: [None] * len(hits),
        )


def summary(found: dict[str, np.ndarray]) -> dict[str, Any]:
    right, wide = by_group(found["first"], found["clip"])
    beyond, beyond_wide = by_group(found["sure"] - found["first"], found["clip"])
    looked = ~np.isnan(found["inside"])
    return {
        "R@1": 100 * right,
        "± (95%)": 100 * wide,
        "moment found, %": 100 * np.mean(found["inside"][looked]),
        "both, %": 100 * np.mean(found["inside"][looked] * found["first"][looked]),
        "mean probability, %": 100 * np.mean(found["sure"]),
        "predicted − observed": f"{100 * beyond:+.1f} ± {100 * beyond_wide:.1f}",
        "calibration error": calibration_error(found["sure"], found["first"]),
        "sentences": len(found["first"]),
    }


def loss_by_length(
    found: dict[tuple[int, str], dict[str, np.ndarray]], way: str
) -> tuple[list[dict[str, Any]], str]:
    """Each sentence is asked of films of all lengths and of the oracle's, so differences are its own.

    Also how much the loss grows, in a line: the slope over the logarithm of the length, sentence by sentence.
    """
    lengths = [length for length, known in found if known == way and (length, "oracle") in found]
    losses, rows = {}, []
    for length in lengths:
        ours, oracle = found[length, way], found[length, "oracle"]
        losses[length] = per_sentence(oracle) - per_sentence(ours)
        clips = np.sort(ours["clip"])
        loss, wide = by_group(losses[length], clips)
        growth, growth_wide = by_group(losses[length] - losses[lengths[0]], clips)
        rows.append(
            {"way": way, "minutes": length, "loss": 100 * loss, "± (95%)": 100 * wide}
            | {f"beyond {lengths[0]} min": 100 * growth, "±": 100 * growth_wide}
        )
    if len(lengths) < 2:
        return rows, ""
    logs = np.log10(lengths) - np.log10(lengths).mean()
    slope, wide = by_group(sum(log * losses[n] for log, n in zip(logs, lengths, strict=True)), clips)
    grows = (
        f"{way}: the loss grows by {100 * slope / (logs**2).sum():+.1f} ± {100 * wide / (logs**2).sum():.1f}"
    )
    return rows, f"{grows} points when films get ten times as long (95%)"


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


def trained_on(splits: Path | None) -> set[str]:
    """A model knows what it was trained on better than anything it will meet: no fair rival for a clip."""
    known = json.loads(splits.read_text()) if splits else {}
    return {name for name, clip in known.items() if clip["split"] == "train"}


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


def splice(
    asked: list[Piece], other: list[Piece], seconds: float, count: int, seed: int, once: bool = False
) -> list[Film]:
    """Films of a length: the captioned clips dealt out among them, other footage at random in between.

    A film shows a piece again only when it has shown all, and with `once` no two films show the same.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(asked))
    unseen: list[int] = rng.permutation(len(other)).tolist() if once else []
    films = []
    for number in range(count):
        pieces = [asked[i] for i in order[number::count]]
        missing = seconds * 2 - sum(len(piece.rows) for piece in pieces)
        left = unseen
        while missing > 0:
            if once and not left:
                raise SystemExit(
                    f"the other footage does not fill {count} films of {seconds / 60:g} minutes once"
                )
            left = left or rng.permutation(len(other)).tolist()
            rows = other[left.pop()].rows
            start = 0 if once else rng.integers(len(rows) // 2)  # not the same stretch of it everywhere
            pieces.append(Piece(rows[start:][: int(missing)]))
            missing -= len(pieces[-1].rows)
        films.append(Film(tuple(pieces[i] for i in rng.permutation(len(pieces)))))
    return films


def features_of(name: str, rows: np.ndarray) -> VideoFeatures:
    times = (np.arange(len(rows)) + 0.5) / 2
    return VideoFeatures(name, Path(name), len(rows) / 2, rows, times.astype(np.float32))


def place(name: str, films: list[Film]) -> tuple[int, int]:
    """The film of a hit, and the row where the hit begins in it."""
    film, _, at = name.removeprefix("film").partition("/")
    return int(film), int(films[int(film)].starts[int(at)]) if at else 0


def per_sentence(found: dict[str, np.ndarray]) -> np.ndarray:
    """Whether the film came first, sorted by clip; a clip's sentences come in one order everywhere."""
    order = np.argsort(found["clip"], kind="stable")
    return found["first"][order]


def overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    common = min(one[1], other[1]) - max(one[0], other[0])
    return max(0.0, common) / (max(one[1], other[1]) - min(one[0], other[0]))


def calibration_error(sure: np.ndarray, right: np.ndarray, bins: int = 10) -> float:
    """The mean distance between how sure the answers of a bin were and how often they were right."""
    order = np.array_split(np.argsort(sure), min(bins, len(sure)))
    return float(sum(len(part) * abs(sure[part].mean() - right[part].mean()) for part in order) / len(sure))


if __name__ == "__main__":
    typer.run(main)
