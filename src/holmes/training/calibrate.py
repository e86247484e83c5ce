"""Teach a trained model how sure to be: fit its calibration on the videos it was not trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from holmes.data.bank import FeatureBank
from holmes.data.store import Split
from holmes.encoders.checkpoint import Checkpoint, update_extras
from holmes.evaluation.scoring import encode_split, score_all
from holmes.evidence.diagnosis import EXTRA, Calibration
from holmes.evidence.fitting import fit_calibration


def calibrate(folder: Path, checkpoint: Checkpoint, bank: FeatureBank, split: Split) -> Calibration | None:
    """Fit the calibration of the checkpoint in a folder and store it there; None if the queries are too few.

    Never on the split that is reported: that would make the model look better calibrated than it is.
    """
    encoded, weights = encode_split(checkpoint.model, bank, split), checkpoint.config.score
    known_Q = torch.from_numpy(np.asarray(bank.store.kinds_Q[split.queries], np.int64)).to(bank.device)
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
