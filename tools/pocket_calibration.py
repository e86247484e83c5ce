"""Teach the pocket model how sure to be, from captioned clips that its heads have not seen.

    python tools/pocket_calibration.py JOINT [--without FOLDER]

JOINT holds msrvtt_clips.json and msrvtt_clips_lite2_pca512.npz. The clips of its test split are a gallery, of
each of which eight captions are asked. Clips whose video lies in FOLDER are left out, so that these can be
measured on afterwards. The result is written beside the weights.

Q sentences, V videos, P positions, D width
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
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
from holmes.evidence.fitting import fit_calibration
from holmes.index.answer.calibration import same_meaning
from holmes.index.embedders.zero_shot import CLIP_SECONDS, ZeroShot
from holmes.media.backbones.pocket import CALIBRATION, WEIGHTS, Pocket
from holmes.records import Scores

CAPTIONS = 8  # of each clip


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
    return fit_calibration(scores, owner_Q, *weights, pocket.digest, fits_QV)


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
