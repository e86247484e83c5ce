"""The notebook in docs/ runs from top to bottom, on a tiny world."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib
import pytest

from own_names import names_restored

NOTEBOOK = Path(__file__).parents[2] / "docs" / "first_steps.ipynb"
SIZES = "VIDEOS, EPOCHS, WIDTH = 160, 16, 48"


def cells() -> list[dict]:
    return json.loads(NOTEBOOK.read_text())["cells"]


@pytest.fixture
def clean():
    with names_restored():
        yield


def test_every_cell_runs_in_order(clean, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path / "work"))
    matplotlib.use("Agg")
    sources = ["".join(cell["source"]) for cell in cells() if cell["cell_type"] == "code"]
    assert sum(SIZES in source for source in sources) == 1
    scope: dict = {}
    for number, source in enumerate(sources):
        tiny = source.replace(SIZES, "VIDEOS, EPOCHS, WIDTH = 40, 2, 8")
        exec(compile(tiny, f"cell {number + 1}", "exec"), scope)
    assert len(scope["history"]) == len(scope["history_2"]) == 2
    assert all("branches_agree" in entry.loss for entry in scope["history_2"])
    printed = capsys.readouterr().out
    for name in ("R@1", "R@5", "SumR", "precise", "p ="):
        assert name in printed
    assert (tmp_path / "work" / "agreeing-seed1" / "ranks.npz").exists()


def test_the_change_takes_ten_lines():
    (source,) = ["".join(cell["source"]) for cell in cells() if "extend.loss(" in "".join(cell["source"])]
    assert len([line for line in source.splitlines() if line.strip()]) <= 10


def test_the_notebook_is_saved_whole_and_names_no_machine():
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not [out for cell in code for out in cell["outputs"] if out["output_type"] == "error"]
    assert not re.search(r"/(?:work|home|root|tmp)/", NOTEBOOK.read_text())
