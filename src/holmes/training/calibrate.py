"""Fit the calibration of a trained model, on videos it was not trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.encoders.checkpoint import Checkpoint, update_extras
from holmes.evaluation.scoring import encode_split, score_all
from holmes.evidence.calibration import EXTRA, Calibration
from holmes.evidence.fitting import fit_calibration
from holmes.records import QueryKind


def calibrate(folder: Path, checkpoint: Checkpoint, bank: FeatureBank, split: Split) -> Calibration | None:
    """Fit the calibration of the checkpoint in a folder and store it there; None if the queries are too few.

    Never on the split that is reported: its calibration would seem better than it is.
    """
    encoded, weights = encode_split(checkpoint.model, bank, split), checkpoint.config.score
    known_Q = torch.from_numpy(kinds_in_gallery(bank.store, split)).to(bank.device)
    calibration = fit_calibration(
        score_all(encoded),
        encoded.owner_Q,
        weights.frame_weight,
        weights.clip_weight,
        checkpoint.digest,
        known_Q,
    )
    if calibration is not None:
        update_extras(folder, {EXTRA: calibration.to_dict()})
    return calibration


def kinds_in_gallery(store: Store, split: Split) -> NDArray[np.int64]:
    """The known kinds; a polysemous query of whose videos the split has only one is precise there."""
    kinds_Q, here = np.array(store.kinds_Q[split.queries], np.int64), set(split.videos.tolist())
    alone_Q = [here.isdisjoint(store.also_fits.get(int(query), ())) for query in split.queries]
    kinds_Q[(kinds_Q == QueryKind.POLYSEMOUS) & np.array(alone_Q, bool)] = QueryKind.PRECISE
    return kinds_Q
