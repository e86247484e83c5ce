"""A model's queries in galleries of up to 100,000 planted videos: does the probability of the first hit hold?

Distractors are planted, encoded and scored chunk by chunk; nothing is stored.

Q queries, V videos, F frames, C clips, D width
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.data.bank import FeatureBank
from holmes.data.pooling import video_clips, video_frames
from holmes.data.store import Split, Store
from holmes.encoders.checkpoint import Checkpoint
from holmes.encoders.precision import encoder_precision
from holmes.evaluation.confidence.baselines import logistic_curve, top_score
from holmes.evaluation.confidence.quantities import size_row, smaller_gallery
from holmes.evaluation.recall import rank_of_owner
from holmes.evaluation.scoring import Encoded, encode_split, score_all, unit_videos
from holmes.evidence.calibration import Calibration
from holmes.records import CLIPS, FRAMES, Scores
from holmes.worlds.planted.scenery import Disturbance, FeatureMap, film
from holmes.worlds.planted.world import Mix, plan_world

CHUNK = 500
SEED = 1000  # far from the seeds of training
Chunk = tuple[NDArray[np.float16], NDArray[np.int64], NDArray[np.float16]]


def plant_chunk(number: int, videos: int, width: int, difficulty: float) -> Chunk:
    """Padded frames, their lengths, and clips of videos that belong to no split."""
    rng = np.random.default_rng([SEED, number])
    plan = plan_world(videos, Mix(), rng)
    rows = film(plan, 0, videos, FeatureMap(width), Disturbance().times(difficulty), rng)
    frames_VFD = np.zeros((videos, FRAMES, width), np.float16)
    clips_VCD = np.zeros((videos, CLIPS, width), np.float16)
    lengths_V = np.minimum(plan.frame_counts_V, FRAMES)
    for video, rows_ND in enumerate(np.split(rows, np.cumsum(plan.frame_counts_V)[:-1])):
        frames_VFD[video, : lengths_V[video]] = video_frames(rows_ND)
        clips_VCD[video] = video_clips(rows_ND)
    return frames_VFD, lengths_V, clips_VCD


def planted_chunks(videos: int, store: Store) -> Iterator[Chunk]:
    """Chunks of planted videos, made by all cores, in order; a few wait at a time."""
    recipe = store.info.provenance["planted"]
    chunks = -(-videos // CHUNK)
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # workers inherit it: one core each
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        waiting = []
        for number in range(chunks):
            waiting.append(
                pool.submit(plant_chunk, number, CHUNK, recipe["video_width"], recipe["difficulty"])
            )
            if len(waiting) > 32:
                yield waiting.pop(0).result()
        for chunk in waiting:
            yield chunk.result()


@torch.inference_mode()
def distractor_scores(checkpoint: Checkpoint, bank: FeatureBank, encoded: Encoded, videos: int) -> Scores:
    """Both branches' scores of the queries against videos that answer none of them."""
    device = bank.device
    found = [Scores(*(torch.zeros((len(encoded.owner_Q), 0), device=device) for _ in range(2)))]
    for frames_VFD, lengths_V, clips_VCD in planted_chunks(videos, bank.store):
        with encoder_precision(device):
            some = checkpoint.model.encode_videos(
                torch.from_numpy(frames_VFD).to(device, bank.dtype),
                torch.from_numpy(lengths_V).to(device),
                torch.from_numpy(clips_VCD).to(device, bank.dtype),
            )
        found.append(score_all(Encoded(unit_videos(some), encoded.queries, encoded.owner_Q)))
    return Scores(
        torch.cat([part.frame_QV for part in found], 1)[:, :videos],
        torch.cat([part.clip_QV for part in found], 1)[:, :videos],
    )


@torch.inference_mode()
def large_galleries(
    checkpoint: Checkpoint,
    bank: FeatureBank,
    test: Split,
    held: Split,
    calibration: Calibration,
    sizes: list[int],
) -> list[dict[str, Any]]:
    """A row for each size: the claimed and the true probability, and the claim of a curve through the score.

    The curve is fitted on the held-out gallery like our calibration, but takes no account of the size.
    """
    held_out = encode_split(checkpoint.model, bank, held)
    score_QV = calibration.score(score_all(held_out))
    right_Q = (rank_of_owner(score_QV, held_out.owner_Q) == 1).cpu().numpy()
    curve = logistic_curve(top_score(score_QV).double().cpu().numpy(), right_Q)

    encoded = encode_split(checkpoint.model, bank, test)
    own = score_all(encoded)
    more = distractor_scores(checkpoint, bank, encoded, max(0, max(sizes) - len(test.videos)))
    rows = []
    for size in sizes:
        if size <= len(test.videos):
            scores, owner_Q = smaller_gallery(own, encoded.owner_Q, size, seed=0)
        else:
            extra = size - len(test.videos)
            scores = Scores(
                torch.cat([own.frame_QV, more.frame_QV[:, :extra]], 1),
                torch.cat([own.clip_QV, more.clip_QV[:, :extra]], 1),
            )
            owner_Q = encoded.owner_Q
        top_Q = top_score(calibration.score(scores)).double().cpu().numpy()
        rows.append(size_row(scores, owner_Q, calibration) | {"uncorrected": float(curve(top_Q).mean())})
    return rows
