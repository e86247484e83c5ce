"""Benchmarks run by hand; what they share is tried here, so that they still run when they are wanted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from holmes.data.bank import FeatureBank

ROOT = Path(__file__).parents[2]


def test_a_synthetic_store_can_be_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from synthetic import ACTIVITYNET, SyntheticStore

    store = SyntheticStore(ACTIVITYNET.scaled(0.002), torch.device("cpu"))
    train, test = store.split("train"), store.split("test")
    assert (len(train.videos), len(test.videos)) == (20, 8)
    bank = FeatureBank(store, torch.device("cpu"), splits=[train, test])
    assert bank.store.frames.shape == (28 * 128, 1024)
    sys.modules.pop("synthetic")


def test_the_kinds_of_answers_stand_beside_the_planted_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four kinds are said, three are planted: each table has its own rows."""
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    from uncertainty_page import kinds_table

    shares = {"precise": 0.5, "several_fit": 0.25, "too_little": 0.15, "not_here": 0.1}
    agreement = {
        "kinds": ["precise", "polysemous", "underdetermined"],
        "confusion": [[5, 1, 0], [0, 2, 1], [1, 0, 1000]],
        "macro_F1": 0.6,
        "chance_macro_F1": 0.3,
    }
    seeds = [
        {"shares": shares, "right": {"precise": right, "several_fit": 0.2}, "agreement": agreement}
        for right in (0.7, 0.9)
    ]
    found = {"reports": [{"uncertainty_details": {"kinds": kinds}} for kinds in seeds]}
    lines = kinds_table(found).splitlines()
    assert lines[0] == "macro-F1 .600, .600 (one per seed), by chance .300"
    assert "| precise | 50.0% | 80.0% |" in lines
    assert "| too little to go on | 15.0% | – |" in lines
    assert "| underdetermined | 2 | 0 | 2,000 |" in lines
    for kinds in seeds:
        kinds["agreement"] = None
    assert "planted" not in kinds_table(found)
    sys.modules.pop("uncertainty_page")
