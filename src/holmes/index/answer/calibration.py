"""Teach an index how sure to be: from sentences of its owner, or by a guess that is kept.

Q queries, V videos
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from holmes.base.rows import read_rows
from holmes.errors import HolmesError
from holmes.evidence.calibration_record import Calibration
from holmes.evidence.fitting import FEWEST_QUERIES, fit_calibration, judge_all
from holmes.index.answer.confidence import FEWEST_VIDEOS, FILE, as_probes, guess, read_own, write_values
from holmes.index.answer.searcher import Index
from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.nearest import nearest_videos
from holmes.index.engine.scan import Probes
from holmes.records import Scores


def keep_guess(index: Index) -> None:
    """Write the guess down where it will be needed, so that searches need not make it."""
    own = read_own(index.store.path, index.embedder)
    if index.embedder.calibration is None and len(index) >= FEWEST_VIDEOS and (own is None or own.rough):
        write_values(index.store.path / FILE, guess(index.embedder, index.gallery).to_dict())


@dataclass(frozen=True)
class Taught:
    """What a calibration was made from, and how it does on those very sentences."""

    sentences: int
    videos: int  # different ones among them
    first: float  # the share of sentences whose video comes first
    said: float  # the mean probability of the first hit


def calibrate_index(index: Index, captions: Sequence[tuple[str, str]]) -> Taught:
    """Fit the calibration of an index on sentences and the videos they describe, and keep it."""
    fitted, taught = learn(captions, index.videos, index.embedder, lambda said: every_score(index, said))
    write_values(index.store.path / FILE, fitted.to_dict())
    return taught


def learn(
    captions: Sequence[tuple[str, str]],
    videos: Sequence[str],
    embedder: Embedder,
    score: Callable[[Sequence[str]], Scores],
) -> tuple[Calibration, Taught]:
    """The calibration that sentences and the videos they describe suggest.

    `score` gives both branches' similarity of sentences to all `videos`, in this order. It is sorted by their
    names, so that the order in which a collection happens to lie makes no difference to the last bit.
    """
    by_name_V = sorted(range(len(videos)), key=videos.__getitem__)
    places: dict[str, int] = {}
    for place, name in enumerate(videos[at] for at in by_name_V):
        for known_as in (name, Path(name).name, Path(name).stem):
            places.setdefault(known_as, place)
    unknown = [video for _, video in captions if video not in places]
    if unknown:
        raise HolmesError(
            f"the index has no video '{unknown[0]}' ({len(unknown)} of {len(captions)} videos are unknown)."
        )
    if len(captions) < FEWEST_QUERIES:
        raise HolmesError(f"{len(captions)} sentences are too few; give at least {FEWEST_QUERIES}.")
    found = score([sentence for sentence, _ in captions])
    scores = Scores(found.frame_QV[:, by_name_V], found.clip_QV[:, by_name_V])
    owner_Q = torch.tensor([places[video] for _, video in captions])
    weights = embedder.frame_weight, embedder.clip_weight
    fitted = fit_calibration(scores, owner_Q, *weights, embedder.record["digest"])
    if fitted is None:
        raise HolmesError(
            "none of the sentences finds its video among the first five; check that each stands beside its "
            "own video."
        )
    said_Q = judge_all(scores, fitted).gallery.probability_QK[:, 0]
    first_Q = fitted.score(scores).argmax(1) == owner_Q
    known = len(set(owner_Q.tolist()))
    return fitted, Taught(len(captions), known, first_Q.double().mean().item(), said_Q.mean().item())


def every_score(index: Index, sentences: Sequence[str]) -> Scores:
    """Both branches' similarity of every sentence to every video, in the order of `index.videos`."""
    return score_every_video(index, as_probes(index.embedder, sentences, index.device))


def score_every_video(index: Index, probes: Probes) -> Scores:
    gallery, places = index.gallery, index.store.places
    number = {places[name]: at for at, name in enumerate(index.videos)}
    video_S = torch.tensor([number.get((segment, at), -1) for segment, at in gallery.places_S2.tolist()])
    nearest = nearest_videos(gallery, probes, 1, len(gallery)).to("cpu")
    video_QK = video_S[nearest.parts_QK]
    lowest_QV = torch.full((len(probes.rows_QTD), len(index)), -1.0)
    return Scores(
        *(
            lowest_QV.scatter_reduce(1, video_QK, branch_QK.float(), "amax")
            for branch_QK in (nearest.frame_QK, nearest.clip_QK)
        )
    )


def read_captions(path: Path) -> list[tuple[str, str]]:
    """(sentence, video) from a CSV with a header, or from one JSON object per line."""
    captions = []
    for number, row in enumerate(read_rows(path), 1):
        if not row.get("sentence") or not row.get("video"):
            raise HolmesError(
                f"row {number} of {path} lacks a 'sentence' or a 'video'; a CSV file needs a header with "
                "both, "
                'a JSONL file lines such as {"sentence": "a dog runs", "video": "beach.mp4"}.'
            )
        captions.append((str(row["sentence"]), str(row["video"])))
    return captions
