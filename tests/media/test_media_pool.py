"""Extraction workers: what they compute with, and what is said of one that crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("av")
from holmes.media.pool import extract_in_workers

WORKERS = """
import os, threading

def toy(parent):
    def work(source):
        name = source.rsplit("/", 1)[-1]
        if name == "crash":
            os.abort()
        if name == "stuck":
            threading.Event().wait()
        parent.report({})
        parent.report({"seconds": 2.0, "share": 0.5})
        threads = os.environ["OPENBLAS_NUM_THREADS"]
        return {"failure": "bad" if name == "bad" else "", "note": f"{name}, {threads}"}
    return work
"""


def test_a_worker_that_dies_costs_one_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_workers.py").write_text(WORKERS)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "3")
    sources = [Path(f"/films/{name}") for name in ("one", "crash", "two", "bad", "stuck", "three")]
    signs = []
    outcomes = {
        outcome.source.name: outcome
        for outcome in extract_in_workers({}, sources, 2, signs.append, target="toy_workers:toy", timeout=5.0)
    }
    assert set(outcomes) == {source.name for source in sources}
    for name in ("one", "two", "three"):
        # NumPy's threads wait by spinning, on the cores of the other workers.
        assert (outcomes[name].failure, outcomes[name].note) == ("", f"{name}, 1")
    assert outcomes["bad"].failure == "bad"
    assert outcomes["crash"].failure == "the decoder or the encoder crashed (SIGABRT)"
    assert "no progress" in outcomes["stuck"].failure
    assert {sign.source.name for sign in signs if sign.share == 0.5} == {"one", "two", "bad", "three"}
