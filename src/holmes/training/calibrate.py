"""Fit the calibration of a trained model, on videos it was not trained on."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.encoders.checkpoint import Checkpoint, update_extras
from holmes.evaluation.scoring import encode_split, score_all
from holmes.evidence.calibration import EXTRA, Calibration
from holmes.evidence.fitting import fit_calibration


def calibrate(folder: Path, checkpoint: Checkpoint, bank: FeatureBank, split: Split) -> Calibration | None:
    """Fit the calibration of the checkpoint in a folder and store it there; None if the queries are too few.

    Never on the split that is reported: its calibration would seem better than it is.
    """
    encoded, weights = encode_split(checkpoint.model, bank, split), checkpoint.config.score
    calibration = fit_calibration(
        score_all(encoded),
        encoded.owner_Q,
        weights.frame_weight,
        weights.clip_weight,
        checkpoint.digest,
        fitting_videos(bank.store, split).to(bank.device),
    )
    if calibration is not None:
        update_extras(folder, {EXTRA: calibration.to_dict()})
    return calibration


def fitting_videos(store: Store, split: Split) -> Tensor:
    """Q × V: which videos of the split fit a query besides its own."""
    column = {int(video): at for at, video in enumerate(split.videos)}
    pairs = [
        (q, column[video])
        for q, query in enumerate(split.queries)
        for video in store.also_fits.get(int(query), ())
        if video in column
    ]
    fits_QV = torch.zeros(len(split.queries), len(split.videos), dtype=torch.bool)
    if pairs:
        query_P, video_P = torch.tensor(pairs).unbind(1)
        fits_QV[query_P, video_P] = True
    return fits_QV
