"""The soak and the hostile clients of the benchmarks, small: they run, and they notice what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.mark.slow
def test_a_short_soak_loses_nothing_and_answers_rightly(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "soak.py"), "--minutes", "0.15", "--films", "4"]
    command += ["--seed", "0"]
    done = subprocess.run(
        [*command, "--work", str(tmp_path / "work"), "--out", str(tmp_path)], capture_output=True, text=True
    )
    assert (tmp_path / "soak.json").exists(), done.stderr[-3000:]
    found = json.loads((tmp_path / "soak.json").read_text())["result"]
    assert found["answers"] > 0 and found["wrong answers"] == 0, done.stderr[-3000:]
    assert found["videos lost or too many"] == found["processes left over"] == 0
    assert found["MiB at the start"] > 0  # half a minute says nothing about growth


def test_what_an_answer_may_and_must_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from soak import Soak, Truth

    truth = Truth()
    for name in ("/a/f00.mp4", "/a/f01.mp4"):
        truth.came(name)
        truth.stays(name)
    mark = truth.mark()
    truth.goes("/a/f01.mp4")
    truth.came("/a/f02.mp4")
    sure, possible = truth.since(mark)
    assert sure == {"/a/f00.mp4"} and possible == {"/a/f00.mp4", "/a/f01.mp4", "/a/f02.mp4"}

    soak = Soak.__new__(Soak)
    soak.scores = {"a dog": {"f00": 0.5, "f01": 0.4, "f02": 0.3}}

    def wrong(*hits: tuple[str, float], query: str = "a dog", status: int = 200) -> str:
        body = {"query": query, "hits": [{"video": f"/a/{name}.mp4", "score": score} for name, score in hits]}
        return soak.wrong("a dog", status, json.dumps(body).encode(), sure, possible)

    assert wrong(("f00", 0.5), ("f02", 0.3)) == "" == wrong(("f00", 0.5), ("f01", 0.4))
    assert "missing ['/a/f00.mp4']" in wrong(("f01", 0.4))
    assert "too many ['/a/f09.mp4']" in wrong(("f00", 0.5), ("f09", 0.1))
    assert "wrong scores" in wrong(("f00", 0.6))
    assert wrong(("f01", 0.4), ("f00", 0.5)) == "not in order"
    assert "something else" in wrong(("f00", 0.5), query="a cat")
    assert wrong(status=500).startswith("500")
    sys.modules.pop("soak")
