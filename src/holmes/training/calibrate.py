"""Teach a trained model how sure to be: fit its calibration on the videos it was not trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.encoders.checkpoint import load_checkpoint, update_extras
from holmes.evaluation.calibrate import fit_calibration
from holmes.evaluation.scoring import encode_split, score_all
from holmes.evidence.diagnosis import EXTRA, Calibration
from holmes.training.protocol import Protocol, choose_splits
from holmes.training.resume import RUN, read_run


def calibrate_run(run: Path, store: Store, device: torch.device) -> Calibration | None:
    """Fit and store the calibration of a run's best checkpoint; None where no videos were held out.

    Never on the split that is reported: that would make the model look better calibrated than it is.
    """
    about = read_run(run / RUN)
    checkpoint = load_checkpoint(run / "best", str(device))
    held_out = checkpoint.config.training.held_out
    split = calibration_split(store, Protocol(about["data"]["protocol"]), held_out, about["seed"])
    if split is None:
        return None
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    bank = FeatureBank(store, device, splits=[split], dtype=dtype)
    encoded = encode_split(checkpoint.model, bank, split)
    known_Q = torch.from_numpy(np.asarray(store.kinds_Q[split.queries], np.int64)).to(device)
    calibration = fit_calibration(
        score_all(encoded), encoded.owner_Q, checkpoint.config.score, checkpoint.digest, known_Q
    )
    if calibration is not None:
        update_extras(run / "best", {EXTRA: calibration.to_dict()})
    return calibration


def calibration_split(store: Store, protocol: Protocol, held_out: float, seed: int) -> Split | None:
    """The honest protocol's held-out videos; otherwise a val split that shares none with test, if any."""
    if protocol is Protocol.HONEST:
        return choose_splits(store, protocol, held_out, seed).select
    if "val" not in store.splits or "test" not in store.splits:
        return None
    val = store.split("val")
    return None if np.isin(val.videos, store.split("test").videos).any() else val
