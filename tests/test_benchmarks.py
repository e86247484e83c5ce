"""Benchmarks run by hand; what they share is tried here, so that they still run when they are wanted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from holmes.data.bank import FeatureBank

ROOT = Path(__file__).parent.parent


def test_a_synthetic_store_can_be_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from synthetic import ACTIVITYNET, SyntheticStore

    store = SyntheticStore(ACTIVITYNET.scaled(0.002), torch.device("cpu"))
    train, test = store.split("train"), store.split("test")
    assert (len(train.videos), len(test.videos)) == (20, 8)
    bank = FeatureBank(store, torch.device("cpu"), splits=[train, test])
    assert bank.store.frames.shape == (28 * 128, 1024)
    sys.modules.pop("synthetic")
