"""Commands run in this process."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from holmes.cli.main import main


class Shell:
    """Runs commands in this process: exit code, standard output, standard error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        self.stdin: io.TextIOBase | None = None  # instead of what is typed

    def __call__(self, *words: str | Path, typed: str = "") -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["holmes", *map(str, words)])
        self.monkeypatch.setattr(sys, "stdin", self.stdin or io.StringIO(typed))
        with pytest.raises(SystemExit) as ended:
            main()
            sys.exit(0)
        said = self.capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err
