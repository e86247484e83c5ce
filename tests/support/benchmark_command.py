"""Runs a benchmark or a study as its command line does, in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
import typer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STUDIES = BENCHMARKS.parent / "studies"  # they use what is in the benchmarks' folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """`command(name, *words)`; the modules of the benchmarks are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(STUDIES))
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = {*sys.modules}

    def run(name: str, *words: object) -> None:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, words)])
        module = import_module(name)
        if not hasattr(module, "typer"):
            module.main()
            return
        try:
            typer.run(module.main)
        except SystemExit as ended:
            if ended.code:
                raise

    yield run
    ours = {path.stem for folder in (BENCHMARKS, STUDIES) for path in folder.glob("*.py")}
    for name in {*sys.modules} - before:
        if name in ours:
            del sys.modules[name]
