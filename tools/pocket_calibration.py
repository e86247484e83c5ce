"""Teach the pocket model how sure to be, from captioned clips that its heads have not seen.

    python tools/pocket_calibration.py JOINT [--without FOLDER]

JOINT holds msrvtt_clips.json and msrvtt_clips_lite2_pca512.npz. The clips of its test split are a gallery, of
each of which eight captions are asked. Clips whose video lies in FOLDER are left out, so that these can be
measured on afterwards. Then the clips are spliced to films, to see what the other clips of a part add.
The result is written beside the weights.

Q sentences, V videos, P positions, D width, K parts of films
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from pocket_data import Items
from torch import Tensor

from holmes.base.files import write_json
from holmes.data.pooling import overlapping_clips, video_frames
from holmes.evidence.calibration import Calibration
from holmes.evidence.distribution import background, gallery_distribution
from holmes.evidence.film_parts import first_of_each
from holmes.evidence.fitting import fit_calibration
from holmes.index.answer.calibration import same_meaning
from holmes.index.embedders.zero_shot import CLIP_SECONDS, ZeroShot
from holmes.media.backbones.pocket import CALIBRATION, WEIGHTS, Pocket
from holmes.records import Scores

CAPTIONS = 8  # of each clip
FILMS = (3, 9, 18)  # that the clips are spliced to
SPLICES = 4  # how often
CLIPS_A_PART, CLIPS_A_STEP = 4, 3  # 64 seconds, which overlap by a quarter
RESTS = tuple(step / 20 for step in range(13))  # to choose `part_rest` from


def calibrate_shipped(joint: Path, without: Path | None) -> Calibration | None:
    """The calibration of the shipped model on the clips of the test split."""
    records = json.loads((joint / "msrvtt_clips.json").read_bytes())
    left_out = set() if without is None else {file.stem for file in without.iterdir()}
    with np.load(joint / "msrvtt_clips_lite2_pca512.npz", allow_pickle=False) as file:
        rows, ids, lengths = file["features"].astype(np.float32), file["ids"].tolist(), file["lengths"]
    clips = [
        (frames, records[id]["captions"])
        for id, frames in zip(ids, np.split(rows, np.cumsum(lengths)[:-1]), strict=True)
        if records[id]["split"] == "test" and id not in left_out
    ]
    pocket = Pocket()
    embedder = ZeroShot(pocket)
    every = [np.unique(np.linspace(0, len(texts) - 1, CAPTIONS).round().astype(int)) for _, texts in clips]
    asked = [(texts[at], v) for v, (_, texts) in enumerate(clips) for at in every[v]]
    sentences, owner_Q = [text for text, _ in asked], torch.tensor([v for _, v in asked])
    query_QD = F.normalize(embedder.queries(sentences).query_QD, dim=-1)
    seen = [pocket.see(frames) for frames, _ in clips]
    scores = scores_of(query_QD, seen)
    fits_QV = same_meaning(query_QD, owner_Q, len(clips))
    weights = ZeroShot.frame_weight, ZeroShot.clip_weight
    fitted = fit_calibration(scores, owner_Q, *weights, pocket.digest, fits_QV)
    some = Scores(scores.frame_QV[::4], scores.clip_QV[::4])  # two of each clip are enough for one number
    return None if fitted is None else replace(fitted, part_rest=fit_part_rest(some, owner_Q[::4], fitted))


def fit_part_rest(scores: Scores, owner_Q: Tensor, fitted: Calibration) -> float:
    """The share under which the probabilities that a first film is right are most true (log loss)."""
    losses = torch.zeros(len(RESTS), dtype=torch.float64)
    for count in FILMS:
        for seed in range(SPLICES):
            order_V = np.random.default_rng(seed).permutation(scores.clip_QV.shape[1])
            films = [order_V[film::count] for film in range(count)]
            for at, rest in enumerate(RESTS):
                said_Q, right_Q = first_films(scores, owner_Q, films, replace(fitted, part_rest=rest))
                losses[at] += F.binary_cross_entropy(said_Q, right_Q)
    return RESTS[int(losses.argmin())]


def first_films(
    scores: Scores, owner_Q: Tensor, films: list[np.ndarray], fitted: Calibration
) -> tuple[Tensor, Tensor]:
    """How probable the first film of each query is, if every query has its film, and whether it is right."""
    parts = [
        (film, clips[start : start + CLIPS_A_PART])
        for film, clips in enumerate(films)
        for start in range(0, max(1, len(clips) - CLIPS_A_PART + CLIPS_A_STEP), CLIPS_A_STEP)
    ]
    film_S = torch.tensor([film for film, _ in parts])
    of_parts = (
        torch.stack([branch_QV[:, clips].amax(1) for _, clips in parts], 1).double()
        for branch_QV in (scores.frame_QV, scores.clip_QV)
    )
    best = fitted.score(Scores(*of_parts)).sort(1, descending=True)
    film_QK = film_S[best.indices]
    gallery = gallery_distribution(
        best.values, len(parts), fitted.evidence, fitted.absence, background(best.values), 0
    ).merged(film_QK, film_S.bincount()[film_QK], fitted.part_rest)
    first = gallery.probability_QK.max(1)
    film_V = torch.zeros(scores.clip_QV.shape[1], dtype=torch.long)
    for film, clips in enumerate(films):
        film_V[clips] = film
    order_QK = first_of_each(film_QK).long().argsort(dim=1, descending=True, stable=True)
    place_Q1 = order_QK.gather(1, first.indices.unsqueeze(1))  # where the first film's best part stands
    right_Q = film_QK.gather(1, place_Q1).squeeze(1) == film_V[owner_Q]
    return first.values.clamp(1e-9, 1 - 1e-9), right_Q.double()


def scores_of(query_QD: Tensor, seen: list[np.ndarray]) -> Scores:
    """Every query over every clip, scored as a video of one part is; there is one frame per second."""
    clips = partial(overlapping_clips, least=CLIP_SECONDS)
    frame_QV, clip_QV = (
        torch.stack([best_match(query_QD, pool(rows_ND)) for rows_ND in seen], 1)
        for pool in (video_frames, clips)
    )
    return Scores(frame_QV, clip_QV)


def calibrate_pocket(
    see: Callable[[Tensor], Tensor], read: Callable[[Tensor], Tensor], items: Items, model: str
) -> Calibration | None:
    """Fit the calibration of the model with this digest."""
    scores, owner_Q = search_scores(see, read, items)
    return fit_calibration(scores, owner_Q, ZeroShot.frame_weight, ZeroShot.clip_weight, model)


@torch.inference_mode()
def search_scores(
    see: Callable[[Tensor], Tensor], read: Callable[[Tensor], Tensor], items: Items
) -> tuple[Scores, Tensor]:
    """Every sentence over every item, scored as a video of one part is, and the item each belongs to."""
    rows = F.normalize(see(items.frames), dim=-1).numpy()
    seen = np.split(rows, items.frame_offsets[1:-1].numpy())
    asked_QD = F.normalize(read(items.sentences), dim=-1)
    owner_Q = torch.arange(len(items)).repeat_interleave(items.sentence_offsets.diff())
    return scores_of(asked_QD, seen), owner_Q


def best_match(asked_QD: Tensor, rows_PD: np.ndarray) -> Tensor:
    return (asked_QD @ F.normalize(torch.from_numpy(rows_PD), dim=-1).T).amax(1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("joint", type=Path)
    parser.add_argument("--without", type=Path)
    options = parser.parse_args()
    calibration = calibrate_shipped(options.joint, options.without)
    assert calibration is not None, "the clips are too few"
    write_json(WEIGHTS.with_name(CALIBRATION), calibration.to_dict())
    print(calibration)


if __name__ == "__main__":
    main()
