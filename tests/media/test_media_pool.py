"""Worker processes: answers that arrive together are all heard."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holmes.media.pool import Outcome, run_jobs

HASTY = """
import sys
for line in sys.stdin:
    sys.stdout.write('{}\\n{}\\n{"failure": ""}\\n')  # one write: all three lines in one read
    sys.stdout.flush()
"""


def test_the_folder_one_stands_in_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    (here / "random.py").write_text("raise SystemExit('this is not the library you look for')")
    (there / "random_worker.py").write_text("import random\n" + HASTY)
    monkeypatch.setenv("PYTHONPATH", str(there))
    monkeypatch.chdir(here)
    (outcome,) = run_jobs("random_worker", {}, [Path("video")], workers=1)
    assert not outcome.failure


def test_answers_that_arrive_together_are_all_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hasty_worker.py").write_text(HASTY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sources = [Path(f"video{number}") for number in range(5)]
    outcomes: list[Outcome] = []
    work = threading.Thread(
        target=lambda: outcomes.extend(run_jobs("hasty_worker", {}, sources, workers=2)), daemon=True
    )
    work.start()
    work.join(timeout=60)
    assert not work.is_alive(), "the pool waits for an answer it has already been given"
    assert sorted(outcome.source for outcome in outcomes) == sources
    assert not any(outcome.failure for outcome in outcomes)


def test_a_worker_computes_small_products_in_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "telling_worker.py").write_text(
        "import json, os, sys\n"
        "sys.stdin.readline()\n"
        "threads = os.environ['OPENBLAS_NUM_THREADS']  # what the NumPy of its packages goes by\n"
        "print(json.dumps({'failure': '', 'note': threads}), flush=True)\n"
        "sys.stdin.readline()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "3")
    (outcome,) = run_jobs("telling_worker", {}, [Path("video")], workers=1)
    assert outcome.note == "1", "NumPy's threads wait by spinning, on the cores of the other workers"
